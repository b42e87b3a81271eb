package deliveries

import (
	"context"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// OpenCounts counts what waits and what was given up of a tenant, by the indexes deliveries_open_by_tenant and deliveries_dead_by_end. The latter is in
// the order in which deliveries were given up, so that those of the last hour come first however old they are, and lacks messages to the tenant's own chats.
func (s *Deliveries) OpenCounts(ctx context.Context, tenantID string) (n webhook.OpenCounts, err error) {
	err = s.core.OfTenant(tenantID).ByIndex().WithConn(ctx, "count what waits", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `
			select (select count(*) from (
					select from deliveries where tenant_id = $1 and state `+postgres.IsOpen+` order by id desc limit $2) d),
				l.n, l.of_hour
			from (select count(*) as n, count(*) filter (where completed_at > now() - interval '1 hour') as of_hour from (
				select completed_at from deliveries
				where tenant_id = $1 and state = `+postgres.DeadLettered+` and event_type <> '`+webhook.NotificationType+`'
				order by completed_at desc limit $2) d) l`,
			tenantID, webhook.MaxAttention).Scan(&n.Waiting, &n.DeadLetters, &n.LastHour)
	})
	return n, err
}
