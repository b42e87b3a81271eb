package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever is added and removed, and however the limit changes: a slot is given while fewer are
// taken than the limit says, and no other.
func TestSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := concurrency{limit: rapid.IntRange(1, 5).Draw(t, "limit")}
		var taken []*activeRequest
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				f := &activeRequest{}
				added := c.add(f)
				require.Equal(t, len(taken) < c.limit, added)
				if added {
					taken = append(taken, f)
				}
			},
			"remove": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("none is taken")
				}
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				c.remove(taken[i])
				taken = append(taken[:i:i], taken[i+1:]...)
			},
			"limit": func(t *rapid.T) { c.limit = rapid.IntRange(1, 5).Draw(t, "limit") },
			"": func(t *rapid.T) {
				require.ElementsMatch(t, taken, c.inFlight)
				require.Equal(t, len(taken) >= c.limit, c.full())
			},
		})
	})
}

// A request in flight counts with its age once it takes longer than those before.
func TestLatencyOfRequestsInFlight(t *testing.T) {
	t.Parallel()
	c := concurrency{limit: 2}
	require.Equal(t, unknownLatency, c.smoothed(0), "nothing is known")
	c.add(&activeRequest{start: 0, timeout: 15 * time.Second})
	require.Equal(t, 2*time.Second, c.smoothed(2*time.Second), "the first one hangs")
	c.measure(80 * time.Millisecond)
	c.measure(160 * time.Millisecond)
	require.Equal(t, 90*time.Millisecond, c.smoothed(90*time.Millisecond))
	require.Equal(t, 50*time.Millisecond, c.interval(170*time.Millisecond), "90 ms and an eighth of what it takes longer, in two slots")
	c.inFlight[0].lost = true
	require.Equal(t, 45*time.Millisecond, c.interval(10*time.Second), "its process has ended, which says nothing of the receiver")
	c.add(&activeRequest{start: 0, timeout: 15 * time.Second})
	require.Equal(t, 85*time.Millisecond, c.interval(730*time.Millisecond))
	c.inFlight[1].timeout = 730 * time.Millisecond
	require.Equal(t, 85*time.Millisecond, c.interval(10*time.Second), "its process stands still, which says nothing of the receiver")
}

// A request whose process stood still counts with its timeout.
func TestLatencyIsAtMostTheTimeout(t *testing.T) {
	t.Parallel()
	ctl, req := New(Config{}), newRequest()
	req.Limits.Timeout = time.Second
	admit(t, ctl, req).Done(delivered(9 * time.Second))
	require.Equal(t, time.Second, ctl.Health(req.Endpoint).Latency)
}

// A slot is expected after the usual latency, then after twice what a request takes longer, and by
// its timeout.
func TestNextFreeSlot(t *testing.T) {
	t.Parallel()
	c := concurrency{limit: 1}
	require.Equal(t, time.Second, c.nextFree(time.Second), "it is free")
	c.measure(100 * time.Millisecond)
	c.add(&activeRequest{start: 0, timeout: 10 * time.Second})
	for now, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond:  100 * time.Millisecond,
		200 * time.Millisecond: 400 * time.Millisecond,
		9 * time.Second:        10 * time.Second,
		12 * time.Second:       16 * time.Second,
	} {
		require.Equal(t, want, c.nextFree(now), now)
	}
}
