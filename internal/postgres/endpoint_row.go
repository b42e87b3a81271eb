package postgres

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointReader reads endpoints and opens what is sealed of them.
type endpointReader struct {
	*core

	sealer      Sealer
	retryPolicy retry.Policy // of the installation
}

// tenantPolicy is the retry policy of the tenant of an endpoint e, null where it has none.
const tenantPolicy = `(select t.retry_policy from tenants t where t.id = e.tenant_id)`

// autoTimeoutNS is what timeout_ns holds beside timeout_auto. It never changes: with any
// other value a process that does not know that column has set a timeout since.
const autoTimeoutNS = int64(15 * time.Second)

// breakerRow and disableRow are the jsonb columns: fields may be added, a name
// never changes its meaning.
type breakerRow struct {
	Enabled      bool          `json:"enabled"`
	Window       time.Duration `json:"window_ns"`
	MinRequests  int           `json:"min_requests"`
	FailureRatio float64       `json:"failure_ratio"`
	Cooldown     time.Duration `json:"cooldown_ns"`
}

type disableRow struct {
	Enabled         bool `json:"enabled"`
	Exhausted24h    int  `json:"exhausted_24h"`
	PermanentStreak int  `json:"permanent_streak"`
}

// policyColumn is a retry policy as it is written: null for none.
func policyColumn(p retry.Policy) *retry.Policy {
	if p.IsZero() {
		return nil
	}
	return &p
}

// policyOf is the inverse of policyColumn.
func policyOf(column *retry.Policy) retry.Policy {
	if column == nil {
		return retry.Policy{}
	}
	return *column
}

// inherited is the retry policy of an endpoint that has none of its own, given its tenant's.
func (s endpointReader) inherited(tenants *retry.Policy) webhook.InheritedPolicy {
	if tenants != nil {
		return webhook.InheritedPolicy{Policy: *tenants, Source: webhook.PolicyOfTenant}
	}
	return webhook.InheritedPolicy{Policy: s.retryPolicy, Source: webhook.PolicyOfInstallation}
}

// endpointOfRow is what was read, without headers and credentials: those are still sealed.
func (s endpointReader) endpointOfRow(r *endpointRow) webhook.Endpoint {
	e := r.e
	e.RetryPolicy, e.Inherited = policyOf(r.own), s.inherited(r.tenants)
	e.State = webhook.EndpointState(r.state)          //nolint:gosec // written by us from an EndpointState
	e.PayloadFormat = webhook.PayloadFormat(r.format) //nolint:gosec // written by us from a PayloadFormat
	e.Timeout, e.AutoTimeout = time.Duration(r.timeout), r.auto && r.timeout == autoTimeoutNS
	if e.AutoTimeout {
		e.Timeout = webhook.DefaultTimeout
	}
	e.CircuitBreaker, e.AutoDisable = webhook.CircuitBreaker(r.breaker), webhook.AutoDisable(r.disable)
	e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	return e
}

// rowOf is the reverse of endpointOfRow, with what is sealed.
func rowOf(e *webhook.Endpoint, headers, auth sealedColumns) *endpointRow {
	r := &endpointRow{
		e: *e, state: int16(e.State), format: int16(e.PayloadFormat), timeout: int64(e.Timeout), auto: e.AutoTimeout, own: policyColumn(e.RetryPolicy),
		breaker: breakerRow(e.CircuitBreaker), disable: disableRow(e.AutoDisable), headers: headers, auth: auth,
	}
	if r.auto {
		r.timeout = autoTimeoutNS
	}
	r.e.EventTypes, r.e.Metadata = nonNilSlice(e.EventTypes), nonNilMap(e.Metadata)
	return r
}

func collectEndpoint(rows pgx.Rows) (endpointRow, error) {
	r, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (endpointRow, error) { return scanEndpoint(row) })
	if isNoRows(err) {
		return r, webhook.NotFound("endpoint")
	}
	return r, err
}

// scanEndpoint reads endpointSelect, and whatever follows into further.
func scanEndpoint(row pgx.CollectableRow, further ...any) (endpointRow, error) {
	var r endpointRow
	if err := row.Scan(append(r.scanned(), further...)...); err != nil {
		return endpointRow{}, fmt.Errorf("read row of endpoints: %w", err)
	}
	return r, nil
}

// openEndpoint is the endpoint with its headers and its credentials. It may have to ask a key management
// service, so that where it can be it is done without a connection in hand.
func (s endpointReader) openEndpoint(ctx context.Context, r *endpointRow) (webhook.Endpoint, error) {
	e := s.endpointOfRow(r)
	if err := s.openHeaders(ctx, &e, r.headers); err != nil {
		return webhook.Endpoint{}, err
	}
	if err := s.openAuth(ctx, &e, r.auth); err != nil {
		return webhook.Endpoint{}, err
	}
	return e, nil
}

func cloneEndpoint(e *webhook.Endpoint) webhook.Endpoint {
	c := *e
	c.EventTypes = slices.Clone(e.EventTypes)
	c.Headers, c.Metadata = maps.Clone(e.Headers), maps.Clone(e.Metadata)
	c.Auth = e.Auth.Clone()
	c.RetryPolicy, c.Inherited.Policy = e.RetryPolicy.Clone(), e.Inherited.Policy.Clone()
	return c
}

// changedFields names what differs, for the audit log: names, never values, and as the
// API names its fields. It goes over the fields by reflection, so that a new one cannot
// be forgotten here and its change be taken for none.
func changedFields[T any](before, after *T) []string {
	names := []string{}
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range b.NumField() {
		if empty(b.Field(i)) && empty(a.Field(i)) || reflect.DeepEqual(b.Field(i).Interface(), a.Field(i).Interface()) {
			continue
		}
		if name := apiName(b.Type().Field(i).Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// apiName is what the API calls a field of an endpoint, a tenant or its limits:
// MaxInFlight is max_in_flight.
func apiName(field string) string {
	switch field {
	case "AutoTimeout":
		return "timeout"
	case "Certificate":
		return "client_certificate"
	case "RateLimit":
		return "rate_limit_per_second"
	}
	name := make([]byte, 0, 2*len(field))
	for i := range len(field) {
		upper := 'A' <= field[i] && field[i] <= 'Z'
		if upper && i > 0 && (field[i-1] < 'A' || field[i-1] > 'Z') {
			name = append(name, '_')
		}
		if upper {
			name = append(name, field[i]+'a'-'A')
		} else {
			name = append(name, field[i])
		}
	}
	return string(name)
}

// empty reports a map or list without entries: nil and {} are stored alike.
func empty(v reflect.Value) bool {
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}
