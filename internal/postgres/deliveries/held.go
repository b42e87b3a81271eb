package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// IsHeld is a delivery of the table d that waits to be released and is not being released
	// yet: one that is has a command or an outbox row, and then an owner.
	IsHeld = `d.state = 2 and d.command = 0 and (d.owner is null or d.owner_until < now())
		and not exists (select from outbox o where o.delivery_id = d.id)`
	// LongAgo is the age of a command that the relay is to signal at once.
	LongAgo = time.Hour
)

// Held finds deliveries that are held although nothing holds them any more, and releases them.
type Held struct{ core *postgres.Core }

func NewHeld(s *postgres.Core) *Held { return &Held{s} }

// BacklogEndpoints are the active endpoints for which something is held because too
// much was waiting: at most limit, those after the given one, in the order of their ids.
func (s *Held) BacklogEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return s.endpoints(ctx, "look for a backlog", webhook.ReasonBacklog, after, limit)
}

// ReleaseBacklog releases up to limit of what is held for an active endpoint because
// too much was waiting, the oldest first; what was rescheduled waits for its time. Those
// without a workflow are returned as starts, and wait in the outbox until their
// next step; the others as commands to be signalled. Either way the relay makes up for
// a caller that does not.
func (s *Held) ReleaseBacklog(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, []webhook.CommandedDelivery, error) {
	return s.release(ctx, "release a backlog", webhook.ReasonBacklog, endpoint, limit)
}

// FaultyEndpoints is BacklogEndpoints for what is held because of a fault of our own.
func (s *Held) FaultyEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return s.endpoints(ctx, "look for endpoints with a fault of our own", webhook.ReasonInternal, after, limit)
}

// ReleaseFaulty is ReleaseBacklog for what is held because of a fault of our own.
func (s *Held) ReleaseFaulty(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, []webhook.CommandedDelivery, error) {
	return s.release(ctx, "release what a fault of our own has held", webhook.ReasonInternal, endpoint, limit)
}

// withHeld is the endpoints for which something is held, after the id $1: a step from endpoint
// to endpoint through the index of what is held, for each.
const withHeld = `
		with recursive held (id) as (
			(select endpoint_id from deliveries where state = 2 and endpoint_id > $1 order by endpoint_id limit 1)
			union all
			select (select endpoint_id from deliveries where state = 2 and endpoint_id > held.id order by endpoint_id limit 1)
			from held where held.id is not null)`

// endpoints are active endpoints for which something is held for a reason.
func (s *Held) endpoints(ctx context.Context, op, reason string, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), op, scanEndpointID, withHeld+`
		select e.id from held join endpoints e on e.id = held.id
		where e.state = 0 and e.deleted_at is null
		  and exists (select from deliveries d where d.endpoint_id = e.id and d.state = 2 and d.reason = $2 and d.due_at is null)
		limit $3`, after, reason, limit)
}

func scanEndpointID(row pgx.CollectableRow) (webhook.EndpointID, error) {
	var id [16]byte
	err := row.Scan(&id)
	return id, err
}

// release releases what is held for an active endpoint for a reason.
func (s *Held) release(ctx context.Context, op, reason string, endpoint webhook.EndpointID, limit int,
) (starts []webhook.Start, commands []webhook.CommandedDelivery, err error) {
	err = s.core.AsWorker().InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+Columns+` from deliveries d
			where d.endpoint_id = $1 and d.reason = $2 and d.due_at is null and `+IsHeld+`
			  and exists (select from endpoints e where e.id = $1 and e.state = 0 and e.deleted_at is null)
			order by d.id limit $3 for update of d skip locked`, endpoint, reason, limit)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, Scan)
		if err != nil {
			return err
		}
		starts, commands, err = Release(ctx, tx, s.core.Now(), found, RelayAfter, 0)
		return err
	})
	return starts, commands, err
}

// ReleaseExpired releases up to limit of what is held without a workflow and whose give-up
// time has passed: the workflow that starts gives it up. The others have workflows, with timers.
func (s *Held) ReleaseExpired(ctx context.Context, limit int) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().InTx(ctx, "release what has expired", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+Columns+` from deliveries d
			where d.state < 3 and `+goesOn+` < now() and d.workflow_id = '' and `+IsHeld+`
			order by `+goesOn+` limit $1 for update of d skip locked`, limit)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, Scan)
		if err != nil {
			return err
		}
		starts, _, err = Release(ctx, tx, s.core.Now(), found, RelayAfter, 0)
		return err
	})
	return starts, err
}

// Release lets held deliveries try again, which this transaction has locked. The relay
// starts those without a workflow when after has passed. It signals the others when their
// command, which is dated back by age, is old enough.
//
// A concurrent release leaves a delivery's row as it was, so that the lock alone does not
// show it: the row in the outbox does.
func Release(ctx context.Context, tx pgx.Tx, now time.Time, held []webhook.Delivery, after, age time.Duration,
) (starts []webhook.Start, commands []webhook.CommandedDelivery, err error) {
	var (
		ob      OutboxBatch
		free    = map[webhook.DeliveryID]webhook.Start{}
		carried = map[webhook.DeliveryID]webhook.Delivery{}
		ids     [][16]byte
	)
	now = now.UTC().Truncate(time.Microsecond)
	for _, d := range held {
		if d.WorkflowID != "" {
			carried[d.DeliveryID], ids = d, append(ids, d.DeliveryID)
			continue
		}
		start := webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt, Resume: &d.Progress}
		ob = append(ob, OutboxRow{Start: &start, After: after})
		free[d.DeliveryID] = start
	}
	batch := &pgx.Batch{}
	ob.queueNew(batch, func(id webhook.DeliveryID) { starts = append(starts, free[id]) })
	if len(ids) > 0 {
		batch.Queue(`
			update deliveries set command = $2, command_id = command_id + 1, command_reason = '', command_at = null,
				commanded_at = now() - $3::bigint * interval '1 millisecond', command_told = 0
			where id = any($1) returning id, command_id`, ids, int16(webhook.CommandRelease), age.Milliseconds()).
			Query(func(rows pgx.Rows) error {
				var (
					id      [16]byte
					command int64
				)
				_, err := pgx.ForEachRow(rows, []any{&id, &command}, func() error {
					commands = append(commands, webhook.CommandedDelivery{
						Delivery: carried[id], Command: webhook.PendingCommand{ID: command, Command: webhook.CommandRelease},
					})
					return nil
				})
				return err
			})
	}
	if batch.Len() == 0 {
		return nil, nil, nil
	}
	err = tx.SendBatch(ctx, batch).Close()
	return starts, commands, err
}

// HeldDepth is how many deliveries are held. It counts no further than 100,001, which
// stands for "more than 100,000".
func (s *Held) HeldDepth(ctx context.Context) (n int64, err error) {
	err = s.core.AsWorker().WithConn(ctx, "count what is held", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select count(*) from (select from deliveries where state = 2 limit $1) d`, maxCounted+1).Scan(&n)
	})
	return n, err
}
