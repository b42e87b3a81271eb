// Package deliveries stores deliveries, their attempts and the outbox: everything that moves a delivery
// from one state to the next, and what has to be brought to Temporal.
package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Deliveries reads and writes deliveries: claims, steps with their attempts, and commands.
type Deliveries struct {
	*DeadLetters
	*AttemptLists

	core *postgres.Core

	endpoints   unsealedEndpoints
	records     *groupcommit.Writer[*recording]
	claims      *groupcommit.Writer[*claiming]
	uncancelled chan struct{} // wakes Retention.Maintain: deliveries of a deleted endpoint are still open
}

// unsealedEndpoints reads endpoints without what is sealed of them.
type unsealedEndpoints interface {
	Unsealed(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error)
}

// Weights of the items in one flush.
const (
	recordWeight = 200
	claimWeight  = 200
)

// New returns a Deliveries. Call Close when it is not used any more.
func New(s *postgres.Core, endpoints unsealedEndpoints) *Deliveries {
	deliveries := &Deliveries{
		DeadLetters: &DeadLetters{s}, AttemptLists: &AttemptLists{s}, core: s, endpoints: endpoints, uncancelled: make(chan struct{}, 1),
	}
	deliveries.records = postgres.NewRowWriter("record delivery", recordWeight, deliveries.flushRecords,
		apartOf(s, (*recording).needs), s.ObserverOf("steps"))
	deliveries.claims = postgres.NewRowWriter("claim attempt", claimWeight, deliveries.flushClaims,
		apartOf(s, func(c *claiming) lockable { return lockable{delivery: c.Claim.DeliveryID} }), s.ObserverOf("claims"))
	return deliveries
}

// Close waits for the writes that were handed in, and ends the group commits.
func (s *Deliveries) Close() {
	s.claims.Stop()
	s.records.Stop()
}

// Columns is what Scanner scans, of the table d.
const Columns = `d.id, d.event_id, d.endpoint_id, d.tenant_id, d.event_type,
	d.run, d.seq, d.state, d.reason, d.attempts, d.run_attempts, d.ambiguous, d.delay_ns, d.due_at, d.give_up_at, d.held_at, d.held_for_ns, d.held_until,
	d.completed_at, d.last_error, d.workflow_id,
	d.last_decision, d.last_reason, d.last_status, d.last_latency_us, d.last_at, d.last_retry_after_ns, d.owner_until`

// outboxAsDelivery has the same columns for a delivery that only has an outbox row, o: it is pending.
const outboxAsDelivery = `o.delivery_id, o.event_id, o.endpoint_id, o.tenant_id, o.event_type,
	o.run, 0, 0::smallint, '', 0, 0, 0, 0::bigint, o.not_before, o.give_up_at, null::timestamptz as held_at,
	null::bigint as held_for_ns, null::timestamptz as held_until, null::timestamptz as completed_at, '', '',
	null::smallint, null::text, null::integer, null::bigint, null::timestamptz, null::bigint, null::timestamptz`

// Scanner reads Columns of a row.
type Scanner struct {
	d                         webhook.Delivery
	id, event, endpoint       [16]byte
	state                     int16
	delay                     int64
	heldFor                   *time.Duration
	due, completed, lastAt    *time.Time
	held, heldUntil           *time.Time
	claimedUntil              *time.Time
	lastDecision              *int16
	lastReason                *string
	lastStatus                *int32
	lastLatency, lastRetryFor *int64
}

func (s *Scanner) targets() []any {
	return []any{
		&s.id, &s.event, &s.endpoint, &s.d.TenantID, &s.d.EventType,
		&s.d.Run, &s.d.Seq, &s.state, &s.d.Reason, &s.d.Attempts, &s.d.RunAttempts, &s.d.Ambiguous, &s.delay, &s.due, &s.d.GiveUpAt,
		&s.held, &s.heldFor, &s.heldUntil, &s.completed, &s.d.LastError, &s.d.WorkflowID,
		&s.lastDecision, &s.lastReason, &s.lastStatus, &s.lastLatency, &s.lastAt, &s.lastRetryFor, &s.claimedUntil,
	}
}

func (s *Scanner) delivery() webhook.Delivery {
	d := s.d
	d.DeliveryID, d.EventID, d.EndpointID = s.id, s.event, s.endpoint
	d.State = webhook.State(s.state) //nolint:gosec // written by us from a State
	d.Delay = time.Duration(s.delay)
	d.CreatedAt, d.GiveUpAt = d.EventID.Time(), d.GiveUpAt.UTC() // the same in both tables
	d.HeldAt, d.HeldFor, d.HeldUntil = postgres.OrZero(s.held), orNone(s.heldFor), postgres.OrZero(s.heldUntil)
	d.DueAt, d.CompletedAt, d.ClaimedUntil = postgres.OrZero(s.due), postgres.OrZero(s.completed), postgres.OrZero(s.claimedUntil)
	if d.WorkflowID == "" && d.State != webhook.StateHeld { // held without a workflow
		d.WorkflowID = d.Ref.WorkflowID(d.Run)
	}
	if s.lastDecision != nil {
		d.LastOutcome = &webhook.LastOutcome{
			Decision: retry.Decision(*s.lastDecision), //nolint:gosec // written by us from a Decision
			Reason:   *s.lastReason, Status: int(*s.lastStatus),
			Latency: time.Duration(*s.lastLatency) * time.Microsecond, At: postgres.OrZero(s.lastAt), RetryAfter: time.Duration(*s.lastRetryFor),
		}
	}
	return d
}

// orNone is a stored duration, none for null.
func orNone(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}

// Scan reads a row of Columns.
func Scan(row pgx.CollectableRow) (webhook.Delivery, error) {
	scan := Scanner{}
	err := row.Scan(scan.targets()...)
	return scan.delivery(), err
}

// Delivery reads one delivery of a tenant.
func (s *Deliveries) Delivery(ctx context.Context, tenantID string, id webhook.DeliveryID) (webhook.Delivery, error) {
	found, err := s.deliveries(ctx, tenantID, []webhook.DeliveryID{id})
	if err != nil {
		return webhook.Delivery{}, err
	}
	if len(found) == 0 {
		return webhook.Delivery{}, webhook.NotFound("delivery")
	}
	return found[0], nil
}

// deliveries reads deliveries of a tenant by id, in no order. It leaves out those that do not exist.
func (s *Deliveries) deliveries(ctx context.Context, tenantID string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	// One statement has one snapshot: a delivery whose first row is written meanwhile is found exactly
	// once.
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read deliveries", Scan, `
		select `+Columns+` from deliveries d where d.id = any($1) and d.tenant_id = $2
		union all
		select `+outboxAsDelivery+` from outbox o where o.delivery_id = any($1) and o.tenant_id = $2
			and not exists (select from deliveries d where `+isOf+`)`, RawIDs(ids), tenantID)
}

// OfEvent reads deliveries of an event, newest first, and at most one more than are shown with it. It is not counted as a list, because it reads
// by key.
func (s *Deliveries) OfEvent(ctx context.Context, tenantID string, id webhook.EventID) ([]webhook.Delivery, error) {
	sql, args := listDeliveries(tenantID, webhook.DeliveryFilter{EventID: id}, webhook.Page{Limit: webhook.MaxShownDeliveries + 1}, [16]byte{})
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read the deliveries of an event", Scan, sql, args...)
}

// Ahead counts the deliveries to the endpoint that go before a waiting one: those that are deferred to
// an earlier time, or held and older. At most webhook.MaxAhead are looked at; more says
// that there are others.
func (s *Deliveries) Ahead(ctx context.Context, d webhook.Delivery) (n int, more bool, err error) {
	query, bound := `select count(*), count(*) filter (where reason <> '') from (
		select reason from deliveries
		where endpoint_id = $1 and state < `+postgres.Held+` and state `+postgres.IsOpen+` and due_at < $2 order by due_at limit $3) w`, any(d.DueAt)
	if d.State == webhook.StateHeld {
		query, bound = `select count(*), count(*) from (
			select from deliveries where endpoint_id = $1 and state = `+postgres.Held+` and id < $2
			order by id limit $3) h`, any(d.DeliveryID)
	}
	var looked int
	err = s.core.OfTenant(d.TenantID).WithConn(ctx, "count what goes before a delivery", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, query, d.EndpointID, bound, webhook.MaxAhead+1).Scan(&looked, &n)
	})
	return min(n, webhook.MaxAhead), looked > webhook.MaxAhead, err
}

// LockDeliveries reads and locks the deliveries that meet the condition, in the order of their keys, as
// flushRecords does.
func LockDeliveries(ctx context.Context, tx pgx.Tx, ids [][16]byte, condition string, args ...any) ([]webhook.Delivery, error) {
	rows, err := tx.Query(ctx, `select `+Columns+` from deliveries d where d.id = any($1) and `+condition+` order by d.id for update`,
		append([]any{ids}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, Scan)
}
