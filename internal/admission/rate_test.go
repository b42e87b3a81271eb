package admission

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
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

// A late request was charged at the time of its reservation. A ramp-up delays it, or one that has just gone.
func TestRateLimitOfLateRequests(t *testing.T) {
	t.Parallel()
	var limit rateLimit
	limit.set(0, 1)
	limit.charge(10*time.Second, 9*time.Second, 1)
	require.Equal(t, 10*time.Second, limit.next)
	require.False(t, limit.conforms(10*time.Second), "one has just gone")
	require.True(t, limit.conforms(11*time.Second))

	limit = rateLimit{}
	limit.set(0, 100)
	limit.earlier = 8
	limit.startRampUp(10*time.Second, rampTime)
	limit.charge(10*time.Second, 9*time.Second, 100)
	require.False(t, limit.allowsLate(10*time.Second))
	require.True(t, limit.allowsLate(10*time.Second+time.Second/15), "8 × 1.5 × 1.25 per second")
	limit.skipRampUp(10 * time.Second)
	require.True(t, limit.allowsLate(10*time.Second))
}

// Deliveries come up to a second late for their reservations, because timers are coarse. That must not let more requests go within one second
// than the rate allows.
func TestRateHoldsInEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 20
		s := newSim(t, Limits{MaxInFlight: 100, Rate: rate, Timeout: 5 * time.Second}, func(time.Duration) (time.Duration, Result) {
			return 10 * time.Millisecond, delivered(10 * time.Millisecond)
		})
		s.stream(2*rate, 30*time.Second)
		s.sleep(60 * time.Second)
		s.end()
		require.Len(t, s.arrivals, 1200)
		require.Less(t, slices.Max(s.arrivals), 75*time.Second, "and little of the rate is lost")
		require.LessOrEqual(t, mostWithin(s.arrivals, time.Second), rate)
	})
}

// mostWithin is the highest number of times within any stretch of a length.
func mostWithin(all []time.Duration, length time.Duration) (most int) {
	all = slices.Sorted(slices.Values(all))
	for first, last := 0, 0; last < len(all); last++ {
		for all[last]-all[first] >= length {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// What is delayed between its admission and its request, by a slow query, does not make up for it.
func TestRateHoldsWhereRequestsBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 20
		c := New(Config{})
		req := newRequest()
		req.Limits = Limits{MaxInFlight: 200, Rate: rate, Timeout: 5 * time.Second}
		began := time.Now()
		stall := began.Add(2 * time.Second)
		var mu sync.Mutex
		var begun []time.Duration
		var all sync.WaitGroup
		for range 80 {
			<-time.After(time.Second / rate)
			d := c.Acquire(t.Context(), another(req))
			if d.Permit == nil {
				continue
			}
			all.Go(func() {
				<-time.After(time.Until(stall))
				if d.Permit.Begin(t.Context()) {
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, time.Since(began))
				}
				d.Permit.Cancel()
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, len(begun), 60)
		require.LessOrEqual(t, mostWithin(begun, time.Second), rate)
	})
}

// A process that takes an endpoint over counts what the one before has sent within the last second.
func TestRateHoldsOverATransfer(t *testing.T) {
	t.Parallel()
	clock := newClock()
	before, after := clock.controller(), clock.controller()
	req := newRequest()
	req.Limits = Limits{MaxInFlight: 100, Rate: 4, Timeout: time.Second}
	for range 4 {
		permit := before.Acquire(canceled(), another(req)).Permit
		require.True(t, permit.Begin(t.Context()))
		permit.Done(delivered(0))
		clock.advance(247 * time.Millisecond) // within the burst
	}
	states := before.Export(func(webhook.EndpointID) bool { return true })
	require.Len(t, states, 1)
	after.Import(states[0])
	require.Equal(t, isDeferred, kindOf(after.Acquire(canceled(), another(req))), "four have begun within a second")
	clock.advance(12 * time.Millisecond)
	require.Equal(t, isAdmitted, kindOf(after.Acquire(canceled(), another(req))))
}
