package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Reader reads and decrypts endpoints.
type Reader struct {
	core *postgres.Core

	sealer      postgres.Sealer
	retryPolicy retry.Policy  // of the installation
	large       chan struct{} // holds an element for each large roster that is being read
}

// NewReader returns a Reader.
func NewReader(s *postgres.Core, sealer postgres.Sealer, policy retry.Policy) Reader {
	return Reader{core: s, sealer: sealer, retryPolicy: policy, large: make(chan struct{}, largeRosters)}
}

// autoTimeoutNS is the value of timeout_ns with timeout_auto. It never changes: any other value means that a
// process that does not know timeout_auto has set a timeout since.
const autoTimeoutNS = int64(15 * time.Second)

// breakerRow and DisableRow are jsonb columns. Fields may be added; a name never changes its meaning.
type breakerRow struct {
	Enabled      bool          `json:"enabled"`
	Window       time.Duration `json:"window_ns"`
	MinRequests  int           `json:"min_requests"`
	FailureRatio float64       `json:"failure_ratio"`
	Cooldown     time.Duration `json:"cooldown_ns"`
}

// DisableRow is the column auto_disable.
type DisableRow struct {
	Enabled         bool `json:"enabled"`
	Exhausted24h    int  `json:"exhausted_24h"`
	PermanentStreak int  `json:"permanent_streak"`
}

// Inherited is the retry policy of an endpoint that has none of its own, given its tenant's.
func (s Reader) Inherited(tenants *retry.Policy) webhook.InheritedPolicy {
	if tenants != nil {
		return webhook.InheritedPolicy{Policy: *tenants, Source: webhook.PolicyOfTenant}
	}
	return webhook.InheritedPolicy{Policy: s.retryPolicy, Source: webhook.PolicyOfInstallation}
}

// endpointOfRow returns the endpoint of a row, without headers and credentials, which are still encrypted.
func (s Reader) endpointOfRow(r *endpointRow) webhook.Endpoint {
	e := r.e
	e.RetryPolicy, e.Inherited = tenants.PolicyOf(r.own), s.Inherited(r.tenants)
	e.State = webhook.EndpointState(r.state)          //nolint:gosec // written by us from an EndpointState
	e.PayloadFormat = webhook.PayloadFormat(r.format) //nolint:gosec // written by us from a PayloadFormat
	e.Timeout, e.AutoTimeout = time.Duration(r.timeout), r.auto && r.timeout == autoTimeoutNS
	if e.AutoTimeout {
		e.Timeout = webhook.DefaultTimeout
	}
	e.CircuitBreaker, e.AutoDisable = webhook.CircuitBreaker(r.breaker), webhook.AutoDisable(r.disable)
	if len(e.SuccessStatuses) == 0 {
		e.SuccessStatuses = nil
	}
	e.StateSince = postgres.OrZero(r.since)
	e.Ordering.By = webhook.OrderingBy(r.ordered) //nolint:gosec // written by us from an OrderingBy
	if r.filter != nil {
		e.Filter = filter.Stored(*r.filter)
	}
	e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	return e
}

// rowOf is the reverse of endpointOfRow, with the encrypted columns.
func rowOf(e *webhook.Endpoint, headers, auth sealedColumns) *endpointRow {
	r := &endpointRow{
		e: *e, state: int16(e.State), since: postgres.Optional(e.StateSince), format: int16(e.PayloadFormat),
		ordered: int16(e.Ordering.By),
		timeout: int64(e.Timeout), auto: e.AutoTimeout, own: tenants.PolicyColumn(e.RetryPolicy),
		breaker: breakerRow(e.CircuitBreaker), disable: DisableRow(e.AutoDisable), headers: headers, auth: auth,
	}
	if r.auto {
		r.timeout = autoTimeoutNS
	}
	if text := e.Filter.Text(); text != "" {
		r.filter = &text
	}
	if e.Internal { // the rest is among the credentials
		r.e.URL = webhook.Origin(e.URL)
	}
	r.e.SuccessStatuses = append([]int{}, e.SuccessStatuses...) // not null
	r.e.EventTypes, r.e.Metadata = postgres.NonNilSlice(e.EventTypes), postgres.NonNilMap(e.Metadata)
	return r
}

func collectEndpoint(rows pgx.Rows) (endpointRow, error) {
	r, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (endpointRow, error) { return scanEndpoint(row) })
	if postgres.IsNoRows(err) {
		return r, webhook.NotFound("endpoint")
	}
	return r, err
}

// scanEndpoint scans endpointSelect, and the columns after it into further.
func scanEndpoint(row pgx.CollectableRow, further ...any) (endpointRow, error) {
	var r endpointRow
	if err := row.Scan(append(r.scanned(), further...)...); err != nil {
		return endpointRow{}, fmt.Errorf("read row of endpoints: %w", err)
	}
	return r, nil
}

// openEndpoint returns the endpoint with its headers and credentials. It may call a key management service, so
// callers should not hold a database connection meanwhile.
func (s Reader) openEndpoint(ctx context.Context, r *endpointRow) (webhook.Endpoint, error) {
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
	c.SuccessStatuses = slices.Clone(e.SuccessStatuses)
	c.Headers, c.Metadata = maps.Clone(e.Headers), maps.Clone(e.Metadata)
	c.Auth = e.Auth.Clone()
	c.RetryPolicy, c.Inherited.Policy = e.RetryPolicy.Clone(), e.Inherited.Policy.Clone()
	return c
}
