package health

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	attentionLooks   = 1_000 // endpoints of each kind that are looked at
	attentionMinutes = 20_000
)

// troubled counts, for each tenant, the endpoints that workers observe (the primary key of endpoint_health), those that are stopped (the index
// endpoints_stopped) and the dead letters that came within the last hour (statistics_minutes_dead), and orders the tenants by them. Each of the three reads
// is bounded.
const troubled = `
	with looked as (
		(select distinct endpoint_id as id from endpoint_health
		where seen_at > now() - $1::bigint * interval '1 millisecond' order by 1 limit $2)
		union
		(select id from endpoints where state <> ` + postgres.EndpointActive + ` and deleted_at is null order by state_since desc nulls last, id limit $2)),
	ill as (
		select e.tenant_id, count(*) as n, count(*) filter (where e.state <> ` + postgres.EndpointPaused + `) as bad
		from looked join endpoints e using (id) where e.deleted_at is null and not e.internal group by 1),
	dead as (
		select tenant_id, sum(ended_dead_lettered) as n from (
			select tenant_id, ended_dead_lettered from statistics_minutes
			where endpoint_id = '00000000-0000-0000-0000-000000000000' and tenant_id <> '' and ended_dead_lettered > 0 and at > now() - interval '1 hour'
			order by at desc limit $3) newest
		group by 1)
	select t.id, t.name, coalesce(ill.n, 0), coalesce(dead.n, 0)
	from ill full join dead using (tenant_id) join tenants t on t.id = coalesce(ill.tenant_id, dead.tenant_id)
	order by coalesce(ill.bad, 0) > 0 or coalesce(dead.n, 0) > 0 desc, coalesce(ill.bad, 0) > 0 desc, coalesce(dead.n, 0) desc, ill.n desc nulls last, 1
	limit $4`

// TroubledTenants returns the tenants that may need attention, at most limit: first those with endpoints that are not entirely healthy, then those
// with dead letters, and last those whose endpoints were only paused.
func (s *EndpointHealth) TroubledTenants(ctx context.Context, limit int) (found []webhook.TroubledTenant, err error) {
	err = s.core.AsOperator().ByIndex().WithConn(ctx, "look for tenants that need attention", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, troubled, observationLife.Milliseconds(), attentionLooks, attentionMinutes, limit)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[webhook.TroubledTenant])
		return err
	})
	return found, err
}

// undelivered counts what waits for endpoints, what is held and what was given up, each up to a bound and by an index of its own: deliveries_open,
// deliveries_release and deliveries_dead_of_endpoint. What waits has a due time, as in countWaiting.
const undelivered = `
	select e.id, waiting.n, held.n, dead.n
	from unnest($1::uuid[]) e (id)
	cross join lateral (select count(*) as n from (
		select from deliveries where endpoint_id = e.id and state < ` + postgres.Held + ` and state ` + postgres.IsOpen + ` and due_at is not null
		order by due_at limit $2) d) waiting
	cross join lateral (select count(*) as n from (
		select from deliveries where endpoint_id = e.id and state = ` + postgres.Held + ` order by id limit $2) d) held
	cross join lateral (select count(*) as n from (
		select from deliveries where endpoint_id = e.id and state = ` + postgres.DeadLettered + ` order by completed_at desc limit $2) d) dead`

// UndeliveredOf counts the deliveries to a tenant's endpoints that have not arrived. An endpoint without any may be missing in the result.
func (s *EndpointHealth) UndeliveredOf(
	ctx context.Context, tenantID string, ids []webhook.EndpointID,
) (map[webhook.EndpointID]webhook.Undelivered, error) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	found := make(map[webhook.EndpointID]webhook.Undelivered, len(ids))
	err := s.core.OfTenant(tenantID).ByIndex().WithConn(ctx, "count what has not arrived", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, undelivered, raw, webhook.MaxListed)
		if err != nil {
			return err
		}
		var (
			id [16]byte
			n  webhook.Undelivered
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &n.Waiting, &n.Held, &n.GivenUp}, func() error {
			found[id] = n
			return nil
		})
		return err
	})
	return found, err
}
