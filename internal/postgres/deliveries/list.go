package deliveries

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// ListDeliveries reads a page of a tenant's deliveries, newest first. Indexes serve the event, the endpoint, and the sets of states of
// indexedStates. Other filters, and an endpoint with any other filter, look at a bounded number of rows of one of these indexes: see
// postgres.ReadFiltered for searched and the errors.
func (s *Deliveries) ListDeliveries(ctx context.Context, tenantID string, f webhook.DeliveryFilter, p webhook.Page) (
	found []webhook.Delivery, searched [16]byte, err error,
) {
	c := s.core.OfTenant(tenantID)
	if f.ExternalID != "" {
		known, err := postgres.QueryAll(ctx, c, "find an event", pgx.RowTo[[16]byte],
			`select event_id from idempotency_keys where tenant_id = $1 and kind = 1 and key = $2`, tenantID, f.ExternalID)
		if err != nil || len(known) == 0 || !f.EventID.IsZero() && f.EventID != known[0] {
			return nil, searched, err
		}
		f.EventID = known[0]
	}
	bounds := searchDeliveries(tenantID, f, p)
	if len(bounds) == 0 {
		sql, args := listDeliveries(tenantID, f, p, searched)
		found, err = postgres.ReadList(ctx, s.core, c, "list deliveries", Scan, sql, args...)
		return found, searched, err
	}
	list := func(from [16]byte) (string, []any) { return listDeliveries(tenantID, f, p, from) }
	return postgres.ReadFiltered(ctx, s.core, c, "list deliveries", Scan, p, list, bounds...)
}

// listDeliveries selects a page of what passes a filter, from an id on.
func listDeliveries(tenantID string, f webhook.DeliveryFilter, p webhook.Page, from [16]byte) (sql string, args []any) {
	q := postgres.FilterQuery{Args: []any{tenantID}}
	conditions := func(id, t string) string {
		text := window(&q, id, t, f, p)
		if from != [16]byte{} {
			text += " and " + id + " >= " + q.Arg(from)
		}
		return text
	}
	recorded := base(&q, f) + conditions("d.id", "d") + passesFilters(&q, "d", f)
	limit := ` limit ` + q.Arg(p.Limit)
	read := `select ` + Columns + ` from deliveries d where ` + recorded + ` order by d.id desc` + limit
	if isDead(f) {
		// Few of many rows, each on a page of its own: the index has what the filters need, so only those that pass are read.
		read = `select ` + Columns + ` from (` + //nolint:unqueryvet // the columns are named before
			`select d.id from deliveries d where ` + recorded + ` order by d.id desc` + limit + `) i
			cross join lateral (select * from deliveries d where d.id = i.id limit 1) d`
	}
	pending := ""
	if wantsPending(f) {
		waiting := `select o.* from outbox o where o.tenant_id = $1` + //nolint:unqueryvet // what the list needs of them is named below
			conditions("o.delivery_id", "o") + pendingFilters(&q, f) + ` order by o.delivery_id desc`
		if !searchesOutbox(f) { // else from bounds it
			waiting += limit
		}
		// The newest of both, without those that are in both, have the newest of all.
		pending = ` union all select ` + outboxAsDelivery + ` from (` + waiting + `) o
			where not exists (select from deliveries d where ` + isOf + `)`
	}
	return `select * from ((` + read + `)` + pending + `) x order by 1 desc` + limit, q.Args
}

// searchDeliveries selects the ids of the rows that a list may look at, newest first: none if it needs no bound, because indexes give it just
// its rows.
func searchDeliveries(tenantID string, f webhook.DeliveryFilter, p webhook.Page) (bounds []postgres.Bound) {
	if f.EventID.IsZero() && passesFilters(&postgres.FilterQuery{}, "d", f) != "" {
		q := postgres.FilterQuery{Args: []any{tenantID}}
		sql := `select d.id from deliveries d where ` + base(&q, f) + window(&q, "d.id", "d", f, p) + ` order by d.id desc`
		bounds = append(bounds, postgres.Bound{SQL: sql, Args: q.Args})
	}
	if f.EventID.IsZero() && wantsPending(f) && searchesOutbox(f) {
		q := postgres.FilterQuery{Args: []any{tenantID}}
		sql := `select o.delivery_id from outbox o where o.tenant_id = $1` + window(&q, "o.delivery_id", "o", f, p) + ` order by o.delivery_id desc`
		bounds = append(bounds, postgres.Bound{SQL: sql, Args: q.Args})
	}
	return bounds
}

// wantsPending reports whether a list has deliveries that only have an outbox row.
func wantsPending(f webhook.DeliveryFilter) bool {
	return f.Reason == "" && f.Status == 0 && f.EndedSince.IsZero() && f.EndedUntil.IsZero() &&
		(len(f.States) == 0 || slices.Contains(f.States, webhook.StatePending))
}

// searchesOutbox reports whether some of the tenant's outbox rows may not be part of a list.
func searchesOutbox(f webhook.DeliveryFilter) bool {
	return len(f.States) > 0 || !f.EndpointID.IsZero() || f.EventType != ""
}

// pendingFilters are the conditions of a filter on outbox rows o, besides the window.
func pendingFilters(q *postgres.FilterQuery, f webhook.DeliveryFilter) (conditions string) {
	if !f.EndpointID.IsZero() {
		conditions = " and o.endpoint_id = " + q.Arg(f.EndpointID)
	}
	if f.EventType != "" {
		conditions += " and " + q.TypePasses("o.event_type", f.EventType)
	}
	return conditions
}

// base returns the condition of the index that a list of the tenant $1 reads from the table d. States are part of the text, because partial
// indexes name them.
//
// With an endpoint, the tenant is no condition that an index serves: of all rows of an index of tenants few may be of the endpoint. Row-level
// security has the tenant as well, but the condition is needed in a worker's role.
func base(q *postgres.FilterQuery, f webhook.DeliveryFilter) string {
	if f.EndpointID.IsZero() {
		return "d.tenant_id = $1" + indexedStates(f.States)
	}
	text := "d.tenant_id || '' = $1 and d.endpoint_id = " + q.Arg(f.EndpointID)
	if len(f.States) > 0 && !slices.Contains(f.States, webhook.StateDelivered) {
		text += " and d.state <> " + postgres.Delivered
	}
	return text
}

// indexedStates is the condition of the smallest partial index of a tenant's deliveries that has all in these states; "" for the whole index.
func indexedStates(states []webhook.State) string {
	all := func(match func(webhook.State) bool) bool {
		return len(states) > 0 && !slices.ContainsFunc(states, func(s webhook.State) bool { return !match(s) })
	}
	switch {
	case all(func(s webhook.State) bool { return s == webhook.StateHeld }):
		return " and d.state = " + postgres.Held
	case all(webhook.State.Open):
		return " and d.state " + postgres.IsOpen
	case all(func(s webhook.State) bool { return s == webhook.StateDeadLettered }):
		return " and d.state = " + postgres.DeadLettered
	case all(func(s webhook.State) bool { return s > webhook.StateDeadLettered }):
		return " and d.state > " + postgres.DeadLettered
	default:
		return ""
	}
}

// isIndexed reports whether the rows of indexedStates are just those in these states.
func isIndexed(states []webhook.State) bool {
	rest := map[webhook.State]bool{}
	for _, s := range states {
		rest[s] = true
	}
	switch indexedStates(states) {
	case " and d.state = " + postgres.Held, " and d.state = " + postgres.DeadLettered:
		return true
	case " and d.state " + postgres.IsOpen:
		return rest[webhook.StatePending] && rest[webhook.StateRetrying] && rest[webhook.StateHeld]
	case " and d.state > " + postgres.DeadLettered:
		return rest[webhook.StateCancelled] && rest[webhook.StateDiscarded]
	default:
		return len(states) == 0
	}
}

// isDead reports a search among a tenant's dead letters.
func isDead(f webhook.DeliveryFilter) bool {
	return f.EndpointID.IsZero() && f.EventID.IsZero() && indexedStates(f.States) == " and d.state = "+postgres.DeadLettered
}

// window returns the conditions of a filter on an event and on times, and the place of the page, on the table or alias t, whose delivery id is
// the column id. Times become bounds of the id, so that only the partitions of these days are read.
func window(q *postgres.FilterQuery, id, t string, f webhook.DeliveryFilter, p webhook.Page) string {
	var b strings.Builder
	if !f.EventID.IsZero() {
		// A delivery's id begins with its event's time: only this millisecond is read.
		at := f.EventID.Time()
		b.WriteString(" and " + t + ".event_id = " + q.Arg(f.EventID) +
			" and " + id + " >= " + q.Arg([16]byte(postgres.IDsFrom(at))) + " and " + id + " < " + q.Arg([16]byte(postgres.IDsFrom(at.Add(time.Millisecond)))))
	}
	q.Window(&b, id, t+".created_at", f.Since, f.Until, p)
	return b.String()
}

// in returns a condition on a state.
func in(states []webhook.State) string {
	numbers := make([]string, len(states))
	for i, state := range states {
		numbers[i] = strconv.Itoa(int(state))
	}
	return " in (" + strings.Join(numbers, ", ") + ")"
}

// passesFilters returns the conditions of a filter that the index of base does not serve.
func passesFilters(q *postgres.FilterQuery, t string, f webhook.DeliveryFilter) string {
	var b strings.Builder
	if len(f.States) > 0 && (!f.EndpointID.IsZero() || !isIndexed(f.States)) {
		b.WriteString(" and " + t + ".state" + in(f.States))
	}
	if f.EventType != "" {
		b.WriteString(" and " + q.TypePasses(t+".event_type", f.EventType))
	}
	if f.Reason != "" {
		b.WriteString(" and " + t + ".reason = " + q.Arg(f.Reason))
	}
	if f.Status != 0 {
		b.WriteString(" and " + t + ".last_status = " + q.Arg(f.Status))
	}
	if !f.EndedSince.IsZero() {
		b.WriteString(" and " + t + ".completed_at >= " + q.Arg(f.EndedSince))
	}
	if !f.EndedUntil.IsZero() {
		b.WriteString(" and " + t + ".completed_at < " + q.Arg(f.EndedUntil))
	}
	return b.String()
}
