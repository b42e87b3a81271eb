package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// overdueAfter is how long after its time an open delivery counts as overdue: longer than a
	// workflow needs to recover from a fault, or to move to another process.
	overdueAfter = 2 * time.Minute
	// expiredAfter is the same for a dead letter whose retention has passed.
	expiredAfter = time.Hour

	// goesOn is when an open delivery changes at the latest: a held one when it expires, one that
	// is being sent at the end of its claim. There is an index on it.
	goesOn = `(case when state = ` + postgres.Held + ` then coalesce(held_until, give_up_at) else coalesce(due_at, owner_until, give_up_at) end)`
)

// Overdue takes up to limit open deliveries whose workflow is late or gone, the longest overdue first,
// beginning after the page that ended at from. No process gets them again before the time again has
// passed.
func (s *Deliveries) Overdue(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
	return takePage(ctx, s.core, "find overdue deliveries", "state "+postgres.IsOpen, goesOn, from, overdueAfter, again, limit)
}

// Expired does the same for dead letters that should have been discarded: those given up longer ago than
// keep.
func (s *Deliveries) Expired(ctx context.Context, keep time.Duration, from webhook.Cursor, again time.Duration, limit int,
) ([]webhook.Delivery, webhook.Cursor, error) {
	return takePage(ctx, s.core, "find expired dead letters", "state = "+postgres.DeadLettered, "completed_at", from, keep+expiredAfter, again, limit)
}

// takePage takes deliveries in a state whose time, which has an index, passed longer than late ago. A
// page begins after the last row of the page before, so that no row is read twice.
func takePage(ctx context.Context, core *postgres.Core, op, state, at string, from webhook.Cursor, late, again time.Duration, limit int,
) ([]webhook.Delivery, webhook.Cursor, error) {
	last := from
	found, err := postgres.QueryAll(ctx, core.AsWorker().ByIndex(), op, func(row pgx.CollectableRow) (webhook.Delivery, error) {
		var (
			scan = Scanner{}
			time time.Time
		)
		err := row.Scan(append([]any{&time}, scan.targets()...)...)
		d := scan.delivery()
		if next := (webhook.Cursor{At: time, ID: d.DeliveryID}); next.After(last) {
			last = next
		}
		return d, err
	}, `
		with late as materialized (
			select id from deliveries
			where `+state+` and `+at+` < now() - $2::bigint * interval '1 millisecond'
			  and `+at+` >= $4 and (`+at+` > $4 or id > $5)
			  and (reconciled_at is null or reconciled_at < now() - $3::bigint * interval '1 millisecond')
			order by `+at+`, id limit $1 for update skip locked)
		update deliveries d set reconciled_at = now() where `+isOneOf("late")+`
		returning `+at+`, `+Columns, limit, late.Milliseconds(), again.Milliseconds(), from.At, [16]byte(from.ID))
	return found, last, err
}

// TakeOver assigns open deliveries of a shared workflow that has ended to another one, and
// returns those that it has assigned. Deliveries of other workflows stay as they are.
func (s *Deliveries) TakeOver(ctx context.Context, from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return postgres.QueryAll(ctx, s.core.AsWorker(), "hand deliveries to another workflow", Scan, `
		with taken as materialized (select id from deliveries where id = any($3) and workflow_id = $1 and state `+postgres.IsOpen+` order by id for update)
		update deliveries d set workflow_id = $2, reconciled_at = now() where `+isOneOf("taken")+`
		returning `+Columns, from, to, raw)
}
