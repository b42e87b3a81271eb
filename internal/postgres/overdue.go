package postgres

import (
	"context"
	"time"

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
	goesOn = `(case when state = 2 then give_up_at else coalesce(due_at, owner_until, give_up_at) end)`
)

// Overdue takes up to limit open deliveries whose time has passed a while ago, the
// longest overdue first: their workflow is late, or there is none. They are not
// handed out again for the time again, by any process.
func (s *Store) Overdue(ctx context.Context, again time.Duration, limit int) ([]webhook.Delivery, error) {
	return queryAll(ctx, s.asWorker(), "look for overdue deliveries", scanDelivery, `
		update deliveries d set reconciled_at = now()
		where id in (
			select id from deliveries
			where state < 3 and `+goesOn+` < now() - $2::bigint * interval '1 millisecond'
			  and (reconciled_at is null or reconciled_at < now() - $3::bigint * interval '1 millisecond')
			order by `+goesOn+` limit $1 for update skip locked)
		returning `+deliveryColumns, limit, overdueAfter.Milliseconds(), again.Milliseconds())
}

// Expired takes up to limit dead letters that were to be discarded a while ago: what
// completed longer ago than keep. Else it is like Overdue.
func (s *Store) Expired(ctx context.Context, keep, again time.Duration, limit int) ([]webhook.Delivery, error) {
	return queryAll(ctx, s.asWorker(), "look for expired dead letters", scanDelivery, `
		update deliveries d set reconciled_at = now()
		where id in (
			select id from deliveries
			where state = 4 and completed_at < now() - $2::bigint * interval '1 millisecond'
			  and (reconciled_at is null or reconciled_at < now() - $3::bigint * interval '1 millisecond')
			order by completed_at limit $1 for update skip locked)
		returning `+deliveryColumns, limit, (keep + expiredAfter).Milliseconds(), again.Milliseconds())
}
