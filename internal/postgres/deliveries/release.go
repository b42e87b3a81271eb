package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// countPage is how many entries of an index one turn counts.
	countPage = 10_000
	// settleTime is for how long after its beginning a release does not end: a hold that was decided before may still be being stored. It is
	// longer than the flush of a step takes.
	settleTime = 10 * time.Second
	// countEvery is the time until the next turn while there is more to be counted.
	countEvery = time.Second
	// firstLook and lastLook are the least and the longest time until the next look for what is held and cannot be released yet.
	firstLook, lastLook = 2 * time.Second, time.Minute
)

// TakeTurn makes a turn of an endpoint's release, unless that is not due any more or another process makes it: it releases the oldest held
// deliveries, of its set at its pace and all others as they come, and counts a page of the set. The relay starts the deliveries that the caller
// does not start.
//
// A turn reads the index deliveries_release from the place of the last one on: some three blocks for each partition, twice that when it begins a
// pass, and four for each delivery, whatever the size of the table; and once a second, until a set is counted, up to 10,000 of its entries, from the
// end on.
func (s *Releases) TakeTurn(ctx context.Context, turn webhook.ReleaseTurn) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "release held deliveries", func(ctx context.Context, tx pgx.Tx) error {
		starts = nil
		t, err := lockTurn(ctx, tx, turn.EndpointID)
		if postgres.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !t.sendable {
			return StopRelease(ctx, tx, turn.EndpointID)
		}
		t.tx, t.ReleaseTurn = tx, turn
		err = t.take(ctx)
		starts = t.starts
		return err
	})
	if err == nil && len(starts) > 0 {
		failpoint.Hit("release-after")
	}
	return starts, err
}

// releaseTurn is a turn whose release this transaction has locked.
type releaseTurn struct {
	webhook.ReleaseTurn

	release   webhook.Release
	set       pass  // of the set, or of all if there is none
	later     pass  // of what is after the set
	counted   int64 // of the set, above countedTo
	countedTo place // zero: all of it is counted
	setNext   time.Time
	now       time.Time
	sendable  bool // the endpoint is active or deleted
	deleted   bool

	tx     pgx.Tx
	starts []webhook.Start
}

func lockTurn(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) (*releaseTurn, error) {
	t, s := &releaseTurn{}, releaseScanner{}
	var setFrom, laterFrom [16]byte
	err := tx.QueryRow(ctx, `
		select `+releaseColumns+`, r.from_id, r.after_id, r.later_from_id, r.later_id, coalesce(r.total, 0), r.counted_to, coalesce(r.set_next_at, now()),
			clock_timestamp()
		from releases r where r.endpoint_id = $1 and r.next_at <= now() for update skip locked`,
		id).Scan(s.targets(&setFrom, &t.set.at, &laterFrom, &t.later.at, &t.counted, &t.countedTo, &t.setNext, &t.now)...)
	if err != nil {
		return nil, err
	}
	t.set.from, t.later.from = setFrom, laterFrom
	t.release = s.release()
	// After the lock: a change of the endpoint's state that was made before it is seen, and one after it changes the release once more.
	err = tx.QueryRow(ctx, `select state = `+postgres.EndpointActive+` or deleted_at is not null, deleted_at is not null from endpoints where id = $1`, id).
		Scan(&t.sendable, &t.deleted)
	return t, err
}

// take releases what the turn permits, and stores when the next one comes.
func (t *releaseTurn) take(ctx context.Context) error {
	if err := t.count(ctx); err != nil {
		return err
	}
	set, err := t.takeSet(ctx)
	if err != nil {
		return err
	}
	p := &t.set
	if !t.release.Until.IsZero() {
		p = &t.later
	}
	rest, err := t.takeFrom(ctx, span{t.release.Until, highestID}, p, t.Limit-len(t.starts))
	if err != nil {
		return err
	}
	if t.release.Until.IsZero() {
		t.release.Released += int64(rest.n)
	}
	return t.store(ctx, earliest(set, rest.again))
}

// takeSet releases the next ones of the set, if they are due. It returns when others are; zero: never.
func (t *releaseTurn) takeSet(ctx context.Context) (again time.Time, err error) {
	r := &t.release
	if r.Until.IsZero() || r.State != webhook.ReleaseRunning {
		return again, nil
	}
	if t.setNext.After(t.now) {
		return t.setNext, nil
	}
	of := span{high: r.Until}
	if t.countedTo.Valid { // it is counted from the end on
		of.high = t.countedTo.Bytes
	}
	pace := r.Pace(t.now, t.Usual)
	done, err := t.takeFrom(ctx, of, &t.set, webhook.Turn(pace, t.now, t.setNext, t.Limit))
	if err != nil {
		return again, err
	}
	r.Released += int64(done.n)
	if done.ended {
		if t.countedTo.Valid {
			done.again = t.now // what is counted, and was not looked at
		}
		t.endCount()
	}
	if done.n > 0 {
		t.setNext = webhook.NextTurn(pace, done.n, t.now, t.setNext)
	}
	if done.again.IsZero() {
		return again, nil
	}
	return latest(done.again, t.setNext), nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest is the earlier one of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// settled is when no hold can be on its way any more that was decided before the release began. Later ones note themselves in it.
func (t *releaseTurn) settled() time.Time { return t.release.StartedAt.Add(settleTime) }

// count counts a page of the set, from its end down to where the release stands. So nothing is counted that was released, and nothing is
// released that was counted before all are.
func (t *releaseTurn) count(ctx context.Context) error {
	if !t.countedTo.Valid {
		return nil
	}
	var (
		n      int
		lowest *[16]byte
	)
	err := t.tx.QueryRow(ctx, `
		select count(*), min(id::text collate "C")::uuid from (
			select id from deliveries where endpoint_id = $1 and id > $2 and id <= $3 and state = `+postgres.Held+` order by id desc limit $4) d`,
		t.EndpointID, webhook.DeliveryID(t.set.at.Bytes), t.countedTo, countPage).Scan(&n, &lowest)
	if err != nil {
		return err
	}
	t.counted += int64(n)
	if n < countPage {
		t.endCount()
		return nil
	}
	t.countedTo = placeAt(before(*lowest))
	return nil
}

// endCount ends the count: what is above countedTo is counted, and what is not is released.
func (t *releaseTurn) endCount() {
	if t.countedTo.Valid {
		t.release.Total, t.countedTo = new(t.counted+t.release.Released), place{}
	}
}

// store stores the release after the turn. next is when there may be more to release; zero: nothing is held that is to be.
func (t *releaseTurn) store(ctx context.Context, next time.Time) error {
	r := &t.release
	switch {
	case t.countedTo.Valid:
		next = earliest(next, t.now.Add(countEvery))
	case !next.IsZero():
	case r.State != webhook.ReleaseStopped && t.settled().After(t.now):
		next = t.settled()
	default:
		return t.end(ctx)
	}
	if r.Total != nil && *r.Total < r.Released {
		r.Total = &r.Released
	}
	total := r.Total
	if t.countedTo.Valid {
		total = &t.counted
	}
	_, err := t.tx.Exec(ctx, `
		update releases set released = $2, total = $3, next_at = $4, from_id = $5, after_id = $6, later_from_id = $7, later_id = $8,
			counted_to = $9, set_next_at = $10 where endpoint_id = $1`,
		t.EndpointID, r.Released, total, latest(next, t.now.Add(t.Pause)), t.set.from, t.set.at, t.later.from, t.later.at, t.countedTo, t.setNext)
	return err
}

// end ends a release: nothing is held, or nothing but a set that was stopped.
func (t *releaseTurn) end(ctx context.Context) error {
	r := &t.release
	if t.deleted {
		_, err := t.tx.Exec(ctx, `delete from releases where endpoint_id = $1`, t.EndpointID)
		return err
	}
	state, total := r.State, r.Total
	if state != webhook.ReleaseStopped || r.Until.IsZero() {
		state, total = webhook.ReleaseDone, &r.Released // whatever else was held has ended otherwise
	}
	_, err := t.tx.Exec(ctx, `
		update releases set state = $2, released = $3, total = $4, next_at = null, from_id = default, after_id = null, later_from_id = default,
			later_id = null, counted_to = null where endpoint_id = $1`, t.EndpointID, int16(state), r.Released, total)
	return err
}

// release releases held deliveries that this transaction has locked: it inserts their rows by insertOutboxRows, or by insertReleasedRows. The relay
// starts those that are not started within RelayAfter.
//
// A concurrent release does not change a delivery's row, so the lock does not reveal it. Its outbox row
// does.
func release(ctx context.Context, tx pgx.Tx, now time.Time, held []webhook.Delivery, insert string) (starts []webhook.Start, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	var (
		all   = make([]*webhook.Start, len(held))
		ob    = make(OutboxBatch, len(held))
		known = make(map[webhook.DeliveryID]*webhook.Start, len(held))
	)
	now = now.UTC().Truncate(time.Microsecond)
	for i, d := range held {
		all[i] = &webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt, Resume: &d.Progress}
		ob[i], known[d.DeliveryID] = OutboxRow{Start: all[i], After: RelayAfter}, all[i]
	}
	webhook.Assign(all)
	batch := &pgx.Batch{}
	ob.queueNew(batch, insert, func(id webhook.DeliveryID) { starts = append(starts, *known[id]) })
	err = tx.SendBatch(ctx, batch).Close()
	return starts, err
}
