package endpoints

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointRow is a row of endpoints: the fields of an endpoint, and columns that are not fields.
type endpointRow struct {
	e       webhook.Endpoint
	state   int16
	since   *time.Time // of the state
	filter  *string    // null: none
	ordered int16
	timeout int64
	auto    bool
	format  int16
	own     *retry.Policy // null: none
	tenants *retry.Policy // only read
	breaker breakerRow
	disable DisableRow
	headers sealedColumns
	auth    sealedColumns
}

// endpointColumn is a column of endpoints, and where a row has its value.
type endpointColumn struct {
	name string
	at   func(r *endpointRow) any // a pointer
}

// endpointColumns are the columns of endpoints that are written, in the order of the parameters.
// A new field of an endpoint is one entry here; if its type is not the column's, it is converted
// in endpointOfRow and rowOf. "Add a field to an endpoint" in CONTRIBUTING.md has the other places.
//
//nolint:gochecknoglobals // a table that Go cannot write as a constant
var endpointColumns = []endpointColumn{
	{"id", func(r *endpointRow) any { return (*[16]byte)(&r.e.ID) }},
	{"tenant_id", func(r *endpointRow) any { return &r.e.TenantID }},
	{"url", func(r *endpointRow) any { return &r.e.URL }},
	{"event_types", func(r *endpointRow) any { return &r.e.EventTypes }},
	{"filter", func(r *endpointRow) any { return &r.filter }},
	{"ordering_by", func(r *endpointRow) any { return &r.ordered }},
	{"description", func(r *endpointRow) any { return &r.e.Description }},
	{"state", func(r *endpointRow) any { return &r.state }},
	{"state_reason", func(r *endpointRow) any { return &r.e.StateReason }},
	{"state_since", func(r *endpointRow) any { return &r.since }},
	{"state_by", func(r *endpointRow) any { return &r.e.StateBy }},
	{"timeout_ns", func(r *endpointRow) any { return &r.timeout }},
	{"timeout_auto", func(r *endpointRow) any { return &r.auto }},
	{"max_in_flight", func(r *endpointRow) any { return &r.e.MaxInFlight }},
	{"rate_limit", func(r *endpointRow) any { return &r.e.RateLimit }},
	{"retry_policy", func(r *endpointRow) any { return &r.own }},
	{"circuit_breaker", func(r *endpointRow) any { return &r.breaker }},
	{"auto_disable", func(r *endpointRow) any { return &r.disable }},
	{"success_statuses", func(r *endpointRow) any { return &r.e.SuccessStatuses }},
	{"auto_replay", func(r *endpointRow) any { return &r.e.AutoReplay }},
	{"signature", func(r *endpointRow) any { return &r.e.Signature }},
	{"payload_format", func(r *endpointRow) any { return &r.format }},
	{"trace_context", func(r *endpointRow) any { return &r.e.TraceContext }},
	{"public_key", func(r *endpointRow) any { return &r.e.PublicKey }},
	{"metadata", func(r *endpointRow) any { return &r.e.Metadata }},
	{"internal", func(r *endpointRow) any { return &r.e.Internal }},
	{"headers_kek_id", func(r *endpointRow) any { return &r.headers.kekID }},
	{"headers_wrapped_key", func(r *endpointRow) any { return &r.headers.wrappedKey }},
	{"headers_nonce", func(r *endpointRow) any { return &r.headers.nonce }},
	{"headers_ciphertext", func(r *endpointRow) any { return &r.headers.ciphertext }},
	{"auth_kek_id", func(r *endpointRow) any { return &r.auth.kekID }},
	{"auth_wrapped_key", func(r *endpointRow) any { return &r.auth.wrappedKey }},
	{"auth_nonce", func(r *endpointRow) any { return &r.auth.nonce }},
	{"auth_ciphertext", func(r *endpointRow) any { return &r.auth.ciphertext }},
	{"version", func(r *endpointRow) any { return &r.e.Version }},
}

// The statements of an endpoint. The first two columns, id and tenant_id, never change.
//
//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	// endpointSelect is what scanEndpoint reads, of the table e.
	endpointSelect = "e." + strings.Join(columnNames(), ", e.") + ", " + tenants.PolicyOfEndpoint + ", e.created_at, e.updated_at"

	// endpointUnsealed is endpointSelect with null in place of what is sealed.
	endpointUnsealed = strings.Join(unsealed(), ", ") + ", " + tenants.PolicyOfEndpoint + ", e.created_at, e.updated_at"

	endpointInsertOnly = "insert into endpoints as e (" + strings.Join(columnNames(), ", ") + ") values (" + strings.Join(parameters(), ", ") + ")"

	endpointInsert = endpointInsertOnly + " returning created_at, updated_at, " + tenants.PolicyOfEndpoint

	endpointUpdate = "update endpoints set " + strings.Join(assignments(), ", ") +
		", updated_at = now() where id = $1 and tenant_id = $2 returning updated_at"
)

func columnNames() (names []string) {
	for _, c := range endpointColumns {
		names = append(names, c.name)
	}
	return names
}

func unsealed() (list []string) {
	for _, name := range columnNames() {
		if strings.HasPrefix(name, "headers_") || strings.HasPrefix(name, "auth_") {
			name = "null"
		} else {
			name = "e." + name
		}
		list = append(list, name)
	}
	return list
}

func parameters() (list []string) {
	for i := range endpointColumns {
		list = append(list, fmt.Sprintf("$%d", i+1))
	}
	return list
}

func assignments() (list []string) {
	for i, name := range columnNames() {
		if i >= 2 {
			list = append(list, fmt.Sprintf("%s = $%d", name, i+1))
		}
	}
	return list
}

// scanned is where endpointSelect is read into.
func (r *endpointRow) scanned() []any {
	into := make([]any, 0, len(endpointColumns)+3)
	for _, c := range endpointColumns {
		into = append(into, c.at(r))
	}
	return append(into, &r.tenants, &r.e.CreatedAt, &r.e.UpdatedAt)
}

// written are the parameters of endpointInsert and endpointUpdate.
func (r *endpointRow) written() []any {
	values := make([]any, len(endpointColumns))
	for i, c := range endpointColumns {
		values[i] = reflect.ValueOf(c.at(r)).Elem().Interface()
	}
	return values
}
