package admission

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A process has room for all endpoints of its lanes, however few lanes it owns.
func TestRoomOfAProcessWithFewLanes(t *testing.T) {
	t.Parallel()
	const lanes, n = 13, 5000
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxEndpoints = 2 * n })
	for made := 0; made < n; {
		req := newRequest()
		if webhook.LaneOf(req.Endpoint) >= lanes {
			continue
		}
		ctl.Acquire(canceled(), req).Permit.Done(delivered(0))
		made++
	}
	require.Equal(t, n, ctl.Totals().Endpoints)
}
