package health

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// exhaustedFor is for how long a delivery that was given up counts as a failure.
	exhaustedFor = 24 * time.Hour
	// maxFailing bounds the failing endpoints that a process keeps in memory.
	maxFailing = 100_000
)

// failures is a row of endpoint_trouble while it is being worked on.
type failures struct {
	id        webhook.EndpointID
	Since     time.Time
	Streak    int
	Minutes   []time.Time // in which deliveries were given up, in order
	Exhausted []int32     // how many in each
	gone      time.Time
	Reason    string
}

func (r *failures) empty() bool { return r.Streak == 0 && len(r.Minutes) == 0 && r.gone.IsZero() }

// add adds what a process has observed of an endpoint with these settings. Observations from before changed, its
// last change, do not count.
func (r *failures) add(t *webhook.EndpointFailures, settings webhook.AutoDisable, changed time.Time) {
	if !t.Succeeded.IsZero() && !r.Since.After(t.Succeeded) {
		*r = failures{id: r.id, Since: r.Since, gone: r.gone}
	}
	if t.Gone.After(changed) {
		if r.empty() {
			r.Since = t.Gone
		}
		r.gone = t.Gone
	}
	if !settings.Enabled || t.Permanent+t.Exhausted == 0 || !t.Began.After(changed) {
		return
	}
	if r.empty() || t.First.Before(r.Since) {
		r.Since = t.First
	}
	r.Streak += t.Permanent
	if t.Reason != "" {
		r.Reason = t.Reason
	}
	if t.Exhausted > 0 {
		r.exhaust(t.Last.UTC().Truncate(time.Minute), int32(min(t.Exhausted, 1<<20)))
	}
	r.forget(t.Last)
}

// exhaust counts deliveries that were given up within a minute.
func (r *failures) exhaust(minute time.Time, n int32) {
	at, found := slices.BinarySearchFunc(r.Minutes, minute, time.Time.Compare)
	if !found {
		r.Minutes, r.Exhausted = slices.Insert(r.Minutes, at, minute), slices.Insert(r.Exhausted, at, 0)
	}
	r.Exhausted[at] += n
}

// forget removes minutes that do not count any more.
func (r *failures) forget(now time.Time) {
	old := 0
	for old < len(r.Minutes) && !r.Minutes[old].Add(time.Minute).After(now.Add(-exhaustedFor)) {
		old++
	}
	r.Minutes, r.Exhausted = r.Minutes[old:], r.Exhausted[old:]
}

// why returns why the endpoint is to be disabled, in words; "" if it is not.
func (r *failures) why(settings webhook.AutoDisable, now time.Time) string {
	if !r.gone.IsZero() {
		return explain.DisabledGone
	}
	if !settings.Enabled {
		return ""
	}
	if r.Streak >= settings.PermanentStreak && r.Streak > 0 {
		return explain.DisabledRefused(r.Streak, r.Reason)
	}
	given := 0
	for i, minute := range r.Minutes {
		if minute.Add(time.Minute).After(now.Add(-exhaustedFor)) {
			given += int(r.Exhausted[i])
		}
	}
	if given >= settings.Exhausted24h && given > 0 {
		return explain.DisabledExhausted(given, r.Reason)
	}
	return ""
}

// failureColumns is what failureScan scans, of endpoint_trouble t and endpoints e.
const failureColumns = `t.endpoint_id, t.since, t.permanent_streak, t.exhausted_at, t.exhausted, t.gone_at, t.last_reason,
	e.tenant_id, e.auto_disable, e.updated_at`

type failureScan struct {
	failures

	tenantID string
	settings webhook.AutoDisable
	changed  time.Time
}

func scanFailures(row pgx.CollectableRow) (*failureScan, error) {
	var (
		s       failureScan
		id      [16]byte
		gone    *time.Time
		disable endpoints.DisableRow
	)
	err := row.Scan(&id, &s.Since, &s.Streak, &s.Minutes, &s.Exhausted, &gone, &s.Reason, &s.tenantID, &disable, &s.changed)
	s.id, s.gone, s.settings = id, postgres.OrZero(gone), webhook.AutoDisable(disable)
	return &s, err
}

// CountFailures stores what a process has observed of different endpoints, and returns those that have failures on
// record after that. It does not count endpoints that are not active, or are changed meanwhile.
//
// It locks the rows in one transaction, so that the observations of several processes add up.
func (s *EndpointHealth) CountFailures(ctx context.Context, seen []webhook.EndpointFailures) ([]webhook.FailingEndpoint, error) {
	var (
		all    [][16]byte
		failed [][16]byte
		since  []time.Time
		byID   = make(map[webhook.EndpointID]*webhook.EndpointFailures, len(seen))
	)
	for i := range seen {
		t := &seen[i]
		byID[t.EndpointID], all = t, append(all, t.EndpointID)
		if t.Failed() {
			first := t.First
			if first.IsZero() {
				first = t.Gone
			}
			failed, since = append(failed, t.EndpointID), append(since, first)
		}
	}
	var left []webhook.FailingEndpoint
	err := s.core.AsWorker().InTx(ctx, "count failures", func(ctx context.Context, tx pgx.Tx) error {
		left = nil
		rows, err := lockFailures(ctx, tx, all, failed, since)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, row := range rows {
			row.add(byID[row.id], row.settings, row.changed)
			row.queue(batch)
			if !row.empty() {
				left = append(left, row.failing(s.core.Now()))
			}
		}
		if batch.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, err
	}
	return left, nil
}

// lockFailures inserts rows for endpoints that failed, and locks the rows of all, in the order of their ids.
func lockFailures(ctx context.Context, tx pgx.Tx, all, failed [][16]byte, since []time.Time) ([]*failureScan, error) {
	batch := &pgx.Batch{}
	if len(failed) > 0 {
		batch.Queue(`
			insert into endpoint_trouble (endpoint_id, since)
			select u.id, u.since from unnest($1::uuid[], $2::timestamptz[]) u (id, since)
			join endpoints e on e.id = u.id and e.state = `+postgres.EndpointActive+` and e.deleted_at is null and not e.internal
			order by u.id on conflict (endpoint_id) do nothing`, failed, since)
	}
	var rows []*failureScan
	batch.Queue(`
		select `+failureColumns+` from endpoint_trouble t join endpoints e on e.id = t.endpoint_id
		where t.endpoint_id = any($1) and e.state = `+postgres.EndpointActive+` and e.deleted_at is null order by t.endpoint_id for update of t`, all).
		Query(func(found pgx.Rows) (err error) {
			rows, err = pgx.CollectRows(found, scanFailures)
			return err
		})
	return rows, tx.SendBatch(ctx, batch).Close()
}

// queue writes the row, or deletes it if it has no failures.
func (r *failures) queue(b *pgx.Batch) {
	if r.empty() {
		b.Queue(`delete from endpoint_trouble where endpoint_id = $1`, r.id)
		return
	}
	b.Queue(`
		update endpoint_trouble set since = $2, permanent_streak = $3, exhausted_at = $4, exhausted = $5, gone_at = $6, last_reason = $7
		where endpoint_id = $1`, r.id, r.Since, r.Streak, append([]time.Time{}, r.Minutes...), append([]int32{}, r.Exhausted...),
		postgres.Optional(r.gone), r.Reason)
}

func (s *failureScan) failing(now time.Time) webhook.FailingEndpoint {
	return webhook.FailingEndpoint{EndpointID: s.id, TenantID: s.tenantID, Since: s.Since.UTC(), Disable: s.why(s.settings, now) != ""}
}

// FailingEndpoints returns the active endpoints with failures on record, 100,000 at most.
func (s *EndpointHealth) FailingEndpoints(ctx context.Context) ([]webhook.FailingEndpoint, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), "look for failing endpoints", func(row pgx.CollectableRow) (webhook.FailingEndpoint, error) {
		scan, err := scanFailures(row)
		return scan.failing(s.core.Now()), err
	}, `
		select `+failureColumns+` from endpoint_trouble t join endpoints e on e.id = t.endpoint_id
		where e.state = `+postgres.EndpointActive+` and e.deleted_at is null limit $1`, maxFailing)
}

// FailureRecord removes the failures on record of an endpoint.
type FailureRecord struct{}

// Forget removes the failures of an endpoint.
func (FailureRecord) Forget(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) error {
	_, err := tx.Exec(ctx, `delete from endpoint_trouble where endpoint_id = $1`, id)
	return err
}
