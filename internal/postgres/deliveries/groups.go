package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// GroupDeadLetters groups a tenant's newest webhook.MaxCounted dead letters by endpoint, reason and last status. Its
// errors are those of postgres.ReadList.
func (s *Deliveries) GroupDeadLetters(ctx context.Context, tenantID string, f webhook.DeliveryFilter) (webhook.DeadLetterGroups, error) {
	f.States = []webhook.State{webhook.StateDeadLettered}
	q := postgres.FilterQuery{Args: []any{tenantID}}
	conditions := indexed(&q, "d.id", "d", f, webhook.Page{}) + passesFilters(&q, "d", f)
	sql := `select endpoint_id, reason, status, count(*), min(created_at), max(created_at), (array_agg(id order by id desc))[1], (sum(count(*)) over ())::bigint
		from (select d.id, d.endpoint_id, d.reason, coalesce(d.last_status, 0) as status, d.created_at from deliveries d
			where d.tenant_id = $1` + conditions + ` order by d.id desc limit ` + q.Arg(webhook.MaxCounted+1) + `) newest
		group by endpoint_id, reason, status order by count(*) desc, max(created_at) desc limit ` + q.Arg(webhook.MaxGroups)
	counted := 0
	scan := func(row pgx.CollectableRow) (webhook.DeadLetterGroup, error) {
		var (
			g                 webhook.DeadLetterGroup
			endpoint, example [16]byte
		)
		err := row.Scan(&endpoint, &g.Reason, &g.Status, &g.Count, &g.Oldest, &g.Newest, &example, &counted)
		g.EndpointID, g.Example = endpoint, example
		g.Oldest, g.Newest = g.Oldest.UTC(), g.Newest.UTC()
		return g, err
	}
	groups, err := postgres.ReadList(ctx, s.core, s.core.OfTenant(tenantID), "group dead letters", scan, sql, q.Args...)
	return webhook.DeadLetterGroups{Groups: groups, Counted: min(counted, webhook.MaxCounted), More: counted > webhook.MaxCounted}, err
}
