package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// IsHeld is a delivery of the table d that waits to be released and is not being released
// yet: one that is has an outbox row, and then an owner. One with a command is started for that.
const IsHeld = `d.state = ` + postgres.Held + ` and d.command = ` + postgres.NoCommand + ` and (d.owner is null or d.owner_until < now())
	and not exists (select from outbox o where o.delivery_id = d.id)`

// Held finds deliveries that are held although nothing holds them any more, and releases them.
type Held struct{ core *postgres.Core }

// NewHeld makes a Held.
func NewHeld(s *postgres.Core) *Held { return &Held{s} }

// BacklogEndpoints are the active endpoints for which something is held because too
// much was waiting: at most limit, those after the given one, in the order of their ids.
func (s *Held) BacklogEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return s.endpoints(ctx, "look for a backlog", webhook.ReasonBacklog, after, limit)
}

// ReleaseBacklog releases up to limit of what is held for an active endpoint because
// too much was waiting, the oldest first. They are to be started, and wait in the outbox
// until their next step: the relay makes up for a caller that does not start them.
func (s *Held) ReleaseBacklog(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error) {
	return s.release(ctx, "release a backlog", webhook.ReasonBacklog, endpoint, limit)
}

// FaultyEndpoints is BacklogEndpoints for what is held because of a fault of our own.
func (s *Held) FaultyEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return s.endpoints(ctx, "look for endpoints with a fault of our own", webhook.ReasonInternal, after, limit)
}

// ReleaseFaulty is ReleaseBacklog for what is held because of a fault of our own.
func (s *Held) ReleaseFaulty(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error) {
	return s.release(ctx, "release what a fault of our own has held", webhook.ReasonInternal, endpoint, limit)
}

// withHeld is the endpoints for which something is held, after the id $1: a step from endpoint
// to endpoint through the index of what is held, for each.
const withHeld = `
		with recursive held (id) as (
			(select endpoint_id from deliveries where state = ` + postgres.Held + ` and endpoint_id > $1 order by endpoint_id limit 1)
			union all
			select (select endpoint_id from deliveries where state = ` + postgres.Held + ` and endpoint_id > held.id order by endpoint_id limit 1)
			from held where held.id is not null)`

// endpoints are active endpoints for which something is held for a reason.
func (s *Held) endpoints(ctx context.Context, op, reason string, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), op, scanEndpointID, withHeld+`
		select e.id from held join endpoints e on e.id = held.id
		where e.state = `+postgres.EndpointActive+` and e.deleted_at is null
		  and exists (select from deliveries d where d.endpoint_id = e.id and d.state = `+postgres.Held+` and d.reason = $2)
		limit $3`, after, reason, limit)
}

func scanEndpointID(row pgx.CollectableRow) (webhook.EndpointID, error) {
	var id [16]byte
	err := row.Scan(&id)
	return id, err
}

// release releases what is held for an active endpoint for a reason.
func (s *Held) release(ctx context.Context, op, reason string, endpoint webhook.EndpointID, limit int,
) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+Columns+` from deliveries d
			where d.endpoint_id = $1 and d.reason = $2 and `+IsHeld+`
			  and exists (select from endpoints e where e.id = $1 and e.state = `+postgres.EndpointActive+` and e.deleted_at is null)
			order by d.id limit $3 for update of d skip locked`, endpoint, reason, limit)
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

// ReleaseExpired releases up to limit of what is held and whose give-up time has passed: the
// workflow that starts gives it up.
func (s *Held) ReleaseExpired(ctx context.Context, limit int) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().InTx(ctx, "release what has expired", func(ctx context.Context, tx pgx.Tx) error {
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

// Release lets held deliveries try again, which this transaction has locked. The relay
// starts those that nobody has started when after has passed.
//
// A concurrent release leaves a delivery's row as it was, so that the lock alone does not
// show it: the row in the outbox does.
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

// HeldDepth is how many deliveries are held. It counts no further than 100,001, which
// stands for "more than 100,000".
func (s *Held) HeldDepth(ctx context.Context) (n int64, err error) {
	err = s.core.AsWorker().WithConn(ctx, "count what is held", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select count(*) from (select from deliveries where state = `+postgres.Held+` limit $1) d`, maxCounted+1).Scan(&n)
	})
	return n, err
}
