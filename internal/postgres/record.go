package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// recording is one step on its way into the record, with what its flush found out.
type recording struct {
	step     webhook.Step
	standing webhook.Standing // result
}

// Record writes one step of a delivery: its new state, the attempt that led to
// it, and, as the first record of its run, the end of its outbox row; all in one
// transaction.
//
// The record only moves forward: a step that is not after the record, or that
// would leave a final state, changes nothing but still keeps its attempt. The
// standing that is returned is the record's, whichever way it went: who is told
// "delivered" when writing "cancelled" adopts it.
func (s *Store) Record(ctx context.Context, step webhook.Step) (webhook.Standing, error) {
	r := &recording{step: step}
	if err := s.records.do(ctx, r); err != nil {
		return webhook.Standing{}, err
	}
	return r.standing, nil
}

// flushRecords writes the steps of many deliveries in one transaction.
func (s *Store) flushRecords(ctx context.Context, items []*recording) error {
	// The highest step of each delivery is written, in the order of the keys:
	// flushes that lock rows in different orders would deadlock.
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b *recording) int {
		return cmp.Or(bytes.Compare(a.step.DeliveryID[:], b.step.DeliveryID[:]),
			cmp.Compare(b.step.Run, a.step.Run), cmp.Compare(b.step.Seq, a.step.Seq))
	})
	highest := slices.CompactFunc(slices.Clone(sorted), func(a, b *recording) bool { return a.step.DeliveryID == b.step.DeliveryID })

	var (
		steps    stepColumns
		attempts attemptColumns
		begun    begunColumns
	)
	for _, r := range highest {
		steps.add(&r.step)
		begun.add(r.step.DeliveryID, r.step.Run)
	}
	for _, r := range sorted {
		if r.step.Attempt != nil {
			attempts.add(r.step.DeliveryID, r.step.Attempt)
		}
	}
	batch := &pgx.Batch{}
	standings := make(map[webhook.DeliveryID]webhook.Standing, len(highest))
	batch.Queue(upsertStep, steps.args()...).Query(func(rows pgx.Rows) error { return readStandings(rows, standings) })
	attempts.queue(batch)
	begun.queue(batch)
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if err := s.readRefused(ctx, highest, standings); err != nil {
		return err
	}
	for _, r := range items {
		r.standing = standings[r.step.DeliveryID]
	}
	return nil
}

// readRefused reads the standing of the deliveries whose step was not applied.
func (s *Store) readRefused(ctx context.Context, items []*recording, standings map[webhook.DeliveryID]webhook.Standing) error {
	var refused [][16]byte
	for _, r := range items {
		if _, applied := standings[r.step.DeliveryID]; !applied {
			refused = append(refused, r.step.DeliveryID)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	rows, err := s.pool.Query(ctx, `select `+standingColumns+` from deliveries d where id = any($1)`, refused)
	if err != nil {
		return err
	}
	return readStandings(rows, standings)
}

// standingColumns is what readStandings scans, of the table d.
const standingColumns = `d.id, d.run, d.seq, d.state, d.reason, d.attempts, d.run_attempts, d.ambiguous, d.delay_ns, d.due_at, d.give_up_at,
	d.command, d.command_id, d.command_reason, d.command_at`

func readStandings(rows pgx.Rows, into map[webhook.DeliveryID]webhook.Standing) error {
	var (
		id             [16]byte
		st             webhook.Standing
		delay          int64
		state, command int16
		due, at        *time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{
		&id, &st.Run, &st.Seq, &state, &st.Reason, &st.Attempts, &st.RunAttempts, &st.Ambiguous, &delay, &due, &st.GiveUpAt,
		&command, &st.Command.ID, &st.Command.Reason, &at,
	}, func() error {
		st.State, st.Delay = webhook.State(state), time.Duration(delay) //nolint:gosec // written by us from a State
		st.DueAt, st.GiveUpAt = orZero(due), st.GiveUpAt.UTC()
		st.Command.Command, st.Command.At = webhook.Command(command), orZero(at) //nolint:gosec // written by us from a Command
		into[id] = st
		return nil
	})
	return err
}

// upsertStep is rule R6 in SQL: forward only, and never out of a final state
// within a run; a dead letter only becomes discarded.
const upsertStep = `
	insert into deliveries as d (id, event_id, endpoint_id, tenant_id, event_type, created_at,
		run, seq, state, reason, attempts, run_attempts, ambiguous, delay_ns, due_at, give_up_at, completed_at, last_error, workflow_id,
		last_decision, last_reason, last_status, last_latency_us, last_at, last_retry_after_ns, command_id)
	select id, event, endpoint, tenant, type, created,
		run, seq, state, reason, attempts, run_attempts, ambiguous, delay, due, give_up, completed, last_error, workflow,
		l_decision, l_reason, l_status, l_latency, l_at, l_retry_after, command_done -- compared below, never stored over another
	from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[],
		$7::int[], $8::int[], $9::smallint[], $10::text[], $11::int[], $12::int[], $13::int[], $14::bigint[], $15::timestamptz[], $16::timestamptz[],
		$17::timestamptz[], $18::text[], $19::text[],
		$20::smallint[], $21::text[], $22::int[], $23::bigint[], $24::timestamptz[], $25::bigint[], $26::bigint[])
	u (id, event, endpoint, tenant, type, created, run, seq, state, reason, attempts, run_attempts, ambiguous, delay, due, give_up,
		completed, last_error, workflow, l_decision, l_reason, l_status, l_latency, l_at, l_retry_after, command_done)
	on conflict (id) do update set
		run = excluded.run, seq = excluded.seq, state = excluded.state, reason = excluded.reason,
		attempts = excluded.attempts, run_attempts = excluded.run_attempts, ambiguous = excluded.ambiguous, delay_ns = excluded.delay_ns,
		due_at = excluded.due_at, give_up_at = excluded.give_up_at, completed_at = excluded.completed_at,
		last_error = excluded.last_error, workflow_id = excluded.workflow_id,
		last_decision = coalesce(excluded.last_decision, d.last_decision), last_reason = coalesce(excluded.last_reason, d.last_reason),
		last_status = coalesce(excluded.last_status, d.last_status), last_latency_us = coalesce(excluded.last_latency_us, d.last_latency_us),
		last_at = coalesce(excluded.last_at, d.last_at), last_retry_after_ns = coalesce(excluded.last_retry_after_ns, d.last_retry_after_ns),
		-- A step beside a request under way (a fault noted) leaves the right to send where it is.
		owner = case when excluded.last_decision is null and excluded.state < 3 then d.owner end,
		owner_until = case when excluded.last_decision is null and excluded.state < 3 then d.owner_until end,
		command = case when excluded.state > 2 or d.command_id <= excluded.command_id then 0 else d.command end
	where (excluded.run, excluded.seq) > (d.run, d.seq)
	  and (excluded.run > d.run or d.state not in (3, 5, 6) and (d.state <> 4 or excluded.state = 6))
	returning ` + standingColumns

type stepColumns struct {
	ids, events, endpoints                         [][16]byte
	tenants, types, reasons, lastErrors, workflows []string
	created, giveUp                                []time.Time
	due, completed, lastAt                         []*time.Time
	runs, seqs, attempts, runAttempts, ambiguous   []int
	states                                         []int16
	delays, commandsDone                           []int64
	lastDecisions                                  []*int16
	lastReasons                                    []*string
	lastStatuses                                   []*int
	lastLatencies, lastRetryAfters                 []*int64
}

func (c *stepColumns) add(s *webhook.Step) {
	c.ids = append(c.ids, s.DeliveryID)
	c.events = append(c.events, s.EventID)
	c.endpoints = append(c.endpoints, s.EndpointID)
	c.tenants = append(c.tenants, s.TenantID)
	c.types = append(c.types, s.EventType)
	c.created = append(c.created, s.EventID.Time())
	c.runs = append(c.runs, s.Run)
	c.seqs = append(c.seqs, s.Seq)
	c.states = append(c.states, int16(s.State))
	c.reasons = append(c.reasons, s.Reason)
	c.attempts = append(c.attempts, s.Attempts)
	c.runAttempts = append(c.runAttempts, s.RunAttempts)
	c.ambiguous = append(c.ambiguous, s.Ambiguous)
	c.delays = append(c.delays, int64(s.Delay))
	c.due = append(c.due, optional(s.DueAt))
	c.giveUp = append(c.giveUp, s.GiveUpAt)
	c.completed = append(c.completed, completedAt(s))
	c.lastErrors = append(c.lastErrors, s.LastError)
	c.workflows = append(c.workflows, s.WorkflowID)
	c.commandsDone = append(c.commandsDone, s.CommandDone)
	if s.Attempt == nil {
		c.lastDecisions = append(c.lastDecisions, nil)
		c.lastReasons = append(c.lastReasons, nil)
		c.lastStatuses = append(c.lastStatuses, nil)
		c.lastLatencies = append(c.lastLatencies, nil)
		c.lastAt = append(c.lastAt, nil)
		c.lastRetryAfters = append(c.lastRetryAfters, nil)
		return
	}
	a := s.Attempt
	c.lastDecisions = append(c.lastDecisions, new(int16(a.Outcome.Decision)))
	c.lastReasons = append(c.lastReasons, new(string(a.Outcome.Reason)))
	c.lastStatuses = append(c.lastStatuses, new(a.Outcome.Status))
	c.lastLatencies = append(c.lastLatencies, new(a.Latency.Microseconds()))
	c.lastAt = append(c.lastAt, new(a.StartedAt.Add(a.Latency)))
	c.lastRetryAfters = append(c.lastRetryAfters, new(int64(a.Outcome.RetryAfter)))
}

// completedAt is when the delivery came to rest: with the attempt's end, or now.
func completedAt(s *webhook.Step) *time.Time {
	if s.State.Open() {
		return nil
	}
	if s.Attempt != nil {
		return new(s.Attempt.StartedAt.Add(s.Attempt.Latency))
	}
	return new(time.Now())
}

func (c *stepColumns) args() []any {
	return []any{
		c.ids, c.events, c.endpoints, c.tenants, c.types, c.created,
		c.runs, c.seqs, c.states, c.reasons, c.attempts, c.runAttempts, c.ambiguous, c.delays, c.due, c.giveUp,
		c.completed, c.lastErrors, c.workflows,
		c.lastDecisions, c.lastReasons, c.lastStatuses, c.lastLatencies, c.lastAt, c.lastRetryAfters, c.commandsDone,
	}
}

type attemptColumns struct {
	deliveries                                    [][16]byte
	runs, numbers, statuses                       []int
	started                                       []time.Time
	latencies, retryAfters, delays, nominals      []int64
	decisions                                     []int16
	reasons, errs, sources                        []string
	truncated                                     []bool
	requestHeaders, responseHeaders, responseBody [][]byte
}

func (c *attemptColumns) add(id webhook.DeliveryID, a *webhook.Attempt) {
	c.deliveries = append(c.deliveries, id)
	c.runs = append(c.runs, a.Run)
	c.numbers = append(c.numbers, a.Number)
	c.started = append(c.started, a.StartedAt)
	c.latencies = append(c.latencies, a.Latency.Microseconds())
	c.decisions = append(c.decisions, int16(a.Outcome.Decision))
	c.reasons = append(c.reasons, string(a.Outcome.Reason))
	c.statuses = append(c.statuses, a.Outcome.Status)
	c.retryAfters = append(c.retryAfters, int64(a.Outcome.RetryAfter))
	c.errs = append(c.errs, a.Error)
	c.delays = append(c.delays, int64(a.Delay))
	c.sources = append(c.sources, a.DelaySource)
	c.nominals = append(c.nominals, int64(a.Nominal))
	c.truncated = append(c.truncated, a.Truncated)
	c.requestHeaders = append(c.requestHeaders, jsonBytes(a.RequestHeaders))
	c.responseHeaders = append(c.responseHeaders, jsonBytes(a.ResponseHeaders))
	c.responseBody = append(c.responseBody, nonNil(a.ResponseBody))
}

func (c *attemptColumns) queue(b *pgx.Batch) {
	if len(c.deliveries) == 0 {
		return
	}
	b.Queue(`
		insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error,
			delay_ns, delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
		select * from unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::bigint[], $6::smallint[], $7::text[], $8::int[], $9::bigint[],
			$10::text[], $11::bigint[], $12::text[], $13::bigint[], $14::boolean[], $15::bytea[], $16::bytea[], $17::bytea[])
		on conflict (delivery_id, run, number) do nothing`,
		c.deliveries, c.runs, c.numbers, c.started, c.latencies, c.decisions, c.reasons, c.statuses, c.retryAfters, c.errs,
		c.delays, c.sources, c.nominals, c.truncated, c.requestHeaders, c.responseHeaders, c.responseBody)
}

// begunColumns are the runs whose first record is being written: their outbox
// rows go with it.
type begunColumns struct {
	ids  [][16]byte
	runs []int
}

func (c *begunColumns) add(id webhook.DeliveryID, run int) {
	c.ids = append(c.ids, id)
	c.runs = append(c.runs, run)
}

func (c *begunColumns) queue(b *pgx.Batch) {
	b.Queue(`delete from outbox o using unnest($1::uuid[], $2::int[]) u (id, run) where o.delivery_id = u.id and o.run <= u.run`, c.ids, c.runs)
}

func jsonBytes(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // maps of strings always marshal
		return []byte("{}")
	}
	return text
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
