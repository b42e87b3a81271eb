package replays

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// replayScan bounds how many rows one batch reads to find those that match.
	replayScan = 20_000
	// Where all that a batch finds is skipped, it goes on at once, so often and so long at most: a transaction holds a connection.
	skipRounds = 20
	skipTime   = 500 * time.Millisecond
)

// ReleaseReplay releases the next batch of a replay in one transaction: it opens a run of each delivery, inserts it into the outbox, stores that
// its first outcome is to be checked, and moves the cursor and the counters. A batch that is repeated, which its number shows, is not released
// again. ReleaseReplay returns the status after that.
//
// It releases nothing if the replay is not running, if a pause or a cancel is pending, or if deliveries
// wait longer for their start than usual (Behind). It skips what was replayed, discarded or deleted since
// the replay was created, dead letters that are about to be discarded, and what goes to a deleted endpoint.
// CodeNotFound: there is no such replay.
func (s *Replays) ReleaseReplay(ctx context.Context, b webhook.ReplayBatch) (webhook.ReplayStatus, error) {
	var status webhook.ReplayStatus
	err := s.core.AsWorker().InTx(ctx, "release a batch of a replay", func(ctx context.Context, tx pgx.Tx) error {
		r, err := lockReplay(ctx, tx, b.ID)
		if err != nil {
			return err
		}
		r.retryPolicy = s.retryPolicy
		behind := false
		if r.seq < b.Seq && !r.exhausted && r.State == webhook.ReplayRunning && !r.Command.Stops() {
			if behind, err = deliveries.OutboxIsLate(ctx, tx); err == nil && !behind {
				err = r.release(ctx, tx, b)
			}
			if err != nil {
				return err
			}
		}
		status, err = replayStatus(ctx, tx, b.ID)
		status.Behind = behind
		failpoint.Hit("replay-page-before")
		return err
	})
	failpoint.Hit("replay-page-after")
	return status, err
}

// lockedReplay is a replay that this transaction has locked.
type lockedReplay struct {
	webhook.Replay

	seq         int64
	cursor      [16]byte
	exhausted   bool
	retryPolicy retry.Policy   // of the installation
	filter      *filter.Filter // that events have to match; nil for none
}

func lockReplay(ctx context.Context, tx pgx.Tx, id webhook.ReplayID) (*lockedReplay, error) {
	rows, err := tx.Query(ctx, `select `+replayColumns+` from replays r where id = $1 for no key update`, id)
	if err != nil {
		return nil, err
	}
	r := &lockedReplay{}
	if r.Replay, err = pgx.CollectExactlyOneRow(rows, scanReplay); postgres.IsNoRows(err) {
		return nil, webhook.NotFound("replay")
	}
	if err != nil {
		return nil, err
	}
	err = tx.QueryRow(ctx, `select seq, cursor, exhausted from replays where id = $1`, id).Scan(&r.seq, &r.cursor, &r.exhausted)
	return r, err
}

// release releases a batch and moves the cursor and the counters.
func (r *lockedReplay) release(ctx context.Context, tx pgx.Tx, b webhook.ReplayBatch) error {
	var wanted []string
	if r.Source == webhook.ReplayEvents {
		// In the order in which retention locks the tables of a day.
		if _, err := tx.Exec(ctx, `lock table deliveries in row share mode`); err != nil {
			return err
		}
		var err error
		if wanted, err = r.present(ctx, tx); err != nil {
			return err
		}
	}
	out, exhausted, err := r.next(ctx, tx, setOf(&r.Replay, wanted).sendable(), b)
	if err != nil {
		return err
	}
	if len(out.ids) > 0 {
		if err := out.store(ctx, tx, r.ID, b.Now); err != nil {
			return err
		}
	}
	// The last batch shows how many were skipped, and how many there were in all.
	_, err = tx.Exec(ctx, `
		update replays set seq = $2, cursor = $3, exhausted = $4, released = released + $5,
			skipped = case when $4 then greatest(skipped + $6, coalesce(total, 0) - released - $5) else skipped + $6 end,
			total = case when $4 then greatest(coalesce(total, 0), released + $5 + skipped + $6) else total end
		where id = $1`, r.ID, b.Seq, r.cursor, exhausted, len(out.ids), out.skipped)
	return err
}

// next releases the next deliveries of the set and moves the cursor behind them, and behind what it has skipped before.
func (r *lockedReplay) next(ctx context.Context, tx pgx.Tx, set replaySet, b webhook.ReplayBatch) (out released, exhausted bool, err error) {
	skipped, began := 0, time.Now()
	for round := 0; round < skipRounds && !exhausted && len(out.ids) == 0 && (round == 0 || time.Since(began) < skipTime); round++ {
		var (
			ids    [][16]byte
			cursor [16]byte
		)
		if ids, cursor, exhausted, err = nextOf(ctx, tx, set.after(r.cursor), b.Limit, replayScan); err != nil {
			return out, false, err
		}
		if cursor != ([16]byte{}) {
			r.cursor = cursor
		}
		if out, err = r.send(ctx, tx, ids, b.Now); err != nil {
			return out, false, err
		}
		skipped += out.skipped
	}
	out.skipped = skipped
	return out, exhausted, nil
}

// send releases deliveries, or those of events.
func (r *lockedReplay) send(ctx context.Context, tx pgx.Tx, ids [][16]byte, now time.Time) (released, error) {
	if len(ids) == 0 {
		return released{}, nil
	}
	if r.Source == webhook.ReplayEvents {
		return r.events(ctx, tx, ids, now)
	}
	return r.deadLetters(ctx, tx, ids, now)
}

// present returns the present event types of the replay's endpoint, and sets its filter; none if the endpoint is deleted.
func (r *lockedReplay) present(ctx context.Context, tx pgx.Tx) (types []string, err error) {
	var text string
	err = tx.QueryRow(ctx, `select event_types, coalesce(filter, '') from endpoints where id = $1 and tenant_id = $2 and deleted_at is null`,
		r.Filter.EndpointID, r.TenantID).Scan(&types, &text)
	if postgres.IsNoRows(err) {
		return nil, nil
	}
	if !r.Filter.IncludeUnmatched {
		r.filter = filter.Stored(text)
	}
	return types, err
}

// nextOf returns up to limit ids of a set that match, the id up to which the set was read, and
// whether that was its end. It reads at most scan rows, so it may return fewer than limit ids
// before the end. A zero cursor means that nothing was read.
func nextOf(ctx context.Context, tx pgx.Tx, set replaySet, limit, scan int) (ids [][16]byte, cursor [16]byte, exhausted bool, err error) {
	type row struct {
		ID      [16]byte
		Matched bool
	}
	read := func(condition string, most int) ([]row, error) {
		sql, args := set.sql("d.id, (" + set.matched + ") as matched")
		q := postgres.FilterQuery{Args: slices.Clone(args)}
		rows, err := tx.Query(ctx, `select id, matched from (`+sql+` order by d.id limit `+q.Arg(scan)+`) s where `+condition+
			` order by id limit `+q.Arg(most), q.Args...)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	}
	found, err := read("matched", limit+1)
	if err != nil {
		return nil, cursor, false, err
	}
	if len(found) <= limit {
		// The cursor needs all rows that were read, and ids of the same read.
		if found, err = read("true", scan); err != nil {
			return nil, cursor, false, err
		}
		exhausted = len(found) < scan
	}
	for _, r := range found {
		if r.Matched && len(ids) == limit {
			return ids, cursor, false, nil
		}
		if r.Matched {
			ids = append(ids, r.ID)
		}
		cursor = r.ID
	}
	return ids, cursor, exhausted, nil
}

// released has the deliveries that a batch has released, each with the attempt whose outcome counts.
type released struct {
	ids     [][16]byte
	runs    []int
	numbers []int
	skipped int
}

func (out *released) add(d webhook.Delivery) {
	out.ids = append(out.ids, d.DeliveryID)
	out.runs = append(out.runs, d.Run)
	out.numbers = append(out.numbers, d.Attempts+1)
}

// store inserts the deliveries whose first outcomes are to be checked.
func (out *released) store(ctx context.Context, tx pgx.Tx, id webhook.ReplayID, now time.Time) error {
	_, err := tx.Exec(ctx, `
		insert into replay_releases (replay_id, delivery_id, run, number, released_at, check_at)
		select $1, u.id, u.run, u.number, $5, $5::timestamptz + $6::bigint * interval '1 millisecond'
		from unnest($2::uuid[], $3::int[], $4::int[]) u (id, run, number)`, id, out.ids, out.runs, out.numbers, now, firstCheck.Milliseconds())
	return err
}

// deadLetters opens a run of each delivery that has been a dead letter since before the replay. One with a
// command is about to be discarded: its caller has been answered with that.
func (r *lockedReplay) deadLetters(ctx context.Context, tx pgx.Tx, ids [][16]byte, now time.Time) (released, error) {
	found, err := deliveries.LockDeliveries(ctx, tx, ids,
		`d.state = `+postgres.DeadLettered+` and d.completed_at <= $2 and d.command = `+postgres.NoCommand+`
		and not exists (select from events e where e.id = d.event_id and e.payload_removed_at is not null)`, r.CreatedAt)
	if err != nil {
		return released{}, err
	}
	return r.openRuns(ctx, tx, found, now)
}

// events sends past events to the replay's endpoint: a delivery that has ended gets a new run, an open
// one is skipped, and one that does not exist is created. What did not name the endpoint has to match its filter.
func (r *lockedReplay) events(ctx context.Context, tx pgx.Tx, events [][16]byte, now time.Time) (released, error) {
	wanted, skipped, err := r.matching(ctx, tx, events)
	if err != nil {
		return released{}, err
	}
	ids := make([][16]byte, 0, len(wanted))
	for id := range wanted {
		ids = append(ids, id)
	}
	found, err := deliveries.LockDeliveries(ctx, tx, ids, "true")
	if err != nil {
		return released{}, err
	}
	var ended []webhook.Delivery
	for _, d := range found {
		delete(wanted, d.DeliveryID)
		if !d.State.Open() {
			ended = append(ended, d)
		}
	}
	out, err := r.openRuns(ctx, tx, ended, now)
	if err != nil {
		return out, err
	}
	out.skipped += len(found) - len(ended) + skipped
	err = r.create(ctx, tx, wanted, now, &out)
	return out, err
}

// matching returns the deliveries of events that the filter lets through, and how many it does not. Of the payloads, which it reads only for the
// filter, it holds one at a time.
func (r *lockedReplay) matching(
	ctx context.Context, tx pgx.Tx, events [][16]byte,
) (wanted map[webhook.DeliveryID]webhook.Start, skipped int, err error) {
	rows, err := tx.Query(ctx, `
		select id, type, created_at, deliver_at, external_id, coalesce(ordering_key, ''), tags,
			case when $3 and not ($4 = any(endpoint_ids) and targeted is true) then payload end
		from events where id = any($1) and tenant_id = $2 and payload_removed_at is null for key share`,
		events, r.TenantID, r.filter != nil, r.Filter.EndpointID)
	if err != nil {
		return nil, 0, err
	}
	var (
		event     [16]byte
		e         webhook.NewEvent
		created   time.Time
		deliverAt *time.Time
	)
	wanted = map[webhook.DeliveryID]webhook.Start{}
	_, err = pgx.ForEachRow(rows, []any{&event, &e.Type, &created, &deliverAt, &e.ExternalID, &e.OrderingKey, &e.Tags, &e.Payload}, func() error {
		if e.Payload != nil && !r.filter.Match(e.Filtered()) {
			skipped++
			return nil
		}
		id := webhook.DeliveryIDOf(event, r.Filter.EndpointID)
		wanted[id] = webhook.Start{
			Ref: webhook.Ref{DeliveryID: id, EventID: event, EndpointID: r.Filter.EndpointID, TenantID: r.TenantID, EventType: e.Type},
			Run: 1, CreatedAt: created.UTC(), NotBefore: postgres.OrZero(deliverAt),
		}
		return nil
	})
	return wanted, skipped, err
}
