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

// HeldEndpoints looks at up to limit held deliveries, in the order of their endpoints and reasons and beginning after a place, and returns the
// active or deleted endpoints among them with such deliveries. next is the place where it goes on; zero at the end. An endpoint may be
// returned again by the next call, for another reason.
//
// It looks at all held deliveries of few of them, or at the first ones of an endpoint and reason with more than limit, whose others it skips. So a
// call reads some three blocks for each partition, and up to two for each of the limit; and the replays of the endpoints' tenants.
func (s *Held) HeldEndpoints(ctx context.Context, after webhook.HeldPlace, limit int) (found []webhook.HeldEndpoint, next webhook.HeldPlace, err error) {
	seen, err := postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "find endpoints with held deliveries", pgx.RowToStructByPos[heldPair], `
		with page as materialized (
			select endpoint_id, reason, id from deliveries
			where state = `+postgres.Held+` and (endpoint_id, reason) > ($1, $2) order by endpoint_id, reason, id limit $3),
		pair as materialized (
			select endpoint_id, reason, min(id::text collate "C")::uuid as lowest, count(*) as n from page group by endpoint_id, reason)
		select p.endpoint_id, p.reason, p.n, coalesce(`+isReleased+` and (
			p.reason = $4 or p.reason = $5
			or p.reason in ($6, $7) and (p.lowest <= b.low or exists (
				select from deliveries d
				where d.endpoint_id = p.endpoint_id and d.state = `+postgres.Held+` and d.reason = p.reason and d.id >= b.high))), false)
		from pair p left join endpoints e on e.id = p.endpoint_id
		left join lateral (select `+releaseBounds+` from replays r where `+openReleaseOf+`) b on p.reason in ($6, $7)
		order by p.endpoint_id, p.reason`, after.EndpointID, after.Reason, limit,
		webhook.ReasonBacklog, webhook.ReasonInternal, webhook.ReasonPaused, webhook.ReasonDisabled)
	if err != nil {
		return nil, next, err
	}
	looked := 0
	for _, p := range seen {
		looked += p.Looked
		faulty := p.Reason == webhook.ReasonInternal
		switch last := len(found) - 1; {
		case !p.Releasable:
		case last >= 0 && found[last].ID == p.EndpointID:
			found[last].Faulty = found[last].Faulty || faulty
		default:
			found = append(found, webhook.HeldEndpoint{ID: p.EndpointID, Faulty: faulty})
		}
	}
	if looked == limit {
		last := seen[len(seen)-1]
		next = webhook.HeldPlace{EndpointID: last.EndpointID, Reason: last.Reason}
	}
	return found, next, nil
}

// heldPair is an endpoint and a reason for which deliveries are held.
type heldPair struct {
	EndpointID [16]byte
	Reason     string
	Looked     int
	Releasable bool
}

// ReleaseHeld releases up to limit held deliveries of an active or deleted endpoint, the oldest first. The caller
// starts them. They are in the outbox until their next step, so the relay starts those that the caller
// does not.
//
// For each of six conditions it reads up to limit rows of the index deliveries_backlog, from the beginning of each partition, and those before
// them that are being released already. Whatever the size of the table, that is some ten blocks for each partition, and four for each row.
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
		select * from candidate where exists (select from endpoints e where e.id = $1 and `+isReleased+`) order by id limit $2`,
		endpoint, limit, webhook.ReasonBacklog, webhook.ReasonInternal, webhook.ReasonPaused, webhook.ReasonDisabled)
}

// heldCandidates returns a query that reads and locks up to $2 held deliveries of the endpoint $1 that match, the
// oldest first. A match names one reason, because the index has the reason before the id.
//
// It reads all columns: a second look at the rows, by their ids, would read the primary keys of all partitions.
func heldCandidates(match string) string {
	return `select ` + Columns + ` from deliveries d where d.endpoint_id = $1 and ` + match + ` and ` + IsHeld + `
		order by d.id limit $2 for update of d skip locked`
}

// release releases the deliveries that a query finds and locks.
func (s *Held) release(ctx context.Context, op, query string, args ...any) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
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
func (s *Held) HeldDepth(ctx context.Context) (n int64, oldest time.Time, err error) {
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
