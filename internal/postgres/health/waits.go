package health

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// waits counts the open deliveries of endpoints, and finds their last delivered attempt in the statistics. For each endpoint it reads a bounded
// number of rows, by indexes: deliveries_open, and the newest minutes and hours with attempts.
const waits = `
	select e.id, w.n, coalesce(m.at, h.at) from unnest($1::uuid[]) e (id)
	cross join lateral (
		select count(*) as n from (
			select from deliveries where endpoint_id = e.id and state ` + postgres.IsOpen + ` and state <= ` + postgres.Held + ` limit $2) d) w
	left join lateral (
		select s.at from (
			select at, attempt_delivered from statistics_minutes where tenant_id = $3 and endpoint_id = e.id order by at desc limit 60) s
		where s.attempt_delivered > 0 order by s.at desc limit 1) m on true
	left join lateral (
		select s.at from (
			select at, attempt_delivered from statistics_hours where tenant_id = $3 and endpoint_id = e.id order by at desc limit 48) s
		where s.attempt_delivered > 0 order by s.at desc limit 1) h on m.at is null`

// WaitsOf returns what waits for endpoints of a tenant and when they last got a delivery, in one read.
func (s *EndpointHealth) WaitsOf(ctx context.Context, tenantID string, ids []webhook.EndpointID) (map[webhook.EndpointID]webhook.Waits, error) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	found := make(map[webhook.EndpointID]webhook.Waits, len(ids))
	err := s.core.OfTenant(tenantID).WithConn(ctx, "read what waits for endpoints", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, waits, raw, webhook.MaxListed+1, tenantID)
		if err != nil {
			return err
		}
		var (
			id [16]byte
			n  int
			at *time.Time
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &n, &at}, func() error {
			found[id] = webhook.Waits{Waiting: min(n, webhook.MaxListed), More: n > webhook.MaxListed, LastSuccess: postgres.OrZero(at)}
			return nil
		})
		return err
	})
	return found, err
}
