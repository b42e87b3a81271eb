package events_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// An event goes by every change of an endpoint that was answered before it was posted, in the process of the change and in
// another, which has not heard of it yet, while other endpoints of the tenant change.
func TestEventsGoByWhatWasAnswered(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	other := storetest.OpenStore(t, address)
	storetest.Listen(t, other)
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			model := map[webhook.EndpointID]string{} // the types that the endpoints of this caller subscribe to
			for i := range 20 {
				if !changeOne(t, s, random, model, fmt.Sprintf("type%d.n%d", caller, i)) {
					return
				}
				for _, of := range []*storetest.Stores{other, s} {
					for n := range i + 1 {
						eventType := fmt.Sprintf("type%d.n%d", caller, n)
						if n < i-2 {
							continue
						}
						var want, got []webhook.EndpointID
						for id, subscribed := range model {
							if subscribed == eventType {
								want = append(want, id)
							}
						}
						accepted, err := of.Accept(t.Context(), storetest.NewEvent(eventType))
						if !assert.NoError(t, err) {
							return
						}
						for _, start := range accepted.Deliveries {
							got = append(got, start.EndpointID)
						}
						slices.SortFunc(want, func(a, b webhook.EndpointID) int { return slices.Compare(a[:], b[:]) })
						if !assert.Equal(t, want, got, "%s after change %d", eventType, i) {
							return
						}
					}
				}
			}
		})
	}
	callers.Wait()
}

// changeOne creates an endpoint for an event type, or changes or deletes one of the model.
func changeOne(t *testing.T, s *storetest.Stores, random *rand.Rand, model map[webhook.EndpointID]string, eventType string) bool {
	t.Helper()
	var err error
	for id := range model {
		if random.IntN(2) == 0 {
			break
		}
		if random.IntN(3) == 0 {
			err = s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", id)
			delete(model, id)
		} else {
			_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", id, func(e *webhook.Endpoint) error {
				e.EventTypes = []string{eventType, "type"}
				return nil
			})
			model[id] = eventType
		}
		return assert.NoError(t, err)
	}
	e := storetest.TestEndpoint("acme")
	e.EventTypes = []string{eventType}
	e, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
	model[e.ID] = eventType
	return assert.NoError(t, err)
}

// An event that goes to more endpoints than one may is refused, and not matched with all of them.
func TestAnEventOfTooManyDeliveries(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AddEndpoint(t, "order.paid", "order.*")
	b.SetLimits(t, "acme", webhook.Limits{EndpointsPerEvent: 2})
	accepted, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, 2)
	b.AddEndpoint(t, "*")
	_, err = b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	storetest.RequireCode(t, webhook.CodeTooManyDeliveries, err)
	_, err = b.AcceptBatch(t.Context(), webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{
		storetest.NewEvent("other"), storetest.NewEvent("order.paid"),
	}})
	storetest.RequireCode(t, webhook.CodeTooManyDeliveries, err)
	require.ErrorContains(t, err, "events[1]")
	require.Equal(t, 1, b.Count(t, "events"))
}
