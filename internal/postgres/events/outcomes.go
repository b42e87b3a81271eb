package events

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// maxCounted bounds the deliveries of one millisecond that are counted for a list of events: a batch of 100 events has as many with 200 endpoints each.
const maxCounted = 20_000

// ExternalIDs are those of a tenant's events, read by key. An event without one, and one that was removed, is not among them. CodeRateLimited and
// CodeUnavailable: see postgres.ReadList.
func (s *Events) ExternalIDs(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]string, error) {
	if len(ids) == 0 {
		return map[webhook.EventID]string{}, nil
	}
	type row struct {
		ID         [16]byte
		ExternalID string
	}
	found, err := postgres.ReadList(ctx, s.core, s.core.OfTenant(tenantID), "read the external ids of events", pgx.RowToStructByPos[row], `
		select e.id, e.external_id from unnest($1::uuid[]) u (id) cross join lateral (
			select id, external_id from events where id = u.id and tenant_id = $2 and external_id <> '' limit 1) e`, deliveries.RawIDs(ids), tenantID)
	all := make(map[webhook.EventID]string, len(found))
	for _, r := range found {
		all[r.ID] = r.ExternalID
	}
	return all, err
}

// Outcomes counts the deliveries of events of a tenant by where they stand, up to webhook.MaxOutcomes of each event. An event without
// deliveries is not among them. CodeRateLimited and CodeUnavailable: see postgres.ReadList.
//
// The deliveries of each millisecond in which one of the events was accepted are read once, by the index of the tenant: some four blocks for each, and
// one for each delivery.
func (s *Events) Outcomes(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.EventOutcomes, error) {
	windows := map[time.Time]bool{}
	var lows, highs [][16]byte
	for _, id := range ids {
		if at := id.Time(); !windows[at] {
			windows[at] = true
			lows, highs = append(lows, postgres.IDsFrom(at)), append(highs, postgres.IDsFrom(at.Add(time.Millisecond)))
		}
	}
	type row struct {
		ID    [16]byte
		State int16
		N     int
	}
	found, err := postgres.ReadList(ctx, s.core, s.core.OfTenant(tenantID), "count the deliveries of events", pgx.RowToStructByPos[row], `
		with w as materialized (select * from unnest($3::uuid[], $4::uuid[]) w (low, high))
		select d.event_id, d.state, count(*) from w cross join lateral (
			select event_id, state from deliveries
			where tenant_id = $1 and id >= w.low and id < w.high and event_id = any($2) limit $5) d group by 1, 2
		union all
		select o.event_id, `+postgres.Pending+`, count(*) from w cross join lateral (
			select o.event_id from outbox o where o.tenant_id = $1 and o.delivery_id >= w.low and o.delivery_id < w.high and o.event_id = any($2)
				and not exists (select from deliveries d where d.id = o.delivery_id) limit $5) o group by 1`,
		tenantID, deliveries.RawIDs(ids), lows, highs, maxCounted)
	outcomes := make(map[webhook.EventID]webhook.EventOutcomes, len(found))
	for _, r := range found {
		of := outcomes[r.ID]
		of.Add(webhook.State(r.State), r.N) //nolint:gosec // written by us
		outcomes[r.ID] = of
	}
	return outcomes, err
}
