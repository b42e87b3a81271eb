package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// maxLooked bounds the dead letters that are looked at: as many as a list looks at.
const maxLooked = 20_000

// GroupDeadLetters groups a tenant's newest webhook.MaxCounted dead letters by endpoint, reason and last status. Its
// errors are those of postgres.ReadList.
func (s *DeadLetters) GroupDeadLetters(ctx context.Context, tenantID string, f webhook.DeliveryFilter) (webhook.DeadLetterGroups, error) {
	f.States = []webhook.State{webhook.StateDeadLettered}
	q := postgres.FilterQuery{Args: []any{tenantID}}
	// Of dead letters that are not of the endpoint, or do not pass the filters, a bounded number is looked at, too. The index has all columns.
	of := f
	of.EndpointID = webhook.EndpointID{}
	looked := `select d.id, d.endpoint_id, d.event_type, d.reason, d.last_status, d.created_at, d.completed_at from deliveries d where ` + base(&q, of) +
		window(&q, "d.id", "d", f, webhook.Page{}) + ` order by d.id desc limit ` + q.Arg(maxLooked)
	passes := passesFilters(&q, "d", of)
	if f.EventType == "" || !webhook.FilterMatches(f.EventType, webhook.NotificationType) { // the tenant's own chats are not shown
		passes += " and d.event_type <> '" + webhook.NotificationType + "'"
	}
	if !f.EndpointID.IsZero() {
		passes += " and d.endpoint_id = " + q.Arg(f.EndpointID)
	}
	sql := `with looked as materialized (` + looked + `),
		groups as (
			select endpoint_id, reason, status, count(*) as n, min(created_at) as oldest, max(created_at) as newest,
				(array_agg(id order by id desc))[1] as example, (sum(count(*)) over ())::bigint as counted
			from (select d.id, d.endpoint_id, d.reason, coalesce(d.last_status, 0) as status, d.created_at from looked d
				where true` + passes + ` order by d.id desc limit ` + q.Arg(webhook.MaxCounted+1) + `) newest
			group by endpoint_id, reason, status order by n desc, newest desc limit ` + q.Arg(webhook.MaxGroups) + `)
		select m.more, g.endpoint_id, g.reason, g.status, g.n, g.oldest, g.newest, g.example, g.counted
		from (select count(*) = ` + q.Arg(maxLooked) + ` as more from looked) m left join groups g on true order by g.n desc, g.newest desc`
	rows, err := postgres.ReadList(ctx, s.core, s.core.OfTenant(tenantID), "group dead letters", pgx.RowToStructByPos[groupRow], sql, q.Args...)
	groups := webhook.DeadLetterGroups{}
	for _, r := range rows {
		groups.More = r.More
		if r.EndpointID == nil { // no group
			continue
		}
		groups.Groups = append(groups.Groups, webhook.DeadLetterGroup{
			EndpointID: *r.EndpointID, Reason: *r.Reason, Status: *r.Status, Count: *r.Count, Oldest: r.Oldest.UTC(), Newest: r.Newest.UTC(),
			Example: *r.Example,
		})
		groups.Counted, groups.More = min(*r.Counted, webhook.MaxCounted), r.More || *r.Counted > webhook.MaxCounted
	}
	return groups, err
}

// groupRow is a group, without one if there is none, and whether older dead letters were not looked at.
type groupRow struct {
	More           bool
	EndpointID     *[16]byte
	Reason         *string
	Status, Count  *int
	Oldest, Newest *time.Time
	Example        *[16]byte
	Counted        *int
}
