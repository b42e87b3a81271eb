package deliveries

import (
	"context"

	"github.com/everpost/everpost/internal/postgres"
)

// RetryDepth is how many deliveries wait for a retry. Counts go no further than 100,001, which means
// "more than 100,000".
type RetryDepth struct {
	Deliveries int64
	OverDay    int64 // of them in their first run, accepted more than 24 hours ago
	Largest    int64 // of the endpoint that has most of them
}

// RetryDepth counts the deliveries that wait for a retry. The index deliveries_retrying has just these, with what is counted of them.
func (s *Deliveries) RetryDepth(ctx context.Context) (d RetryDepth, err error) {
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "count retrying deliveries", func(ctx context.Context, conn postgres.Querier) error {
		// A later run begins long after the event, so that its age says nothing.
		return conn.QueryRow(ctx, `
			select coalesce(sum(n), 0)::bigint, coalesce(sum(late), 0)::bigint, coalesce(max(n), 0)
			from (
				select count(*) as n, count(*) filter (where run = 1 and created_at < now() - interval '24 hours') as late
				from (select endpoint_id, run, created_at from deliveries where state = `+postgres.Retrying+` order by endpoint_id limit $1) d
				group by endpoint_id
			) e`, MaxCountedOverall+1).Scan(&d.Deliveries, &d.OverDay, &d.Largest)
	})
	return d, err
}
