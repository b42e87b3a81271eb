package deliveries

import (
	"bytes"
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
	// firstLook and lastLook are the least and the longest time until the next look for what is held and cannot be released yet.
	firstLook, lastLook = 2 * time.Second, time.Minute

	// IsHeld selects held deliveries of the table d that are not being released. One that is being released
	// has an outbox row, and then an owner. A claim counts for two minutes after its end, as it does for the
	// reconciler: until then its process may still record the result. A delivery with a command is started
	// because of that.
	IsHeld = `d.state = ` + postgres.Held + ` and d.command = ` + postgres.NoCommand + ` and (d.owner is null or d.owner_until < now() - interval '2 minutes')
		and not exists (select from outbox o where o.delivery_id = d.id)`
)

// highestID is above every delivery.
//
//nolint:gochecknoglobals // a constant that Go cannot write as one
var highestID = webhook.DeliveryID(bytes.Repeat([]byte{0xff}, 16))

// queueHolds makes the releases of the endpoints due for which deliveries are being held, if they are active or deleted. It comes last in its
// transaction, because it locks rows that others want.
//
// A release that has a rate, or waits after an internal fault, is not hastened. A set grows by what is held again of it.
func queueHolds(batch *pgx.Batch, all []*recording) {
	var (
		endpoints, ids [][16]byte
		internal       []bool
	)
	for _, r := range all {
		if r.Step.State == webhook.StateHeld {
			endpoints, ids = append(endpoints, r.Step.EndpointID), append(ids, r.Step.DeliveryID)
			internal = append(internal, r.Step.Reason == webhook.ReasonInternal)
		}
	}
	if len(ids) > 0 {
		batch.Queue(noteHolds, endpoints, ids, internal)
	}
}

const noteHolds = `
	insert into releases as r (endpoint_id, tenant_id, faulted_at)
	select e.id, e.tenant_id, case when exists (
		select from unnest($1::uuid[], $3::bool[]) u (endpoint, internal) where u.endpoint = e.id and u.internal) then now() end
	from endpoints e
	where e.id = any($1) and (e.state = ` + postgres.EndpointActive + ` or e.deleted_at is not null)
	order by e.id
	on conflict (endpoint_id) do update set
		faulted_at = coalesce(excluded.faulted_at, r.faulted_at),
		next_at = case
			when r.next_at is not null and (excluded.faulted_at is not null or r.rate is not null and r.state = 0) then r.next_at
			else least(r.next_at, now()) end,
		total = case when r.state < 2 then r.total + (
			select count(*) from unnest($1::uuid[], $2::uuid[]) u (endpoint, id) where u.endpoint = r.endpoint_id and u.id <= r.until_id) end,
		state = case when r.state < 2 then r.state else 0 end,
		released = case when r.state < 2 then r.released else 0 end,
		started_at = case when r.state < 2 then r.started_at else now() end,
		rate = case when r.state < 2 then r.rate end,
		until_id = case when r.state < 2 then r.until_id end
	where r.next_at is null or r.next_at > now() or r.until_id is not null or excluded.faulted_at is not null`

// TakeTurn makes a turn of an endpoint's release: it releases the oldest held deliveries, of its set at its pace and all others as they come,
// and counts a page of the set. The relay starts the deliveries that the caller does not start.
//
// A turn reads the index deliveries_release from the place of the last one on: some three blocks for each partition, and four for each
// delivery, whatever the size of the table; and once for each set up to 10,000 of its entries, from the end on.
func (s *Releases) TakeTurn(ctx context.Context, turn webhook.ReleaseTurn) (done webhook.ReleasedTurn, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "release held deliveries", func(ctx context.Context, tx pgx.Tx) error {
		done = webhook.ReleasedTurn{Place: turn.Place}
		t, err := lockTurn(ctx, tx, turn.EndpointID)
		if postgres.IsNoRows(err) {
			done.Missed = true
			return nil
		}
		if err != nil {
			return err
		}
		if !t.sendable {
			done.Missed = true
			return StopRelease(ctx, tx, turn.EndpointID)
		}
		t.tx, t.ReleaseTurn, t.done = tx, turn, &done
		return t.take(ctx)
	})
	if err == nil && len(done.Starts) > 0 {
		failpoint.Hit("release-after")
	}
	return done, err
}

// releaseTurn is a turn whose release this transaction has locked.
type releaseTurn struct {
	webhook.ReleaseTurn

	release  webhook.Release
	planned  time.Time // when the turn was to come
	now      time.Time
	sendable bool // the endpoint is active or deleted
	deleted  bool

	tx   pgx.Tx
	done *webhook.ReleasedTurn
}

func lockTurn(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) (*releaseTurn, error) {
	t, s := &releaseTurn{}, releaseScanner{}
	err := tx.QueryRow(ctx, `
		select `+releaseColumns+`, r.next_at, clock_timestamp() from releases r where r.endpoint_id = $1 and r.next_at <= now() for update skip locked`,
		id).Scan(s.targets(&t.planned, &t.now)...)
	if err != nil {
		return nil, err
	}
	t.release = s.release()
	// After the lock: a change of the endpoint's state that was made before it is seen, and one after it changes the release once more.
	err = tx.QueryRow(ctx, `select state = `+postgres.EndpointActive+` or deleted_at is not null, deleted_at is not null from endpoints where id = $1`, id).
		Scan(&t.sendable, &t.deleted)
	return t, err
}

// take releases what the turn permits, and stores when the next one comes.
func (t *releaseTurn) take(ctx context.Context) error {
	r, place := &t.release, &t.done.Place
	next, left := t.now.Add(t.Pause), false
	if !r.Until.IsZero() && r.State != webhook.ReleaseDone {
		if err := t.count(ctx); err != nil {
			return err
		}
	}
	if !r.Until.IsZero() && r.State == webhook.ReleaseRunning {
		pace := r.Pace(t.now, t.Usual)
		high := r.Until
		if r.Total == nil { // it is counted from the end on
			high = place.CountedTo
		}
		n, held, err := t.takeFrom(ctx, span{high: high}, &place.Set, webhook.Turn(pace, t.now, t.planned, t.Limit))
		if err != nil {
			return err
		}
		r.Released += int64(n)
		next, left = latest(next, webhook.NextTurn(pace, n, t.now, t.planned)), held || r.Total == nil
	}
	n, held, err := t.takeFrom(ctx, span{r.Until, highestID}, t.laterPlace(), t.Limit-len(t.done.Starts))
	if err != nil {
		return err
	}
	if r.Until.IsZero() {
		r.Released += int64(n)
	}
	return t.store(ctx, next, left || held)
}

// laterPlace is where those after the set stand, or all if there is none.
func (t *releaseTurn) laterPlace() *webhook.DeliveryID {
	if t.release.Until.IsZero() {
		return &t.done.Place.Set
	}
	return &t.done.Place.Later
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// span are the deliveries with ids above low, and up to high.
type span struct{ low, high webhook.DeliveryID }

// takeFrom releases up to n of a span, and returns how many, and whether some are or may be held still. After the end of a pass, the next turn begins
// with the lowest.
func (t *releaseTurn) takeFrom(ctx context.Context, of span, place *webhook.DeliveryID, n int) (released int, held bool, err error) {
	if n <= 0 {
		return 0, true, nil
	}
	if bytes.Compare(place[:], of.low[:]) < 0 || bytes.Compare(place[:], of.high[:]) > 0 {
		*place = of.low
	}
	// All columns at once: a second look at the rows, by their ids, would read the primary keys of all partitions.
	rows, err := t.tx.Query(ctx, `
		select `+Columns+` from deliveries d where d.endpoint_id = $1 and d.id > $2 and d.id <= $3 and `+IsHeld+`
		order by d.id limit $4 for update of d skip locked`, t.EndpointID, *place, of.high, n)
	if err != nil {
		return 0, true, err
	}
	found, err := pgx.CollectRows(rows, Scan)
	if err != nil {
		return 0, true, err
	}
	if len(found) > 0 {
		starts, err := Release(ctx, t.tx, t.now, found, RelayAfter)
		if err != nil {
			return 0, true, err
		}
		t.done.Starts, released = append(t.done.Starts, starts...), len(starts)
	}
	switch {
	case len(found) == n:
		*place = found[n-1].DeliveryID
		return released, true, nil
	case len(found) > 0 || *place != of.low:
		*place = of.low
		return released, true, nil
	}
	held, err = hasHeld(ctx, t.tx, t.EndpointID, of.low, of.high)
	return 0, held, err
}

// hasHeld reports whether an endpoint has deliveries in a span that are held, or have been released and have not begun.
func hasHeld(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, low, high webhook.DeliveryID) (held bool, err error) {
	err = tx.QueryRow(ctx, `select exists (
		select from deliveries where endpoint_id = $1 and id > $2 and id <= $3 and state = `+postgres.Held+`)`, id, low, high).Scan(&held)
	return held, err
}

// count counts a page of the set, from its end down to where the release stands. So nothing is counted that was released, and nothing is
// released that was counted before all are.
func (t *releaseTurn) count(ctx context.Context) error {
	r, place := &t.release, &t.done.Place
	if r.Total != nil {
		return nil
	}
	if place.CountedTo.IsZero() {
		place.Counted, place.CountedTo = 0, r.Until
	}
	var (
		n      int
		lowest *[16]byte
	)
	err := t.tx.QueryRow(ctx, `
		select count(*), min(id::text collate "C")::uuid from (
			select id from deliveries where endpoint_id = $1 and id > $2 and id <= $3 and state = `+postgres.Held+` order by id desc limit $4) d`,
		t.EndpointID, place.Set, place.CountedTo, countPage).Scan(&n, &lowest)
	if err != nil {
		return err
	}
	place.Counted += int64(n)
	if n < countPage {
		r.Total = new(r.Released + place.Counted)
		return nil
	}
	place.CountedTo = before(*lowest)
	return nil
}

// before is the id before another.
func before(id webhook.DeliveryID) webhook.DeliveryID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}

// store stores the release after the turn. held says that some are held still.
func (t *releaseTurn) store(ctx context.Context, next time.Time, held bool) error {
	r := &t.release
	ends := t.now.Sub(r.StartedAt) >= settleTime
	if r.State == webhook.ReleaseStopped {
		ends = r.Total != nil || r.Until.IsZero()
	}
	if ends && !held {
		return t.end(ctx)
	}
	if len(t.done.Starts) == 0 { // nothing can be released now
		next = latest(next, t.now.Add(min(max(t.Look, firstLook), lastLook)))
	}
	if r.Total != nil && *r.Total < r.Released {
		r.Total = &r.Released
	}
	_, err := t.tx.Exec(ctx, `update releases set released = $2, total = $3, next_at = $4 where endpoint_id = $1`,
		t.EndpointID, r.Released, r.Total, next)
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
	_, err := t.tx.Exec(ctx, `update releases set state = $2, released = $3, total = $4, next_at = null where endpoint_id = $1`,
		t.EndpointID, int16(state), r.Released, total)
	return err
}

// ReleaseExpired releases up to limit held deliveries whose give-up time has passed. The workflow that
// starts gives them up. It reads the index deliveries_overdue from its beginning.
func (s *Releases) ReleaseExpired(ctx context.Context, limit int) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "release expired deliveries", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+Columns+` from deliveries d
			where d.state `+postgres.IsOpen+` and `+goesOn+` < now() and `+IsHeld+`
			order by `+goesOn+` limit $1 for update of d skip locked`, limit)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, Scan)
		if err != nil {
			return err
		}
		starts, err = Release(ctx, tx, s.core.Now(), found, RelayAfter)
		return err
	})
	return starts, err
}

// Release releases held deliveries that this transaction has locked. The relay starts those that
// are not started within after.
//
// A concurrent release does not change a delivery's row, so the lock does not reveal it. Its outbox row
// does.
func Release(ctx context.Context, tx pgx.Tx, now time.Time, held []webhook.Delivery, after time.Duration) (starts []webhook.Start, err error) {
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
		ob[i], known[d.DeliveryID] = OutboxRow{Start: all[i], After: after}, all[i]
	}
	webhook.Assign(all)
	batch := &pgx.Batch{}
	ob.queueNew(batch, func(id webhook.DeliveryID) { starts = append(starts, *known[id]) })
	err = tx.SendBatch(ctx, batch).Close()
	return starts, err
}

// HeldDepth returns how many deliveries are held, and when the event of the oldest one was accepted; the
// zero time without any. It counts no further than 100,001, which means "more than 100,000", and the
// oldest is one of those counted.
func (s *Releases) HeldDepth(ctx context.Context) (n int64, oldest time.Time, err error) {
	var id *[16]byte
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "count held deliveries", func(ctx context.Context, conn postgres.Querier) error {
		// Of the ids, which begin with the time, because the index has them.
		return conn.QueryRow(ctx, `
			select count(*), min(id::text)::uuid from (select id from deliveries where state = `+postgres.Held+` limit $1) d`,
			MaxCountedOverall+1).Scan(&n, &id)
	})
	if err != nil || id == nil {
		return n, time.Time{}, err
	}
	age := s.core.Now().Sub(webhook.DeliveryID(*id).Time())
	return n, time.Now().Add(-age), nil // as old by this process's clock as it is by the database's
}
