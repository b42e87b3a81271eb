package deliveries

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// recording is a step in the group commit, with the result of its flush.
type recording struct {
	Step   webhook.Step
	Status webhook.DeliveryStatus // result

	applied bool // see webhook.DeliveryStatus
	unknown bool // the delivery is not stored
}

func (r *recording) Tenant() string { return r.Step.TenantID }

// needs is what the step writes. A hold notes itself in the endpoint's release (queueHolds).
func (r *recording) needs() lockable {
	if r.Step.State != webhook.StateHeld {
		return lockable{delivery: r.Step.DeliveryID}
	}
	return lockable{delivery: r.Step.DeliveryID, release: r.Step.EndpointID}
}

// storedRef is what a row says of a delivery beside its event and its endpoint, which follow from its id.
type storedRef struct {
	id                webhook.DeliveryID
	tenant, eventType string
}

func storedRefOf(r *webhook.Ref) storedRef { return storedRef{r.DeliveryID, r.TenantID, r.EventType} }

// RecordStep writes one step of a delivery in one transaction: its new state, and the attempt that led
// to it. It deletes the delivery's outbox row, unless step.KeepOutbox is set.
//
// The stored state only moves forward: a step that is not after the stored one, or that would leave a
// final state, does not change it. Its attempt is stored all the same. RecordStep returns the stored
// status in either case, and the caller goes on from that: it may write "cancelled" and get "delivered".
//
// An end (cancelled, dead-lettered, discarded) or a hold without an attempt is refused while another process
// than step.Claimant has claimed the delivery: its request may just be succeeding, and the outcome needs the
// workflow that a hold ends. The status's ClaimedUntil then says when to try again.
//
// CodeNotFound: the delivery has neither a row nor an outbox row that names the step's tenant and type of event, and
// nothing is written. That is not looked for if the step is of a known delivery.
func (s *Deliveries) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	r := &recording{Step: step}
	if err := s.records.Do(ctx, r); err != nil {
		return webhook.DeliveryStatus{}, err
	}
	if r.unknown {
		return webhook.DeliveryStatus{}, webhook.NotFound("delivery")
	}
	return r.Status, nil
}

// flushRecords writes the steps of many deliveries in one transaction.
func (s *Deliveries) flushRecords(ctx context.Context, items []*recording) error {
	// Only the highest step of each delivery is written, and in the order of the keys: flushes that
	// lock rows in different orders would deadlock.
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b *recording) int {
		return cmp.Or(bytes.Compare(a.Step.DeliveryID[:], b.Step.DeliveryID[:]),
			cmp.Compare(a.Step.TenantID, b.Step.TenantID), cmp.Compare(a.Step.EventType, b.Step.EventType),
			cmp.Compare(b.Step.Run, a.Step.Run), cmp.Compare(b.Step.Seq, a.Step.Seq),
			cmp.Compare(withAttempt(b), withAttempt(a))) // a step with an attempt first
	})
	highest := slices.CompactFunc(slices.Clone(sorted), func(a, b *recording) bool { return a.Step.Ref == b.Step.Ref })

	attempts := make(attemptBatch, 0, len(sorted))
	for _, r := range sorted {
		if r.Step.Attempt != nil {
			attempts = append(attempts, attemptRow{r.Step.Attempt, r.Step.DeliveryID})
		}
	}
	batch := &pgx.Batch{}
	statuses := make(map[storedRef]webhook.DeliveryStatus, len(highest))
	queueSteps(s.core.Now(), batch, highest, statuses)
	queueOverrides(batch, highest)
	attempts.queue(batch)
	queueHolds(batch, highest)
	failpoint.Hit("record-before")
	if err := s.core.StepPool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	failpoint.Hit("record-after")
	for _, r := range highest {
		if _, applied := statuses[storedRefOf(&r.Step.Ref)]; applied {
			r.applied = true // stays so if what follows fails and the flush is repeated
		}
	}
	owned, err := s.readRefused(ctx, highest, lateAttempts(sorted, statuses), statuses)
	if err != nil {
		return err
	}
	for _, r := range items {
		status, found := statuses[storedRefOf(&r.Step.Ref)]
		if r.Status, r.unknown = status, !found; r.unknown {
			continue
		}
		r.Status.Applied = r.applied
		if waitsForClaim(&r.Step) && r.Status.State.Open() && r.Step.After(r.Status.Progress) {
			r.Status.ClaimedUntil = owned[r.Step.DeliveryID]
			if r.Status.ClaimedUntil.IsZero() { // ended since: try again at once
				r.Status.ClaimedUntil = s.core.Now()
			}
		}
	}
	return nil
}

// queueSteps writes steps. Those of known deliveries, which are nearly all, have a statement of their own: it reads nothing to find
// out whether a delivery exists.
func queueSteps(now time.Time, batch *pgx.Batch, all []*recording, statuses map[storedRef]webhook.DeliveryStatus) {
	for _, known := range []bool{true, false} {
		var steps []stepRow
		kept := make([][16]byte, 0, len(all))
		for _, r := range all {
			if r.Step.Known != known {
				continue
			}
			steps = append(steps, stepRow{&r.Step, now})
			if r.Step.KeepOutbox {
				kept = append(kept, r.Step.DeliveryID)
			}
		}
		statement := upsertKnown
		if !known {
			statement = upsertStored
		}
		if len(steps) > 0 {
			batch.Queue(statement, append(stepRows.Args(steps), kept)...).Query(func(rows pgx.Rows) error { return readStatuses(rows, statuses) })
		}
	}
}

func withAttempt(r *recording) int {
	if r.Step.Attempt != nil {
		return 1
	}
	return 0
}

// waitsForClaim reports an end or a hold without an attempt, or one that gives a claim back. It must not overtake a request that another
// process has under way.
func waitsForClaim(s *webhook.Step) bool {
	return s.Attempt == nil && (s.Unsent || s.State == webhook.StateHeld || s.State > webhook.StateDelivered)
}

// lateAttempts are the steps with an attempt that were not applied: of deliveries that have a higher step.
func lateAttempts(all []*recording, statuses map[storedRef]webhook.DeliveryStatus) (late []*webhook.Step) {
	for _, r := range all {
		status, applied := statuses[storedRefOf(&r.Step.Ref)]
		if r.Step.Attempt != nil && (!applied || status.After(r.Step.Progress)) {
			late = append(late, &r.Step)
		}
	}
	return late
}

// readRefused reads the status of the deliveries whose step was not applied, and when the claims on
// them end. A late attempt counts even if its delivery has come to its end without it.
func (s *Deliveries) readRefused(ctx context.Context, items []*recording, late []*webhook.Step, statuses map[storedRef]webhook.DeliveryStatus,
) (owned map[webhook.DeliveryID]time.Time, err error) {
	var refused [][16]byte
	owned = map[webhook.DeliveryID]time.Time{}
	for _, r := range items {
		if _, applied := statuses[storedRefOf(&r.Step.Ref)]; !applied {
			refused = append(refused, r.Step.DeliveryID)
		}
	}
	if len(refused)+len(late) == 0 {
		return owned, nil
	}
	batch := &pgx.Batch{}
	batch.Queue(`select `+statusColumns+` from deliveries d where id = any($1)`, refused).
		Query(func(rows pgx.Rows) error { return readStatuses(rows, statuses) })
	batch.Queue(selectClaimed, refused).Query(func(rows pgx.Rows) error { return readClaimed(rows, owned) })
	// After the status was read, which says whether the attempt was counted before.
	for _, step := range late {
		last := webhook.LastOutcomeOf(step.Attempt)
		batch.Queue(`update deliveries set attempts = $3, run_attempts = greatest(run_attempts, $4), last_decision = $5, last_reason = $6,
				last_status = $7, last_latency_us = $8, last_at = $9, last_retry_after_ns = $10
			where id = $1 and run = $2 and not state `+postgres.IsOpen+` and attempts < $3`,
			step.DeliveryID, step.Run, step.Attempts, step.RunAttempts, int16(last.Decision), last.Reason,
			last.Status, last.Latency.Microseconds(), last.At, int64(last.RetryAfter))
	}
	return owned, s.core.StepPool.SendBatch(ctx, batch).Close()
}

// statusColumns is what readStatuses scans, of the table d.
const statusColumns = `d.id, d.run, d.seq, d.state, d.reason, d.attempts, d.run_attempts, d.ambiguous, d.delay_ns, d.due_at, d.give_up_at,
	d.held_at, d.held_for_ns, d.held_until, d.workflow_id, d.command, d.command_id, d.command_reason, d.command_at, d.tenant_id, d.event_type`

// takeOver is the delivery's workflow after a statement that names one. Within a run, only the
// delivery's own workflow replaces another one, and the one that keeps the dead letters of a shared one that. A hold clears it.
const takeOver = `case when excluded.run > d.run or d.workflow_id = '' or excluded.workflow_id = ''
	or starts_with(excluded.workflow_id, '` + webhook.OwnWorkflowPrefix + `')
	or starts_with(excluded.workflow_id, '` + webhook.DeadLettersPrefix + `' || d.workflow_id || '/')
	then excluded.workflow_id else d.workflow_id end`

func readStatuses(rows pgx.Rows, into map[storedRef]webhook.DeliveryStatus) error {
	var (
		id             [16]byte
		ref            storedRef
		st             webhook.DeliveryStatus
		delay          int64
		heldFor        *time.Duration
		state, command int16
		due, at        *time.Time
		held, until    *time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{
		&id, &st.Run, &st.Seq, &state, &st.Reason, &st.Attempts, &st.RunAttempts, &st.Ambiguous, &delay, &due, &st.GiveUpAt,
		&held, &heldFor, &until, &st.WorkflowID, &command, &st.Command.ID, &st.Command.Reason, &at, &ref.tenant, &ref.eventType,
	}, func() error {
		st.State, st.Delay = webhook.State(state), time.Duration(delay) //nolint:gosec // written by us from a State
		st.DueAt, st.GiveUpAt = postgres.OrZero(due), st.GiveUpAt.UTC()
		st.HeldAt, st.HeldFor, st.HeldUntil = postgres.OrZero(held), orNone(heldFor), postgres.OrZero(until)
		st.Command.Command, st.Command.At = webhook.Command(command), postgres.OrZero(at) //nolint:gosec // written by us from a Command
		ref.id = id
		into[ref] = st
		return nil
	})
	return err
}

// DeliveryStatus is the stored status of a delivery; CodeNotFound before its first step, and if the delivery is not
// the one that ref says.
func (s *Deliveries) DeliveryStatus(ctx context.Context, ref webhook.Ref) (webhook.DeliveryStatus, error) {
	found, err := statuses(ctx, s.core, `d.id = $1`, ref.DeliveryID)
	if err != nil {
		return webhook.DeliveryStatus{}, err
	}
	status, ok := found[storedRefOf(&ref)]
	if !ok {
		return webhook.DeliveryStatus{}, webhook.NotFound("delivery")
	}
	return status, nil
}

// isStored selects of the rows r those of deliveries that are stored, or wait in the outbox. The queries are scalar: one of a row
// that exists is never made a join, for which PostgreSQL may read a whole table.
const isStored = `coalesce(
	(select true from outbox o where o.delivery_id = r.id and o.tenant_id = r.tenant and o.event_type = r.type),
	(select true from deliveries x where x.id = r.id and x.tenant_id = r.tenant and x.event_type = r.type), false)`

//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	upsertKnown  = upsertStep(stepRows.Query(1))
	upsertStored = upsertStep(`select * from (` + stepRows.Query(1) + `) r where ` + isStored)
)

// upsertStep is rule R6 in SQL: a delivery only moves forward, and never out of a final state within a
// run; a dead letter can only be discarded.
func upsertStep(rows string) string {
	return deletingOutboxRows(`
	insert into deliveries as d (id, event_id, endpoint_id, tenant_id, event_type, created_at,
		run, seq, state, reason, attempts, run_attempts, ambiguous, delay_ns, due_at, give_up_at, held_at, held_for_ns, held_until,
		completed_at, last_error, workflow_id,
		last_decision, last_reason, last_status, last_latency_us, last_at, last_retry_after_ns, command_id, owner, owner_until)
	-- command_id and the claimant are only compared below, not stored.
	`+rows+`
	on conflict (id) do update set
		run = excluded.run, seq = excluded.seq, state = excluded.state, reason = excluded.reason,
		attempts = greatest(d.attempts, excluded.attempts),
		run_attempts = case when excluded.run = d.run then greatest(d.run_attempts, excluded.run_attempts) else excluded.run_attempts end,
		ambiguous = excluded.ambiguous, delay_ns = excluded.delay_ns,
		due_at = excluded.due_at, give_up_at = excluded.give_up_at,
		held_at = excluded.held_at, held_for_ns = excluded.held_for_ns, held_until = excluded.held_until, completed_at = excluded.completed_at,
		last_error = excluded.last_error, workflow_id = `+takeOver+`,
		last_decision = coalesce(excluded.last_decision, d.last_decision), last_reason = coalesce(excluded.last_reason, d.last_reason),
		last_status = coalesce(excluded.last_status, d.last_status), last_latency_us = coalesce(excluded.last_latency_us, d.last_latency_us),
		last_at = coalesce(excluded.last_at, d.last_at), last_retry_after_ns = coalesce(excluded.last_retry_after_ns, d.last_retry_after_ns),
		-- A step without an attempt that names no claimant, such as a fault, keeps the claim.
		owner = case when excluded.last_decision is null and excluded.owner is null and excluded.state < `+postgres.Held+` then d.owner end,
		owner_until = case when excluded.last_decision is null and excluded.owner is null and excluded.state < `+postgres.Held+` then d.owner_until end,
		command = case when excluded.state >= `+postgres.Delivered+` or d.command_id <= excluded.command_id then 0 else d.command end
	where (excluded.run, excluded.seq) > (d.run, d.seq)
	  and (excluded.run > d.run or d.state not `+postgres.IsFinished+` and (d.state <> `+postgres.DeadLettered+` or excluded.state = `+postgres.Discarded+`))
	  -- Only an end, a hold, and a step that gives a claim back name a claimant, without an attempt. They wait for a request under way elsewhere.
	  and (excluded.owner is null or d.owner is null or d.owner = excluded.owner or d.owner_until < now())`, stepRows)
}
