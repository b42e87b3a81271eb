package deliveries

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// AttemptLists reads the attempts of several deliveries.
type AttemptLists struct{ core *postgres.Core }

// Attempts reads a delivery's attempts, newest first, from below afterNumber
// (0: from the newest). A delivery without one has an empty list. CodeRateLimited and CodeUnavailable: see
// postgres.ReadList, which a read of more than one is.
func (s *Deliveries) Attempts(ctx context.Context, tenantID string, id webhook.DeliveryID, limit, afterNumber int) ([]webhook.Attempt, error) {
	if _, err := s.Delivery(ctx, tenantID, id); err != nil {
		return nil, err
	}
	const op, sql = "read attempts", `
		select ` + attemptColumns + ` from attempts where delivery_id = $1 and ($2 = 0 or number < $2) order by number desc limit $3`
	var found []webhook.DeliveryAttempt
	var err error
	if as := s.core.OfTenant(tenantID); limit == 1 {
		found, err = postgres.QueryAll(ctx, as, op, scanAttempt, sql, id, afterNumber, limit)
	} else {
		found, err = postgres.ReadList(ctx, s.core, as, op, scanAttempt, sql, id, afterNumber, limit)
	}
	all := make([]webhook.Attempt, 0, len(found))
	for _, a := range found {
		all = append(all, a.Attempt)
	}
	return all, err
}

// AttemptsOf reads attempts of several deliveries of a tenant, in the order of the deliveries' ids, runs and numbers:
// those after a position, or the first ones if that is zero. It leaves out deliveries that do not exist.
//
// Each delivery is looked up by itself, in the one partition of its day: some ten blocks each, and one or two for each attempt.
func (s *AttemptLists) AttemptsOf(ctx context.Context, tenantID string, ids []webhook.DeliveryID, limit int, after webhook.DeliveryAttempt) (
	[]webhook.DeliveryAttempt, error,
) {
	left := slices.DeleteFunc(RawIDs(ids), func(id [16]byte) bool { return bytes.Compare(id[:], after.DeliveryID[:]) < 0 })
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID).ByIndex(), "read attempts of deliveries", scanAttempt, `
		select `+attemptColumns+` from unnest($1::uuid[]) u (id)
		cross join lateral (select id from deliveries d where d.id = u.id and d.tenant_id = $2 limit 1) d
		cross join lateral (
			select `+attemptColumns+` from attempts a
			where a.delivery_id = d.id and (a.delivery_id > $3 or (a.run, a.number) > ($4::int, $5::int)) order by a.run, a.number limit $6) a
		order by a.delivery_id, a.run, a.number limit $6`, left, tenantID, after.DeliveryID, after.Run, after.Number, limit)
}

// maxAttempted is how many deliveries ListAttempts looks at: those of a backlog have none. It reads the attempts of attemptedPart of them at a time,
// until the page is full.
const maxAttempted, attemptedPart = 1000, 50

// ListAttempts reads attempts to an endpoint or of an event, those of the newest delivery first, and of each the newest first. after is the last one
// of the page before. It looks at 1,000 deliveries at most: searched is the last of them if the page is not full and there may be more.
// CodeRateLimited and CodeUnavailable: see postgres.ReadList.
//
// The deliveries are read by the index of the endpoint, or of the tenant within the event's millisecond, and each one's attempts in the one partition
// of its day: some ten blocks each.
func (s *AttemptLists) ListAttempts(ctx context.Context, tenantID string, f webhook.AttemptFilter, limit int, after webhook.DeliveryAttempt) (
	found []webhook.DeliveryAttempt, searched webhook.DeliveryID, err error,
) {
	of := webhook.DeliveryFilter{EndpointID: f.EndpointID, EventID: f.EventID}
	q := postgres.FilterQuery{Args: []any{tenantID}}
	sql := `select d.id from deliveries d where ` + base(&q, of) + window(&q, "d.id", "d", of, webhook.Page{})
	if !after.DeliveryID.IsZero() {
		sql += " and d.id <= " + q.Arg(after.DeliveryID)
	}
	sql += ` order by d.id desc limit ` + q.Arg(maxAttempted)
	const op = "list attempts"
	err = postgres.InList(ctx, s.core, s.core.OfTenant(tenantID), op, func(c postgres.Caller) error {
		found, searched = nil, webhook.DeliveryID{}
		looked, err := postgres.QueryAll(ctx, c, op, pgx.RowTo[[16]byte], sql, q.Args...)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(looked, attemptedPart) {
			more, err := postgres.QueryAll(ctx, c, op, scanAttempt, `
				select `+attemptColumns+` from unnest($1::uuid[]) u (id) cross join lateral (
					select `+attemptColumns+` from attempts a
					where a.delivery_id = u.id and (a.delivery_id <> $2 or (a.run, a.number) < ($3::int, $4::int))
					order by a.run desc, a.number desc limit $5) a
				order by a.delivery_id desc, a.run desc, a.number desc limit $5`, part, after.DeliveryID, after.Run, after.Number, limit-len(found))
			if err != nil {
				return err
			}
			if found = append(found, more...); len(found) == limit {
				return nil
			}
		}
		if len(looked) == maxAttempted {
			searched = looked[len(looked)-1]
		}
		return nil
	})
	return found, searched, err
}

// HasReused reports whether an attempt of a run met the end of a kept connection. It reads the attempts of the run, by the
// primary key.
func (s *AttemptLists) HasReused(ctx context.Context, id webhook.DeliveryID, run int) (bool, error) {
	var has bool
	err := s.core.AsWorker().WithConn(ctx, "look for an attempt", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select exists (select from attempts where delivery_id = $1 and run = $2 and reason = $3)`,
			id, run, string(retry.ReasonConnectionReused)).Scan(&has)
	})
	return has, err
}

const attemptColumns = `delivery_id, number, run, started_at, latency_us, decision, reason, status, retry_after_ns, error,
	delay_ns, delay_source, nominal_ns, truncated, request_headers, response_headers, response_body, names_us, connect_us, tls_us, wait_us,
	waited_for, late_ms`

func scanAttempt(row pgx.CollectableRow) (webhook.DeliveryAttempt, error) {
	var (
		a                                     webhook.DeliveryAttempt
		id                                    [16]byte
		latency, retryAfter, delay, nominal   int64
		decision                              int16
		reason                                string
		requestHeaders, responseHeaders, body []byte
		names, connecting, tls, waiting, late *int32
	)
	err := row.Scan(&id, &a.Number, &a.Run, &a.StartedAt, &latency, &decision, &reason, &a.Outcome.Status, &retryAfter, &a.Error, &delay, &a.DelaySource,
		&nominal, &a.Truncated, &requestHeaders, &responseHeaders, &body, &names, &connecting, &tls, &waiting,
		&a.WaitedFor, &late)
	if err != nil {
		return a, err
	}
	a.DeliveryID = id
	a.StartedAt, a.Latency = a.StartedAt.UTC(), time.Duration(latency)*time.Microsecond
	a.Times = webhook.Times{
		Names: fromCount(names, time.Microsecond), Connecting: fromCount(connecting, time.Microsecond),
		TLS: fromCount(tls, time.Microsecond), Waiting: fromCount(waiting, time.Microsecond),
	}
	a.Late = fromCount(late, time.Millisecond)
	a.Outcome.Decision, a.Outcome.Reason = retry.Decision(decision), retry.Reason(reason) //nolint:gosec // written by us from a Decision
	a.Outcome.RetryAfter, a.Delay, a.Nominal = time.Duration(retryAfter), time.Duration(delay), time.Duration(nominal)
	a.ResponseBody = bytes.Clone(body)
	if err := json.Unmarshal(requestHeaders, &a.RequestHeaders); err != nil {
		return a, err
	}
	return a, json.Unmarshal(responseHeaders, &a.ResponseHeaders)
}

// count is a duration in whole units; null for none, because most attempts are made over a kept connection, at once.
func count(d, unit time.Duration) *int32 {
	n := int32(min(d/unit, math.MaxInt32)) //nolint:gosec // no duration is negative
	if n == 0 {
		return nil
	}
	return &n
}

func fromCount(n *int32, unit time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * unit
}

// attemptRow is an attempt of a delivery.
type attemptRow struct {
	*webhook.Attempt

	delivery webhook.DeliveryID
}

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var attemptRows = postgres.RowsOf[attemptRow]{
	postgres.Whole("delivery uuid", func(a attemptRow) [16]byte { return a.delivery }),
	postgres.Each("run int", func(a attemptRow) int { return a.Run }),
	postgres.Each("number int", func(a attemptRow) int { return a.Number }),
	postgres.Each("started timestamptz", func(a attemptRow) time.Time { return a.StartedAt }),
	postgres.Each("latency bigint", func(a attemptRow) int64 { return a.Latency.Microseconds() }),
	postgres.Each("decision smallint", func(a attemptRow) int16 { return int16(a.Outcome.Decision) }),
	postgres.Each("reason text", func(a attemptRow) string { return string(a.Outcome.Reason) }),
	postgres.Each("status int", func(a attemptRow) int { return a.Outcome.Status }),
	postgres.Each("retry_after bigint", func(a attemptRow) int64 { return int64(a.Outcome.RetryAfter) }),
	postgres.Each("error text", func(a attemptRow) string { return a.Error }),
	postgres.Each("delay bigint", func(a attemptRow) int64 { return int64(a.Delay) }),
	postgres.Each("source text", func(a attemptRow) string { return a.DelaySource }),
	postgres.Each("nominal bigint", func(a attemptRow) int64 { return int64(a.Nominal) }),
	postgres.Each("truncated boolean", func(a attemptRow) bool { return a.Truncated }),
	postgres.EachBytes("request bytea", func(a attemptRow) []byte { return postgres.JSONBytes(a.RequestHeaders) }),
	postgres.EachBytes("response bytea", func(a attemptRow) []byte { return postgres.JSONBytes(a.ResponseHeaders) }),
	postgres.EachBytes("body bytea", func(a attemptRow) []byte { return postgres.NonNil(a.ResponseBody) }),
	postgres.EachOptional("names int", func(a attemptRow) *int32 { return count(a.Times.Names, time.Microsecond) }),
	postgres.EachOptional("connecting int", func(a attemptRow) *int32 { return count(a.Times.Connecting, time.Microsecond) }),
	postgres.EachOptional("tls int", func(a attemptRow) *int32 { return count(a.Times.TLS, time.Microsecond) }),
	postgres.EachOptional("waiting int", func(a attemptRow) *int32 { return count(a.Times.Waiting, time.Microsecond) }),
	postgres.Each("waited_for text", func(a attemptRow) string { return a.WaitedFor }),
	postgres.EachOptional("late int", func(a attemptRow) *int32 { return count(a.Late, time.Millisecond) }),
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertAttempts = `
	insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error,
		delay_ns, delay_source, nominal_ns, truncated, request_headers, response_headers, response_body,
		names_us, connect_us, tls_us, wait_us, waited_for, late_ms) ` + attemptRows.Query(1) + `
	on conflict (delivery_id, run, number) do nothing`

// queueOverrides deletes the attempts that those of the steps take the place of. See webhook.Step.
func queueOverrides(b *pgx.Batch, steps []*recording) {
	for _, r := range steps {
		if r.Step.Overrides && r.Step.Attempt != nil {
			b.Queue(`delete from attempts a where delivery_id = $1 and run = $2 and number = $3 and decision <> $4
				and exists (select from deliveries d where d.id = a.delivery_id and d.state = `+postgres.Delivered+`)`,
				r.Step.DeliveryID, r.Step.Attempt.Run, r.Step.Attempt.Number, int16(retry.Delivered))
		}
	}
}

type attemptBatch []attemptRow

func (rows attemptBatch) queue(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertAttempts, attemptRows.Args(rows)...)
	}
}
