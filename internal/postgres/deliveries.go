package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Deliveries records what becomes of deliveries: claims, steps with their attempts, and commands.
type Deliveries struct {
	*core

	endpoints endpointReader
	records   *groupcommit.Writer[*recording]
	claims    *groupcommit.Writer[*claiming]
	leftOpen  chan struct{} // asks Retention.Maintain to look for what a deleted endpoint left open
}

// Weights of the items in one flush.
const (
	recordWeight = 200
	claimWeight  = 200
)

func newDeliveries(s *core, endpoints endpointReader) *Deliveries {
	deliveries := &Deliveries{core: s, endpoints: endpoints, leftOpen: make(chan struct{}, 1)}
	deliveries.records = newWriter("record delivery", recordWeight, deliveries.flushRecords)
	deliveries.claims = newWriter("claim attempt", claimWeight, deliveries.flushClaims)
	return deliveries
}

func (s *Deliveries) close() {
	s.claims.Stop()
	s.records.Stop()
}

// deliveryColumns is what deliveryScan scans, of the table d.
const deliveryColumns = `d.id, d.event_id, d.endpoint_id, d.tenant_id, d.event_type,
	d.run, d.seq, d.state, d.reason, d.attempts, d.run_attempts, d.ambiguous, d.delay_ns, d.due_at, d.give_up_at, d.completed_at, d.last_error, d.workflow_id,
	d.last_decision, d.last_reason, d.last_status, d.last_latency_us, d.last_at, d.last_retry_after_ns`

// outboxAsDelivery spells the same columns for a delivery without a record: it is
// pending, and all that is known of it stands in the outbox.
const outboxAsDelivery = `o.delivery_id, o.event_id, o.endpoint_id, o.tenant_id, o.event_type,
	o.run, 0, 0::smallint, '', 0, 0, 0, 0::bigint, o.not_before, o.give_up_at, null::timestamptz, '', '',
	null::smallint, null::text, null::integer, null::bigint, null::timestamptz, null::bigint`

type deliveryScan struct {
	d                         webhook.Delivery
	id, event, endpoint       [16]byte
	state                     int16
	delay                     int64
	due, completed, lastAt    *time.Time
	lastDecision              *int16
	lastReason                *string
	lastStatus                *int32
	lastLatency, lastRetryFor *int64
}

func (s *deliveryScan) targets() []any {
	return []any{
		&s.id, &s.event, &s.endpoint, &s.d.TenantID, &s.d.EventType,
		&s.d.Run, &s.d.Seq, &s.state, &s.d.Reason, &s.d.Attempts, &s.d.RunAttempts, &s.d.Ambiguous, &s.delay, &s.due, &s.d.GiveUpAt, &s.completed,
		&s.d.LastError, &s.d.WorkflowID,
		&s.lastDecision, &s.lastReason, &s.lastStatus, &s.lastLatency, &s.lastAt, &s.lastRetryFor,
	}
}

func (s *deliveryScan) delivery() webhook.Delivery {
	d := s.d
	d.DeliveryID, d.EventID, d.EndpointID = s.id, s.event, s.endpoint
	d.State = webhook.State(s.state) //nolint:gosec // written by us from a State
	d.Delay = time.Duration(s.delay)
	d.CreatedAt, d.GiveUpAt = d.EventID.Time(), d.GiveUpAt.UTC() // the same from the outbox to the record
	d.DueAt, d.CompletedAt = orZero(s.due), orZero(s.completed)
	if d.WorkflowID == "" && d.State != webhook.StateHeld { // held without a workflow
		d.WorkflowID = d.Ref.WorkflowID()
	}
	if s.lastDecision != nil {
		d.LastOutcome = &webhook.LastOutcome{
			Decision: retry.Decision(*s.lastDecision), //nolint:gosec // written by us from a Decision
			Reason:   *s.lastReason, Status: int(*s.lastStatus),
			Latency: time.Duration(*s.lastLatency) * time.Microsecond, At: orZero(s.lastAt), RetryAfter: time.Duration(*s.lastRetryFor),
		}
	}
	return d
}

func scanDelivery(row pgx.CollectableRow) (webhook.Delivery, error) {
	scan := deliveryScan{}
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

// deliveries reads some deliveries of a tenant, in no order; what does not exist is left out.
func (s *Deliveries) deliveries(ctx context.Context, tenantID string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	// One statement, so one snapshot: a delivery that moves from the outbox to its
	// record meanwhile is seen exactly once.
	return queryAll(ctx, s.ofTenant(tenantID), "read deliveries", scanDelivery, `
		select `+deliveryColumns+` from deliveries d where d.id = any($1) and d.tenant_id = $2
		union all
		select `+outboxAsDelivery+` from outbox o where o.delivery_id = any($1) and o.tenant_id = $2
			and not exists (select from deliveries d where d.id = o.delivery_id)`, raw, tenantID)
}

// ListDeliveries reads a page of a tenant's deliveries, newest first.
//
// There is no index for each filter: it would be paid for by every delivery. Dead
// letters and one event's deliveries are found directly; what else is rare in a long
// record is looked for row by row, from the newest on, until the page is full or the
// statement's time is over (CodeUnavailable): Since bounds that. CodeRateLimited: the
// tenant has too many lists under way.
func (s *Deliveries) ListDeliveries(ctx context.Context, tenantID string, f webhook.DeliveryFilter, p webhook.Page) ([]webhook.Delivery, error) {
	by := scarce{since: f.Since}
	by.add("state", len(f.States) > 0 && !slices.Equal(f.States, []webhook.State{webhook.StateDeadLettered}))
	by.add("endpoint_id", !f.EndpointID.IsZero())
	by.add("event_type", f.EventType != "")
	by.add("reason", f.Reason != "")
	by.add("status", f.Status != 0)
	sql, args := listDeliveries(tenantID, f, p)
	return readList(ctx, s.core, s.ofTenant(tenantID), "list deliveries", by, scanDelivery, sql, args...)
}

// ofEvent reads all deliveries of an event, which takes no turn: their ids say
// where they are.
func (s *Deliveries) ofEvent(ctx context.Context, tenantID string, id webhook.EventID) ([]webhook.Delivery, error) {
	sql, args := listDeliveries(tenantID, webhook.DeliveryFilter{EventID: id}, webhook.Page{Limit: math.MaxInt32})
	return queryAll(ctx, s.ofTenant(tenantID), "read the deliveries of an event", scanDelivery, sql, args...)
}

func listDeliveries(tenantID string, f webhook.DeliveryFilter, p webhook.Page) (sql string, args []any) {
	q := filterQuery{args: []any{tenantID}}
	recorded := q.deliveries("d.id", "d", f, p)
	pending := ""
	if f.Reason == "" && f.Status == 0 && wantsPending(f.States) {
		f.States = nil
		pending = ` union all select ` + outboxAsDelivery + ` from outbox o where o.tenant_id = $1` + q.deliveries("o.delivery_id", "o", f, p) +
			` and not exists (select from deliveries d where d.id = o.delivery_id)`
	}
	sql = `select * from (
		(select ` + deliveryColumns + ` from deliveries d where d.tenant_id = $1` + recorded + ` order by d.id desc limit ` + q.arg(p.Limit) + `)` +
		pending + `) x order by 1 desc limit ` + q.arg(p.Limit)
	return sql, q.args
}

func wantsPending(states []webhook.State) bool {
	return len(states) == 0 || slices.Contains(states, webhook.StatePending)
}

// filterQuery collects the conditions of a list and their arguments.
type filterQuery struct {
	args []any
}

// arg adds an argument and returns its place holder.
func (q *filterQuery) arg(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}

// deliveries is the conditions of a filter on the table or alias t, whose
// delivery id is the column id. Times are turned into bounds on the id, so that
// only the days in question are looked at.
func (q *filterQuery) deliveries(id, t string, f webhook.DeliveryFilter, p webhook.Page) string {
	var b strings.Builder
	if len(f.States) > 0 {
		states := make([]int16, len(f.States))
		for i, st := range f.States {
			states[i] = int16(st)
		}
		b.WriteString(" and " + t + ".state = any(" + q.arg(states) + ")")
	}
	if !f.EndpointID.IsZero() {
		b.WriteString(" and " + t + ".endpoint_id = " + q.arg(f.EndpointID))
	}
	if !f.EventID.IsZero() {
		// A delivery's id carries its event's millisecond: a look at one of them, not at all.
		at := f.EventID.Time()
		b.WriteString(" and " + t + ".event_id = " + q.arg(f.EventID) +
			" and " + id + " >= " + q.arg([16]byte(idsFrom(at))) + " and " + id + " < " + q.arg([16]byte(idsFrom(at.Add(time.Millisecond)))))
	}
	if f.EventType != "" {
		b.WriteString(" and " + q.typePasses(t+".event_type", f.EventType))
	}
	if f.Reason != "" {
		b.WriteString(" and " + t + ".reason = " + q.arg(f.Reason))
	}
	if f.Status != 0 {
		b.WriteString(" and " + t + ".last_status = " + q.arg(f.Status))
	}
	q.window(&b, id, t+".created_at", f.Since, f.Until, p)
	return b.String()
}

// window bounds a list by time and by the page before.
func (q *filterQuery) window(b *strings.Builder, id, created string, since, until time.Time, p webhook.Page) {
	if !since.IsZero() {
		b.WriteString(" and " + id + " >= " + q.arg([16]byte(idsFrom(since))) + " and " + created + " >= " + q.arg(since))
	}
	if !until.IsZero() {
		b.WriteString(" and " + id + " < " + q.arg([16]byte(idsFrom(until.Add(time.Millisecond)))) + " and " + created + " < " + q.arg(until))
	}
	if p.After != [16]byte{} {
		b.WriteString(" and " + id + " < " + q.arg(p.After))
	}
}
