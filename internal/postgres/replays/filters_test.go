package replays_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A replay of events asks the endpoint's present filter, unless it includes what does not match. What named the endpoint is sent anyway.
func TestReplayOfEventsAsksTheFilter(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	young := b.AddEndpoint(t, "nothing")
	post := func(payload string, to ...webhook.EndpointID) (webhook.DeliveryID, webhook.Accepted) {
		e := storetest.NewEvent("order.paid")
		e.Payload, e.EndpointIDs, e.Tags = []byte(payload), to, []string{"eu", "large"}
		a, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
		return webhook.DeliveryIDOf(a.Event.ID, young.ID), a
	}
	small, _ := post(`{"total":1}`)
	large, _ := post(`{"total":1e2}`)
	named, byName := post(`{"total":1}`, young.ID)
	untagged := storetest.NewEvent("order.paid")
	untagged.Payload = []byte(`{"total":100}`)
	_, err := b.Accept(t.Context(), untagged)
	require.NoError(t, err)
	b.EndIn(t, byName.Deliveries[0], webhook.StateDelivered)
	_, err = b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", young.ID, func(e *webhook.Endpoint) error {
		e.EventTypes, e.Filter = []string{"order.*"}, filter.Stored(`{"payload":{"total":{"$gte":100}},"tags":"large"}`)
		return nil
	})
	require.NoError(t, err)
	b.Left(t)

	since := time.Now().Add(-time.Hour)
	r := b.StartReplay(t, webhook.Replay{Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: young.ID, Since: since}})
	st := b.ReleaseBatch(t, r, 1, 100)
	require.Equal(t, []int64{2, 2}, []int64{st.Released, st.Skipped})
	require.Equal(t, map[webhook.DeliveryID]int{large: 1, named: 2}, b.Left(t))

	r = b.StartReplay(t, webhook.Replay{
		Source: webhook.ReplayEvents, Filter: webhook.ReplayFilter{EndpointID: young.ID, Since: since, IncludeUnmatched: true},
	})
	b.ReleaseBatch(t, r, 1, 100)
	require.Contains(t, b.Left(t), small, "filters are not asked")
}
