package stores_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// releaseVisits make the turns of a release of all that is held of the largest endpoint, from its first hold to its end.
func releaseVisits() []visit {
	turn := func(t *testing.T, l *storetest.Large, limit int) []webhook.Start {
		t.Helper()
		return l.TurnOf(t, webhook.ReleaseTurn{EndpointID: l.Subscriber.ID, Limit: limit})
	}
	return []visit{
		{name: "hold a delivery", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			event := storetest.NewEvent("order.paid")
			event.EndpointIDs = []webhook.EndpointID{l.Subscriber.ID}
			accepted, err := l.Accept(t.Context(), event)
			require.NoError(t, err)
			l.Hold(t, accepted.Deliveries[0], storetest.NoWorkflow, webhook.ReasonBacklog)
		}},
		{name: "find due releases", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, err := l.StartRoom(t.Context(), []int{1, 2, 3})
			require.NoError(t, err)
			due, err := l.DueReleases(t.Context(), []int{webhook.LaneOf(l.Subscriber.ID)}, 200)
			require.NoError(t, err)
			require.Len(t, due, 1)
		}},
		{name: "begin a release", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			tx, err := l.Pool().Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, deliveries.BeginRelease(t.Context(), tx, time.Now(), l.Tenant, l.Subscriber.ID, webhook.MaxReleaseRate))
			require.NoError(t, tx.Commit(t.Context()))
		}},
		{name: "first turn of a release, of one", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			require.Len(t, turn(t, l, 1), 1)
		}},
		{name: "turn of a release, of 100", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			require.Len(t, turn(t, l, 100), 100)
		}},
		{name: "turn of a release that finds nothing", most: 20_000, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			l.Exec(t, `update deliveries set state = 3 where state = 2 and endpoint_id = $1`, l.Subscriber.ID)
			l.Exec(t, `update releases set started_at = started_at - interval '1 minute'`)
			require.Empty(t, turn(t, l, 100))
			require.Empty(t, turn(t, l, 100), "from the lowest on")
			r, err := l.ReleaseOf(t.Context(), l.Tenant, l.Subscriber.ID)
			require.NoError(t, err)
			require.Equal(t, webhook.ReleaseDone, r.State)
		}},
		{name: "give held deliveries up", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, err := l.ReleaseExpired(t.Context(), 200)
			require.NoError(t, err)
		}},
	}
}
