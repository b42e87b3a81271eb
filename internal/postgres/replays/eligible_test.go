package replays_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// eligible are the events that a replay of events would send to an endpoint now.
func eligibleOf(t require.TestingT, ctx context.Context, b *storetest.Bundle, f webhook.ReplayFilter) (ids []webhook.EventID) {
	f.Since = time.Now().Add(-time.Hour)
	r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayEvents, Filter: f, CreatedAt: time.Now().Add(time.Second)}
	require.NoError(t, b.AsWorker().InTx(ctx, "read", func(ctx context.Context, tx pgx.Tx) error {
		locked := replays.LockedReplay{Replay: r}
		types, err := locked.EventTypes(ctx, tx)
		if err != nil {
			return err
		}
		found, _, _, err := replays.NextOf(ctx, tx, replays.SetOf(&r, types), 1000, replays.ReplayScan)
		for _, id := range found {
			ids = append(ids, id)
		}
		return err
	}))
	return ids
}

// A replay of events sends an endpoint the types to which it subscribes, and events that named it.
func TestReplayOfEventsSendsOnlyWantedTypes(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "user.*", "everpost.*")
	post := func(eventType string, to ...webhook.EndpointID) webhook.EventID {
		e := storetest.NewEvent(eventType)
		e.EndpointIDs = to
		a, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
		return a.Event.ID
	}
	asked := post("order.paid")
	unasked := post("user.password_reset") // another endpoint wants it
	unmatched := post("invoice.paid")      // none does
	_ = post("order.paid", other.ID)
	byName := post("user.created", b.Subscriber.ID)
	both := post("user.deleted", other.ID, b.Subscriber.ID)
	operational := post("everpost.endpoint.paused")
	post("everpost.endpoint.paused", b.Subscriber.ID)

	filter := webhook.ReplayFilter{EndpointID: b.Subscriber.ID}
	require.Equal(t, []webhook.EventID{asked, byName, both}, eligibleOf(t, t.Context(), b, filter))
	filter.EventType = "user.*"
	require.Equal(t, []webhook.EventID{byName, both}, eligibleOf(t, t.Context(), b, filter), "the filter narrows")
	filter = webhook.ReplayFilter{EndpointID: b.Subscriber.ID, IncludeUnmatched: true}
	require.Equal(t, []webhook.EventID{asked, unasked, unmatched, byName, both}, eligibleOf(t, t.Context(), b, filter))

	// The endpoint's types at the release of a batch count.
	young := b.AddEndpoint(t, "user.*", "everpost.*")
	r := b.StartReplay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: young.ID, Since: time.Now().Add(-time.Hour)}})
	require.EqualValues(t, 2, *r.Total)
	require.Equal(t, []webhook.EventID{unasked, operational}, eligibleOf(t, t.Context(), b, r.Filter))
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", young.ID, func(e *webhook.Endpoint) error {
		e.EventTypes = []string{"everpost.endpoint.*"}
		return nil
	})
	require.NoError(t, err)
	b.Left(t)
	st := b.ReleaseBatch(t, r, 1, 100)
	require.Equal(t, []int64{1, 1}, []int64{st.Released, st.Skipped})
	require.Equal(t, map[webhook.DeliveryID]int{webhook.DeliveryIDOf(operational, young.ID): 1}, b.Left(t))
}

// What PostgreSQL says of types, filters and targets is what is said in memory.
func TestTypesAreMatchedAlikeInMemoryAndInSQL(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "nothing")
	types := []string{
		"order", "order.", "order.paid", "order.paid.late", "orders.paid", "order_paid", "orderXpaid", "order-paid", "order/paid", "order:paid", "Order.paid",
		"userCreated", "invoice/paid", "invoice/paid/late", "a%b", "x.*",
		"everpost", "everpost.", "everpost.endpoint.paused", "everpost.endpoint", "everposted.x", "everpost_x",
	}
	var all []webhook.Accepted
	named := map[webhook.EventID][]webhook.EndpointID{}
	for i, eventType := range types {
		for _, to := range [][]webhook.EndpointID{nil, {b.Subscriber.ID}, {other.ID}} {
			e := storetest.NewEvent(eventType)
			e.EndpointIDs = to
			a, err := b.Accept(t.Context(), e)
			require.NoError(t, err)
			all, named[a.Event.ID] = append(all, a), to
			if i%2 == 0 { // others stay in the outbox, which lists read too
				for _, start := range a.Deliveries {
					_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
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
		listed, _, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{Type: filter}, webhook.Page{Limit: 1000})
		require.NoError(rt, err)
		deliveries, _, err := b.ListDeliveries(t.Context(), "acme", webhook.DeliveryFilter{EventType: filter}, webhook.Page{Limit: 1000})
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
		_, err = b.Pool().Exec(t.Context(), `update endpoints set event_types = $2 where id = $1`, b.Subscriber.ID, e.EventTypes)
		require.NoError(rt, err)
		f := webhook.ReplayFilter{EndpointID: b.Subscriber.ID, IncludeUnmatched: rapid.Bool().Draw(rt, "unmatched")}
		var eligible []webhook.EventID
		for _, a := range all {
			to := named[a.Event.ID]
			mine := slices.Contains(to, b.Subscriber.ID) || to == nil && (f.IncludeUnmatched || e.Wants(a.Event.Type))
			if mine && (!webhook.IsOperational(a.Event.Type) || e.Wants(a.Event.Type)) {
				eligible = append(eligible, a.Event.ID)
			}
		}
		require.ElementsMatch(rt, eligible, eligibleOf(rt, t.Context(), b, f), "%q", e.EventTypes)
	})
}
