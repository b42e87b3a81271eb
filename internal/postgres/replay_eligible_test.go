package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// eligible are the events that a replay of events would send to an endpoint now.
func (b *deliveryBundle) eligible(t require.TestingT, ctx context.Context, f webhook.ReplayFilter) (ids []webhook.EventID) {
	f.Since = time.Now().Add(-time.Hour)
	r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayEvents, Filter: f, CreatedAt: time.Now().Add(time.Second)}
	require.NoError(t, b.asWorker().inTx(ctx, "look", func(ctx context.Context, tx pgx.Tx) error {
		locked := lockedReplay{Replay: r}
		types, err := locked.eventTypes(ctx, tx)
		if err != nil {
			return err
		}
		found, _, _, err := nextOf(ctx, tx, setOf(&r, types), 1000, replayScan)
		for _, id := range found {
			ids = append(ids, id)
		}
		return err
	}))
	return ids
}

// A replay of events sends an endpoint what it asked for, and what was sent to it by name.
func TestReplayOfEventsSendsNothingUnasked(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	other := b.addEndpoint(t, "user.*", "everpost.*")
	post := func(eventType string, to ...webhook.EndpointID) webhook.EventID {
		e := newEvent(eventType)
		e.EndpointIDs = to
		a, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
		return a.Event.ID
	}
	asked := post("order.paid")
	unasked := post("user.password_reset") // another endpoint asked for it
	unmatched := post("invoice.paid")      // nobody did
	_ = post("order.paid", other.ID)
	byName := post("user.created", b.endpoint.ID)
	both := post("user.deleted", other.ID, b.endpoint.ID)
	operational, operationalByName := post("everpost.endpoint.paused"), post("everpost.endpoint.paused", b.endpoint.ID)

	filter := webhook.ReplayFilter{EndpointID: b.endpoint.ID}
	require.Equal(t, []webhook.EventID{asked, byName, both}, b.eligible(t, t.Context(), filter))
	filter.EventType = "user.*"
	require.Equal(t, []webhook.EventID{byName, both}, b.eligible(t, t.Context(), filter), "the filter narrows")
	filter = webhook.ReplayFilter{EndpointID: b.endpoint.ID, IncludeUnmatched: true}
	require.Equal(t, []webhook.EventID{asked, unasked, unmatched, byName, both}, b.eligible(t, t.Context(), filter))

	// The types that count are those that the endpoint asks for when a batch is released.
	young := b.addEndpoint(t, "user.*", "everpost.*")
	r := b.replay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: young.ID, Since: time.Now().Add(-time.Hour)}})
	require.EqualValues(t, 2, *r.Total)
	require.Equal(t, []webhook.EventID{unasked, operational}, b.eligible(t, t.Context(), r.Filter))
	_, err := b.UpdateEndpoint(t.Context(), testActor(), "acme", young.ID, func(e *webhook.Endpoint) error {
		e.EventTypes = []string{"everpost.endpoint.*"}
		return nil
	})
	require.NoError(t, err)
	b.left(t)
	st := b.release(t, r, 1, 100)
	require.Equal(t, []int64{1, 1}, []int64{st.Released, st.Skipped})
	require.Equal(t, map[webhook.DeliveryID]int{webhook.DeliveryIDOf(operational, young.ID): 1}, b.left(t))

	// Of events from before the column it is only known where they went.
	_, err = b.login.Exec(t.Context(), `update events set targeted = null`)
	require.NoError(t, err)
	late := b.addEndpoint(t, "order.*", "user.*", "invoice.*", "everpost.*")
	require.Equal(t, []webhook.EventID{unmatched}, b.eligible(t, t.Context(), webhook.ReplayFilter{EndpointID: late.ID}))
	require.Equal(t, []webhook.EventID{asked, byName, both}, b.eligible(t, t.Context(), webhook.ReplayFilter{EndpointID: b.endpoint.ID}))
	require.NotContains(t, b.eligible(t, t.Context(), webhook.ReplayFilter{EndpointID: b.endpoint.ID}), operationalByName)
}

// What PostgreSQL says of types, filters and targets is what is said in memory.
func TestTypesAreMatchedAlikeInMemoryAndInSQL(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	other := b.addEndpoint(t, "nothing")
	types := []string{
		"order", "order.", "order.paid", "order.paid.late", "orders.paid", "order_paid", "orderXpaid", "order-paid", "order/paid", "order:paid", "Order.paid",
		"userCreated", "invoice/paid", "invoice/paid/late", "a%b", "x.*",
		"everpost", "everpost.", "everpost.endpoint.paused", "everpost.endpoint", "everposted.x", "everpost_x",
	}
	var all []webhook.Accepted
	named := map[webhook.EventID][]webhook.EndpointID{}
	for i, eventType := range types {
		for _, to := range [][]webhook.EndpointID{nil, {b.endpoint.ID}, {other.ID}} {
			e := newEvent(eventType)
			e.EndpointIDs = to
			a, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			all, named[a.Event.ID] = append(all, a), to
			if i%2 == 0 { // others stay in the outbox, which lists read too
				for _, start := range a.Deliveries {
					_, err := b.RecordStep(t.Context(), stepOf(start, 1, webhook.StateRetrying))
					require.NoError(t, err)
				}
			}
		}
	}
	parts := rapid.SampledFrom([]string{"order", "orders", "paid", "everpost", "endpoint", "invoice", "userCreated", "Order", "x"})
	separator := rapid.SampledFrom([]string{".", "_", "-", "/", ":"})
	filters := rapid.Custom(func(rt *rapid.T) string {
		filter := parts.Draw(rt, "part")
		if rapid.Bool().Draw(rt, "more") {
			filter += separator.Draw(rt, "separator") + parts.Draw(rt, "part")
		}
		return rapid.SampledFrom([]string{filter, filter + separator.Draw(rt, "last") + "*", "*"}).Draw(rt, "filter")
	}).Filter(webhook.ValidFilter)
	rapid.Check(t, func(rt *rapid.T) {
		filter := filters.Draw(rt, "filter")
		listed, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{Type: filter}, webhook.Page{Limit: 1000})
		require.NoError(rt, err)
		deliveries, err := b.ListDeliveries(t.Context(), "acme", webhook.DeliveryFilter{EventType: filter}, webhook.Page{Limit: 1000})
		require.NoError(rt, err)
		var events, wantEvents []webhook.EventID
		var got, want []webhook.DeliveryID
		for _, e := range listed {
			events = append(events, e.ID)
		}
		for _, d := range deliveries {
			got = append(got, d.DeliveryID)
		}
		for _, a := range all {
			if webhook.FilterMatches(filter, a.Event.Type) {
				wantEvents = append(wantEvents, a.Event.ID)
				for _, start := range a.Deliveries {
					want = append(want, start.DeliveryID)
				}
			}
		}
		require.ElementsMatch(rt, wantEvents, events, filter)
		require.ElementsMatch(rt, want, got, filter)

		// The same of many filters together, as of an endpoint.
		e := webhook.Endpoint{EventTypes: rapid.SliceOfNDistinct(filters, 1, 4, rapid.ID).Draw(rt, "filters")}
		_, err = b.login.Exec(t.Context(), `update endpoints set event_types = $2 where id = $1`, b.endpoint.ID, e.EventTypes)
		require.NoError(rt, err)
		f := webhook.ReplayFilter{EndpointID: b.endpoint.ID, IncludeUnmatched: rapid.Bool().Draw(rt, "unmatched")}
		var eligible []webhook.EventID
		for _, a := range all {
			to := named[a.Event.ID]
			mine := slices.Contains(to, b.endpoint.ID) || to == nil && (f.IncludeUnmatched || e.Wants(a.Event.Type))
			if mine && (!webhook.IsOperational(a.Event.Type) || e.Wants(a.Event.Type)) {
				eligible = append(eligible, a.Event.ID)
			}
		}
		require.ElementsMatch(rt, eligible, b.eligible(rt, t.Context(), f), "%q", e.EventTypes)
	})
}

// A list with a pattern that fits much goes through the tenant's newest rows, by their index,
// and ends with its page: it neither reads everything nor sorts it. None reads another tenant's.
func TestPatternsKeepThePlansOfLists(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.login.Exec(t.Context(), `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		select gen_random_uuid(), case when n % 10 = 0 then 'acme' else 'other' end, 'order.' || n % 50, '', '', '{}', now() from generate_series(1, 20000) n;
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		select gen_random_uuid(), id, gen_random_uuid(), tenant_id, type, now(), 1, 1, 4, now() from events;
		analyze events; analyze deliveries`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	dead := webhook.DeliveryFilter{States: []webhook.State{webhook.StateDeadLettered}}
	for pattern, broad := range map[string]bool{"*": true, "order.*": true, "order.7": false, "nothing.*": false} {
		dead.EventType = pattern
		listEvents, eventArgs := listEvents("acme", webhook.EventFilter{Type: pattern}, webhook.Page{Limit: 50})
		listAll, allArgs := listDeliveries("acme", webhook.DeliveryFilter{EventType: pattern}, webhook.Page{Limit: 50})
		listDead, deadArgs := listDeliveries("acme", dead, webhook.Page{Limit: 50})
		for sql, args := range map[string][]any{listEvents: eventArgs, listAll: allArgs, listDead: deadArgs} {
			// As the role that lists, whose policies are part of the plan.
			lines, err := queryAll(t.Context(), b.ofTenant("acme"), "explain", pgx.RowTo[string], "explain (costs off) "+sql, args...)
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			require.NotRegexp(t, `Seq Scan on (events|deliveries)`, plan, pattern)
			if broad { // of one that fits little all may be gathered by the index, and sorted
				require.Regexp(t, `Index Scan( Backward)? using \w+_tenant_id_id_idx`, plan, pattern)
				require.NotRegexp(t, `Bitmap.* on (events|deliveries)`, plan, pattern)
			}
		}
	}
}
