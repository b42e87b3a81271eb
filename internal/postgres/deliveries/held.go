package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// IsHeld selects held deliveries of the table d that are not being released. One that is being released
// has an outbox row, and then an owner. A claim counts for two minutes after its end, as it does for the
// reconciler: until then its process may still record the result. A delivery with a command is started
// because of that.
const IsHeld = `d.state = ` + postgres.Held + ` and d.command = ` + postgres.NoCommand + ` and (d.owner is null or d.owner_until < now() - interval '2 minutes')
	and not exists (select from outbox o where o.delivery_id = d.id)`

// isReleased selects endpoints e whose deliveries are released without a replay. Those of a deleted one are
// cancelled by their next attempt.
const isReleased = `(e.state = ` + postgres.EndpointActive + ` or e.deleted_at is not null)`

// Held finds and releases deliveries that should not be held any longer: those of active and of deleted
// endpoints, except those that an open release replay will release (see held_release.go), and those whose
// give-up time has passed.
type Held struct{ core *postgres.Core }

// NewHeld returns the store of held deliveries.
func NewHeld(s *postgres.Core) *Held { return &Held{s} }

// HeldEndpoints returns up to limit active or deleted endpoints with such deliveries: those after the given id,
// in the order of their ids.
func (s *Held) HeldEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.HeldEndpoint, error) {
	// The recursive part steps from endpoint to endpoint through the index of held deliveries.
	return postgres.QueryAll(ctx, s.core.AsWorker(), "find endpoints with held deliveries", scanHeldEndpoint, `
		with recursive held (id) as (
			(select endpoint_id from deliveries where state = `+postgres.Held+` and endpoint_id > $1 order by endpoint_id limit 1)
			union all
			select (select endpoint_id from deliveries where state = `+postgres.Held+` and endpoint_id > held.id order by endpoint_id limit 1)
			from held where held.id is not null)
		select e.id, r.faulty from held join endpoints e on e.id = held.id
		cross join lateral (
			select `+releaseBounds+`,
				exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $3) as faulty
			from replays r where `+openReleaseOf+`) r
		where `+isReleased+` and (
			r.faulty
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $2)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $4 and d.id <= r.low)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $5 and d.id <= r.low)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $4 and d.id >= r.high)
			or exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $5 and d.id >= r.high))
		order by held.id limit $6`, after, webhook.ReasonBacklog, webhook.ReasonInternal, webhook.ReasonPaused, webhook.ReasonDisabled, limit)
}

func scanHeldEndpoint(row pgx.CollectableRow) (e webhook.HeldEndpoint, err error) {
	var id [16]byte
	err = row.Scan(&id, &e.Faulty)
	e.ID = id
	return e, err
}

// ReleaseHeld releases up to limit held deliveries of an active or deleted endpoint, the oldest first. The caller
// starts them. They are in the outbox until their next step, so the relay starts those that the caller
// does not.
func (s *Held) ReleaseHeld(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error) {
	return s.release(ctx, "release held deliveries", `
		with release as materialized (
			select r.cursor, r.created_at from replays r join endpoints e on e.id = $1 where `+openReleaseOf+`),
		bound as materialized (select `+releaseBounds+` from release r),
		candidate as materialized (
			select * from (`+heldCandidates(`d.reason = $3`)+`) b
			union all select * from (`+heldCandidates(`d.reason = $4`)+`) i
			union all select * from (`+heldCandidates(`d.reason = $5 and d.id <= (select low from bound) and `+uncovered)+`) p
			union all select * from (`+heldCandidates(`d.reason = $6 and d.id <= (select low from bound) and `+uncovered)+`) q
			union all select * from (`+heldCandidates(`d.reason = $5 and d.id >= (select high from bound) and `+uncovered)+`) r
			union all select * from (`+heldCandidates(`d.reason = $6 and d.id >= (select high from bound) and `+uncovered)+`) s)
		select `+Columns+` from deliveries d
		where d.id in (select id from candidate)
		  and exists (select from endpoints e where e.id = $1 and `+isReleased+`)
		order by d.id limit $2 for update of d`,
		endpoint, limit, webhook.ReasonBacklog, webhook.ReasonInternal, webhook.ReasonPaused, webhook.ReasonDisabled)
}

// heldCandidates returns a query that locks up to $2 held deliveries of the endpoint $1 that match, the
// oldest first. A match names one reason, because the index has the reason before the id.
func heldCandidates(match string) string {
	return `select d.id from deliveries d where d.endpoint_id = $1 and ` + match + ` and ` + IsHeld + ` order by d.id limit $2 for update of d skip locked`
}

// release releases the deliveries that a query finds and locks.
func (s *Held) release(ctx context.Context, op, query string, args ...any) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
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
	if len(starts) > 0 {
		failpoint.Hit("release-after")
	}
	return starts, err
}

// ReleaseExpired releases up to limit held deliveries whose give-up time has passed. The workflow that
// starts gives them up.
func (s *Held) ReleaseExpired(ctx context.Context, limit int) ([]webhook.Start, error) {
	return s.release(ctx, "release expired deliveries", `
		select `+Columns+` from deliveries d
		where d.state `+postgres.IsOpen+` and `+goesOn+` < now() and `+IsHeld+`
		order by `+goesOn+` limit $1 for update of d skip locked`, limit)
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
		ob    OutboxBatch
		known = make(map[webhook.DeliveryID]webhook.Start, len(held))
	)
	now = now.UTC().Truncate(time.Microsecond)
	for _, d := range held {
		start := webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt, Resume: &d.Progress}
		ob = append(ob, OutboxRow{Start: &start, After: after})
		known[d.DeliveryID] = start
	}
	batch := &pgx.Batch{}
	ob.queueNew(batch, func(id webhook.DeliveryID) { starts = append(starts, known[id]) })
	err = tx.SendBatch(ctx, batch).Close()
	return starts, err
}

// HeldDepth returns how many deliveries are held, and when the event of the oldest one was accepted; the
// zero time without any. It counts no further than 100,001, which means "more than 100,000", and the
// oldest is one of those counted.
func (s *Held) HeldDepth(ctx context.Context) (n int64, oldest time.Time, err error) {
	var id *[16]byte
	err = s.core.AsWorker().WithConn(ctx, "count held deliveries", func(ctx context.Context, conn postgres.Querier) error {
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
