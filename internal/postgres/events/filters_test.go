package events_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// setFilter changes the filter of an endpoint; "" removes it.
func setFilter(t *testing.T, b *storetest.Bundle, tenant string, id webhook.EndpointID, text string) {
	t.Helper()
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), tenant, id, func(e *webhook.Endpoint) error {
		e.Filter = filter.Stored(text)
		return nil
	})
	require.NoError(t, err)
}

func order(payload string) webhook.NewEvent {
	e := storetest.NewEvent("order.paid")
	e.Payload = []byte(payload)
	return e
}

func endpointsOf(a webhook.Accepted) (ids []webhook.EndpointID) {
	for _, start := range a.Deliveries {
		ids = append(ids, start.EndpointID)
	}
	return ids
}

// An event goes to the endpoints whose types and filters match it, and to those that it names, whatever their filters.
func TestFiltersChooseEndpoints(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	large, other := b.AddEndpoint(t, "order.*"), b.AddEndpoint(t, "user.*")
	setFilter(t, b, "acme", large.ID, `{"payload":{"total":{"$gte":100}}}`)
	setFilter(t, b, "acme", other.ID, `{"payload":{"total":{"$gte":100}}}`)
	for payload, want := range map[string][]webhook.EndpointID{
		`{"total":99.99}`: {b.Subscriber.ID}, `{"total":1e2}`: {b.Subscriber.ID, large.ID}, `{"total":"100"}`: {b.Subscriber.ID}, `7`: {b.Subscriber.ID},
	} {
		a, err := b.Accept(t.Context(), order(payload))
		require.NoError(t, err)
		require.Equal(t, want, endpointsOf(a), payload)
	}
	named := order(`{"total":1}`)
	named.EndpointIDs = []webhook.EndpointID{large.ID, other.ID}
	a, err := b.Accept(t.Context(), named)
	require.NoError(t, err)
	require.Equal(t, named.EndpointIDs, endpointsOf(a))

	in := batchOf("", "x", "y")
	in.Events[1].Payload, in.Events[1].ExternalID = []byte(`{"total":500}`), "y"
	all, err := b.AcceptBatch(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID}, endpointsOf(all[0]))
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID, large.ID}, endpointsOf(all[1]))
	require.Equal(t, 5+2+3, b.Count(t, "outbox"), "what is filtered leaves no row")
}

// A changed filter applies to what is accepted after it, and to the other fields of an event too.
func TestAChangedFilterAppliesToLaterEvents(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	matched := func(e webhook.NewEvent) int {
		a, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
		if len(a.Deliveries) == 0 {
			require.Equal(t, webhook.ReasonNoMatch, a.Event.Reason)
		}
		return len(a.Deliveries)
	}
	require.Equal(t, 1, matched(order(`{}`)))
	setFilter(t, b, "acme", b.Subscriber.ID, `{"external_id":{"$startsWith":"a"},"type":"order.paid"}`)
	require.Zero(t, matched(order(`{}`)))
	e := order(`{}`)
	e.ExternalID = "a-1"
	require.Equal(t, 1, matched(e))
	setFilter(t, b, "acme", b.Subscriber.ID, "")
	require.Equal(t, 1, matched(order(`{}`)))
}

// Endpoints that a filter leaves out do not count towards the tenant's limit of endpoints per event.
func TestFilteredEndpointsAreNotCounted(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.SetLimits(t, "acme", webhook.Limits{EndpointsPerEvent: 1})
	for range 3 {
		setFilter(t, b, "acme", b.AddEndpoint(t, "order.*").ID, `{"payload":{"total":{"$gte":100}}}`)
	}
	a, err := b.Accept(t.Context(), order(`{"total":1}`))
	require.NoError(t, err)
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID}, endpointsOf(a))
	_, err = b.Accept(t.Context(), order(`{"total":100}`))
	storetest.RequireCode(t, webhook.CodeTooManyDeliveries, err)
}

// Filters choose among operational events too, of a change's own transaction and others.
func TestFiltersOfOperationalEvents(t *testing.T) {
	t.Parallel()
	b := storetest.SetupOperational(t)
	paused, all := b.ListensTo(t, "acme", "everpost.*"), b.ListensTo(t, "acme", "everpost.*")
	setFilter(t, b.Bundle, "acme", paused.ID, `{"payload":{"endpoint":{"state":"paused"}}}`)
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Equal(t, map[webhook.EndpointID]int{paused.ID: 1, all.ID: 1}, b.Starts(t, "acme"))
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 10, "")
	require.NoError(t, err)
	require.Equal(t, map[webhook.EndpointID]int{paused.ID: 1, all.ID: 2}, b.Starts(t, "acme"))

	stored, err := b.Notify(t.Context(), []webhook.OperationalEvent{b.Opened("acme")})
	require.NoError(t, err)
	require.Equal(t, []webhook.EndpointID{all.ID}, endpointsOf(stored[0]))
}
