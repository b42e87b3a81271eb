package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// overdueAfter is how long after its time an open delivery is asked about: longer
	// than a workflow needs to go on after a fault of its own, or to be made elsewhere.
	overdueAfter = 2 * time.Minute
	// expiredAfter is the same for a dead letter whose retention has passed.
	expiredAfter = time.Hour

	// goesOn is from when an open delivery should have gone on by itself: a held one
	// when it is to be given up, one that is being sent when the right to send has
	// ended. There is an index on it.
	goesOn = `(case when state = ` + postgres.Held + ` then give_up_at else coalesce(due_at, owner_until, give_up_at) end)`
)

// Overdue takes up to limit open deliveries whose time has passed a while ago, the
// longest overdue first, from where the page before ended: their workflow is late, or
// there is none. They are not handed out again for the time again, by any process.
func (s *Deliveries) Overdue(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
	return s.takePage(ctx, "look for overdue deliveries", "state "+postgres.IsOpen, goesOn, from, overdueAfter, again, limit)
}

// Expired takes up to limit dead letters that were to be discarded a while ago: what
// completed longer ago than keep. Else it is like Overdue.
func (s *Deliveries) Expired(ctx context.Context, keep time.Duration, from webhook.Cursor, again time.Duration, limit int,
) ([]webhook.Delivery, webhook.Cursor, error) {
	return s.takePage(ctx, "look for expired dead letters", "state = "+postgres.DeadLettered, "completed_at", from, keep+expiredAfter, again, limit)
}

// takePage takes what is in a state and whose time, by an index, has passed for longer than
// late. A page begins after the last row of the one before: what was looked at there is not
// read again.
func (s *Deliveries) takePage(ctx context.Context, op, state, at string, from webhook.Cursor, late, again time.Duration, limit int,
) ([]webhook.Delivery, webhook.Cursor, error) {
	last := from
	found, err := postgres.QueryAll(ctx, s.core.AsWorker(), op, func(row pgx.CollectableRow) (webhook.Delivery, error) {
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
		update deliveries d set reconciled_at = now()
		where id in (
			select id from deliveries
			where `+state+` and `+at+` < now() - $2::bigint * interval '1 millisecond'
			  and `+at+` >= $4 and (`+at+` > $4 or id > $5)
			  and (reconciled_at is null or reconciled_at < now() - $3::bigint * interval '1 millisecond')
			order by `+at+`, id limit $1 for update skip locked)
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
		update deliveries d set workflow_id = $2, reconciled_at = now()
		where id in (select id from deliveries where id = any($3) and workflow_id = $1 and state `+postgres.IsOpen+` order by id for update)
		returning `+Columns, from, to, raw)
}
