package starter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A release that fails in the store is put off, longer each time, and for no other endpoint.
func TestAFailedReleaseIsPutOff(t *testing.T) {
	t.Parallel()
	h, now := &heldEndpoints{}, time.Now()
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
