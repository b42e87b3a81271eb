package api

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// In no period does a bucket admit more than its burst plus its rate times the period, and a caller
// that waits for Retry-After is admitted.
func TestABucketKeepsItsRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := webhook.Limits{
			RequestsPerSecond: rapid.Float64Range(webhook.MinRequestsPerSecond, 1000).Draw(t, "rate"),
			Burst:             rapid.IntRange(1, 50).Draw(t, "burst"),
		}
		b := buckets{of: map[string]*rate.Limiter{}}
		begun := time.Unix(1_700_000_000, 0)
		now, admitted := begun, 0
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
			wait := b.take("acme", limits, now)
			if wait > 0 && rapid.Bool().Draw(t, "waits") {
				now = now.Add(wait + time.Microsecond) // the library rounds to a nanosecond, callers wait whole seconds
				require.Zero(t, b.take("acme", limits, now), "a request after the wait is admitted")
				wait = 0
			}
			if wait == 0 {
				admitted++
			}
			most := float64(limits.Burst) + now.Sub(begun).Seconds()*limits.RequestsPerSecond
			require.LessOrEqual(t, float64(admitted), most+1e-3)
		}
	})
}

func TestTenantsHaveBucketsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := buckets{of: map[string]*rate.Limiter{}}
	limits, now := webhook.Limits{RequestsPerSecond: 1, Burst: 1}, testNow()
	require.Zero(t, b.take("acme", limits, now))
	require.Equal(t, time.Second, b.take("acme", limits, now))
	require.Zero(t, b.take("other", limits, now))
	require.Equal(t, time.Second/10, b.take("acme", webhook.Limits{RequestsPerSecond: 10, Burst: 1}, now), "a new rate applies immediately")
}

func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	b := buckets{of: map[string]*rate.Limiter{}}
	limits, now := webhook.Limits{RequestsPerSecond: 0.01, Burst: 1}, testNow()
	for i := range 2 * maxBuckets {
		require.Zero(t, b.take(strconv.Itoa(i), limits, now))
		require.LessOrEqual(t, len(b.of), maxBuckets)
	}
	later := now.Add(time.Hour) // all buckets are full again
	require.Zero(t, b.take("acme", limits, later))
	require.Less(t, len(b.of), 3, "full buckets are removed")
}
