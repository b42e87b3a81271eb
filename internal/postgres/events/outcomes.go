package events

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// Outcomes counts the deliveries of events of a tenant by where they stand, up to webhook.MaxOutcomes of each event. An event without
// deliveries is not among them.
//
// Each event's deliveries are read by the index of the tenant within the event's millisecond: some four blocks for each event, and one for each
// delivery.
func (s *Events) Outcomes(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.EventOutcomes, error) {
	lows, highs := make([][16]byte, len(ids)), make([][16]byte, len(ids))
	for i, id := range ids {
		lows[i], highs[i] = postgres.IDsFrom(id.Time()), postgres.IDsFrom(id.Time().Add(time.Millisecond))
	}
	type row struct {
		ID    [16]byte
		State int16
		N     int
	}
	found, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID).ByIndex(), "count the deliveries of events", pgx.RowToStructByPos[row], `
		with u as materialized (select * from unnest($2::uuid[], $3::uuid[], $4::uuid[]) u (id, low, high))
		select u.id, d.state, count(*) from u cross join lateral (
			select d.state from deliveries d where d.tenant_id = $1 and d.id >= u.low and d.id < u.high and d.event_id = u.id limit $5) d group by 1, 2
		union all
		select u.id, `+postgres.Pending+`, count(*) from u cross join lateral (
			select from outbox o where o.tenant_id = $1 and o.delivery_id >= u.low and o.delivery_id < u.high and o.event_id = u.id
				and not exists (select from deliveries d where d.id = o.delivery_id) limit $5) o group by 1`,
		tenantID, deliveries.RawIDs(ids), lows, highs, webhook.MaxOutcomes+1)
	outcomes := make(map[webhook.EventID]webhook.EventOutcomes, len(found))
	for _, r := range found {
		of := outcomes[r.ID]
		of.Add(webhook.State(r.State), r.N) //nolint:gosec // written by us
		outcomes[r.ID] = of
	}
	return outcomes, err
}
