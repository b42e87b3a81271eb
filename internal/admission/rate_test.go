package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Requests that conform are never more than the rate and the burst allow, and when none conforms
// the next one is due by the rate.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.1, 5000).Draw(t, "rate")
		var limit rateLimit
		limit.set(0, rate)
		now, level, before := time.Duration(0), 0.0, time.Duration(0)
		for range 200 {
			now += time.Duration(rapid.Int64Range(0, int64(3*limit.interval)).Draw(t, "pause"))
			level = max(0, level-rate*(now-before).Seconds())
			before = now
			if !limit.conforms(now) {
				require.LessOrEqual(t, limit.next-now, limit.interval+burst)
				continue
			}
			limit.charge(now, now, rate)
			level++
			require.LessOrEqual(t, level, 1+rate*burst.Seconds()+1e-3)
		}
	})
}

// A late request was charged at the time of its reservation, and only a ramp-up delays it.
func TestRateLimitOfLateRequests(t *testing.T) {
	t.Parallel()
	var limit rateLimit
	limit.set(0, 1)
	limit.charge(10*time.Second, 9*time.Second, 1)
	require.Equal(t, 10*time.Second, limit.next)
	require.True(t, limit.conforms(10*time.Second))

	limit.earlier = 8
	limit.startRampUp(10*time.Second, rampTime)
	limit.charge(10*time.Second, 9*time.Second, 100)
	require.False(t, limit.allowsLate(10*time.Second))
	require.True(t, limit.allowsLate(10*time.Second+time.Second/15), "8 × 1.5 × 1.25 per second")
	limit.skipRampUp(10 * time.Second)
	require.True(t, limit.allowsLate(10*time.Second))
}
