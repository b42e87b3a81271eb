package recovery

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// ids are all endpoints of the list.
func (h *HeldEndpoints) ids() (ids []webhook.EndpointID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.byID))
}

// A release that fails in the store is put off, longer each time, and for no other endpoint.
func TestAFailedReleaseIsPutOff(t *testing.T) {
	t.Parallel()
	h, now := &HeldEndpoints{}, time.Now()
	failing, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	h.note(failing, now, false)
	h.note(other, now, false)
	for _, seconds := range []int{2, 4, 8, 16, 32, 60, 60} {
		require.ElementsMatch(t, []webhook.EndpointID{failing, other}, h.due(now))
		pause := h.failed(failing, now)
		require.InDelta(t, seconds, pause.Seconds(), 0)
		require.Equal(t, []webhook.EndpointID{other}, h.due(now.Add(pause-1)))
		now = now.Add(pause)
	}
	h.released(failing, 1, true, now)
	require.Equal(t, firstRetry, h.failed(failing, now), "after a success it begins again")
	require.Len(t, h.due(now), 1)
	h.checkSoon(failing)
	require.Len(t, h.due(now), 2, "nor does a change of the endpoint wait")
}

// A hold that is noted during a look is not forgotten by it, and reading an endpoint from the store does not renew an older note.
func TestHeldEndpointsAreForgotten(t *testing.T) {
	t.Parallel()
	var h HeldEndpoints
	id, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	noted := time.Now()
	h.note(id, noted, false)
	h.note(id, time.Time{}, false) // from the store
	h.note(other, time.Time{}, false)
	h.released(id, 0, false, noted.Add(holdDelay-1))
	h.released(other, 0, false, noted)
	require.Equal(t, []webhook.EndpointID{id}, h.ids())
	h.note(id, noted.Add(time.Second), false)
	h.released(id, 0, false, noted.Add(holdDelay))
	require.Equal(t, []webhook.EndpointID{id}, h.ids())
	h.released(id, 0, false, noted.Add(holdDelay+time.Second))
	require.Empty(t, h.ids())
}

// What was released is counted until admission counts it.
func TestReleasedIsUnderWay(t *testing.T) {
	t.Parallel()
	var h HeldEndpoints
	id, now := webhook.NewEndpointID(), time.Now()
	h.note(id, time.Time{}, false)
	h.released(id, 5, true, now)
	require.Equal(t, 5, h.underWay(id, now.Add(releaseDelay-1)))
	require.Zero(t, h.underWay(id, now.Add(releaseDelay)))
	h.released(id, 2, false, now.Add(releaseDelay))
	require.Empty(t, h.ids(), "nothing is left")
}
