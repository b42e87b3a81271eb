package admission

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// guarded is a request for an endpoint with a circuit breaker.
func guarded() Request {
	req := newRequest()
	req.Limits.Breaker = webhook.DefaultCircuitBreaker()
	return req
}

// results ends n requests one after another, with a pause after each.
func results(t testing.TB, ctl *Controller, req Request, n int, every time.Duration, r Result) {
	t.Helper()
	for range n {
		permit := admit(t, ctl, another(req))
		permit.Done(r)
		elapse(every)
	}
}

// trip opens a circuit with 20 failures.
func trip(t testing.TB, ctl *Controller, req Request) {
	t.Helper()
	results(t, ctl, req, req.Limits.Breaker.MinRequests, 0, refused(time.Millisecond))
	require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
}

// The circuit opens with the request that reaches both numbers, not before.
func TestOpensAtTheRightMoment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		successes, failures int
		breaker             webhook.CircuitBreaker
		why                 string
	}{
		"all fail":     {failures: 20, why: "20 of 20 requests failed, the last with http_503"},
		"half fail":    {successes: 10, failures: 10, why: "10 of 20 requests failed, the last with http_503"},
		"half of many": {successes: 100, failures: 100, why: "100 of 200 requests failed, the last with http_503"},
		"other numbers": {
			successes: 1, failures: 4, breaker: webhook.CircuitBreaker{MinRequests: 3, FailureRatio: 0.8},
			why: "4 of 5 requests failed, the last with http_503",
		},
		"at once": {failures: 1, breaker: webhook.CircuitBreaker{MinRequests: 1, FailureRatio: 1}, why: "1 of 1 requests failed, the last with http_503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), guarded()
				c.breaker.Enabled = true
				req.Limits.Breaker = c.breaker
				results(t, ctl, req, c.successes, 0, delivered(time.Millisecond))
				results(t, ctl, req, c.failures-1, 0, refused(time.Millisecond))
				require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
				results(t, ctl, req, 1, 0, refused(time.Millisecond))
				h := ctl.Health(req.Endpoint)
				require.Equal(t, webhook.CircuitOpen, h.Circuit)
				require.Equal(t, c.why, h.Why)
				require.Equal(t, time.Now(), h.Since)
				require.Equal(t, time.Now().Add(30*time.Second), h.NextProbe)
				require.Zero(t, h.Rate)
				require.True(t, ctl.LikelySlow(req.Endpoint))
			})
		})
	}
}

// Results older than the window do not count; requests that began before it do: a receiver that
// hangs for longer than the window is unhealthy, too.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		results(t, ctl, req, 19, 0, refused(time.Millisecond))
		elapse(time.Minute + 1)
		results(t, ctl, req, 19, 0, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		results(t, ctl, req, 1, 0, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)

		// The window rolls: nineteen within it, however long it takes.
		req = guarded()
		results(t, ctl, req, 100, time.Minute/18, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)

		req = guarded()
		req.Limits.Breaker.Window = time.Second
		req.Limits.MaxInFlight = 30
		var permits []*Permit
		for range 20 {
			permits = append(permits, admit(t, ctl, another(req)))
		}
		elapse(15 * time.Second)
		for _, p := range permits {
			p.Done(Result{Latency: 15 * time.Second, Reason: "timeout_headers", BreakerFailure: true})
		}
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
	})
}

// Only breaker failures count: not 4xx, not what says nothing of the receiver, not what was never
// sent. A circuit that is switched off never opens.
func TestNeverOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{})
		for _, r := range []Result{
			delivered(time.Millisecond),
			{Latency: time.Millisecond, Answered: true, Reason: "http_400"},
			{Latency: time.Millisecond, Answered: true, Reason: "http_404"},
			{Latency: time.Millisecond, Reason: "token_refused"},
		} {
			req := guarded()
			results(t, ctl, req, 200, 0, r)
			require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		}
		req := guarded()
		for range 200 {
			admit(t, ctl, another(req)).Cancel()
		}
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		req = newRequest()
		results(t, ctl, req, 200, 0, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)

		// What says nothing does not make a ratio smaller either.
		req = guarded()
		results(t, ctl, req, 100, 0, Result{Latency: time.Millisecond, Reason: "token_refused"})
		trip(t, ctl, req)
	})
}

// While the circuit is open no request is admitted; then exactly one is, whose success closes it.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []webhook.CircuitChange
		ctl := New(Config{OnCircuitChange: func(c webhook.CircuitChange) { changes = append(changes, c) }})
		req := guarded()
		begun := time.Now()
		stale := admit(t, ctl, another(req))
		trip(t, ctl, req)
		require.Equal(t, begun.Add(30*time.Second), ctl.Health(req.Endpoint).NextProbe)
		var first Request
		seen := map[time.Time]bool{}
		for i := range 50 {
			one := another(req)
			if i == 0 {
				first = one
			}
			decision := ctl.Acquire(t.Context(), one)
			require.True(t, decision.Deferred())
			require.Equal(t, webhook.ReasonCircuitOpen, decision.Reason)
			require.False(t, decision.Until.Before(begun.Add(30*time.Second)))
			require.False(t, seen[decision.Until], "spread")
			seen[decision.Until] = true
		}
		elapse(29 * time.Second)
		decision := ctl.Acquire(t.Context(), another(req))
		require.True(t, decision.Deferred())
		elapse(time.Second + 1)
		stale.Done(delivered(time.Millisecond)) // began before: says nothing
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)

		probe := admit(t, ctl, first)
		require.Equal(t, webhook.CircuitHalfOpen, ctl.Health(req.Endpoint).Circuit)
		for range 5 {
			for range 10 {
				decision := ctl.Acquire(t.Context(), another(req))
				require.Nil(t, decision.Permit)
			}
			elapse(2 * time.Second)
		}
		probe.Done(delivered(time.Millisecond))
		h := ctl.Health(req.Endpoint)
		require.Equal(t, webhook.CircuitClosed, h.Circuit)
		require.Empty(t, h.Why)
		require.Positive(t, h.Rate)
		require.Len(t, changes, 3)
		for i, c := range changes {
			require.Equal(t, req.Endpoint, c.EndpointID)
			states := []webhook.CircuitState{webhook.CircuitClosed, webhook.CircuitOpen, webhook.CircuitHalfOpen, webhook.CircuitClosed}
			require.Equal(t, []webhook.CircuitState{states[i], states[i+1]}, []webhook.CircuitState{c.From, c.To})
		}
		require.Equal(t, begun, changes[0].At)
		require.Equal(t, "20 of 20 requests failed, the last with http_503", changes[0].Why)
	})
}

// A delivery that comes while a probe is in flight is deferred until that is likely to be over.
func TestFollowersWaitForTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		results(t, ctl, req, 20, 0, refused(4*time.Second))
		first := ctl.Acquire(t.Context(), req)
		second := ctl.Acquire(t.Context(), another(req))
		require.GreaterOrEqual(t, second.Until.Sub(first.Until), 6*time.Second)
		elapse(time.Until(first.Until) + 1)
		probe := admit(t, ctl, req)
		third := ctl.Acquire(t.Context(), another(req))
		require.GreaterOrEqual(t, time.Until(third.Until), 6*time.Second)
		probe.Done(delivered(time.Second))
	})
}

// The ramp-up begins when the circuit closes, whenever that is, also for deliveries without a
// reservation.
func TestRampUpBeginsWithClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		results(t, ctl, req, 600, 100*time.Millisecond, delivered(time.Millisecond))
		for ctl.Health(req.Endpoint).Circuit == webhook.CircuitClosed {
			results(t, ctl, req, 1, time.Millisecond, refused(time.Millisecond))
		}
		elapse(time.Hour)
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		require.InDelta(t, 1, rateOf(ctl, req.Endpoint, req.Limits), 0.1)
		n := 0
		for range 600 {
			one := another(req)
			if permit := ctl.Acquire(canceled(), one).Permit; permit != nil {
				permit.Done(delivered(time.Millisecond))
				n++
			}
			ctl.Forget(req.Endpoint, one.Delivery)
			elapse(100 * time.Millisecond)
		}
		require.InDelta(t, 400, n, 40, "a tenth to one and a half of ten per second, of ten per second that ask")
	})
}

// A probe needs a slot of its endpoint.
func TestProbeNeedsASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		req.Limits.MaxInFlight, req.Limits.Breaker.Cooldown = 2, time.Second
		hangs := admit(t, ctl, another(req))
		trip(t, ctl, another(req))
		req.Limits.MaxInFlight = 1
		elapse(5 * time.Second)
		decision := ctl.Acquire(t.Context(), another(req))
		require.True(t, decision.Deferred())
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		hangs.Done(refused(time.Millisecond))
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
	})
}

// A probe that could not be sent, or from which nothing was learnt, leaves the decision to the next
// one.
func TestProbeWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		trip(t, ctl, req)
		elapse(31 * time.Second)
		admit(t, ctl, another(req)).Cancel()
		elapse(time.Second)
		admit(t, ctl, another(req)).Done(Result{Reason: "dns_temporary"})
		require.Equal(t, webhook.CircuitHalfOpen, ctl.Health(req.Endpoint).Circuit)
		elapse(time.Second)
		admit(t, ctl, another(req)).Done(Result{Answered: true, Reason: "http_404"})
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
	})
}

// Each failed probe doubles the cooldown, to ten minutes at most. Only a few deliveries come back in
// vain; the others are held.
func TestCooldownDoubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{Random: func() float64 { return 0 }}), guarded()
		trip(t, ctl, req)
		since := time.Now()
		opened := since
		for _, seconds := range []int{30, 60, 120, 240, 480, 600, 600} {
			cooldown := time.Duration(seconds) * time.Second
			h := ctl.Health(req.Endpoint)
			require.Equal(t, webhook.CircuitOpen, h.Circuit)
			require.Equal(t, since, h.Since)
			require.Equal(t, cooldown, h.NextProbe.Sub(opened))
			if seconds > 30 {
				for i := range 20 {
					decision := ctl.Acquire(t.Context(), another(req))
					require.Equal(t, i < alwaysReserved, decision.Deferred())
				}
				require.Zero(t, ctl.Releasable(req.Endpoint))
			}
			elapse(time.Until(h.NextProbe) - 1)
			decision := ctl.Acquire(t.Context(), another(req))
			require.Nil(t, decision.Permit)
			elapse(2 * time.Nanosecond)
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
			opened = time.Now()
			elapse(2 * time.Second) // what was reserved is lost
		}

		// After a success at last, one relapse does not lead to a cooldown of ten minutes.
		elapse(time.Until(ctl.Health(req.Endpoint).NextProbe) + 1)
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		elapse(2 * time.Second)
		results(t, ctl, req, 20, 1100*time.Millisecond, refused(time.Millisecond))
		h := ctl.Health(req.Endpoint)
		require.Equal(t, relapses*30*time.Second, h.NextProbe.Sub(h.Since))
	})
}

// A circuit that opens again soon after closing has a longer cooldown; one that was closed for long
// begins with the first one.
func TestOpensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{Random: func() float64 { return 0 }}), guarded()
		cooldown := func() time.Duration { return time.Until(ctl.Health(req.Endpoint).NextProbe) }
		recovers := func() {
			elapse(time.Until(ctl.Health(req.Endpoint).NextProbe) + 1)
			admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
			require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		}
		trip(t, ctl, req)
		require.Equal(t, 30*time.Second, cooldown())
		recovers()
		elapse(2 * time.Second) // the ramp-up is that flat
		results(t, ctl, req, 20, 1100*time.Millisecond, refused(time.Millisecond))
		require.Greater(t, cooldown(), 50*time.Second)
		recovers()
		elapse(calm)
		results(t, ctl, req, 20, time.Second, refused(time.Millisecond))
		require.Less(t, cooldown(), 30*time.Second)
	})
}

// A receiver that comes and goes does not open and close the circuit all the time, and all is
// delivered.
func TestFlapping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := guarded().Limits
		s := newSim(t, limits, func(at time.Duration) (time.Duration, Result) {
			if at < 30*time.Minute && at/(20*time.Second)%2 == 1 {
				return 5 * time.Millisecond, refused(0)
			}
			return 5 * time.Millisecond, delivered(0)
		})
		go s.stream(3, 30*time.Minute)
		s.sleep(time.Hour)
		s.end()
		opened := 0
		for _, c := range s.changes {
			if c.From == webhook.CircuitClosed {
				opened++
			}
		}
		require.Positive(t, opened)
		require.Less(t, opened, 20, "of forty-five times that it went")
		require.Equal(t, len(s.all), s.delivered())
		average, _ := s.returns()
		require.LessOrEqual(t, average, 2.0)
	})
}

// Settings apply from the next Acquire: switching the breaker off closes the circuit.
func TestBreakerSettingsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		results(t, ctl, req, 19, 0, refused(time.Millisecond))
		req.Limits.Breaker.MinRequests = 5
		results(t, ctl, req, 5, 0, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		req.Limits.Breaker.MinRequests = 10
		decision := ctl.Acquire(t.Context(), another(req))
		require.True(t, decision.Deferred())
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		req.Limits.Breaker.Enabled = false
		ctl.Acquire(canceled(), another(req))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
	})
}

// Reset forgets what was learnt of the receiver.
func TestReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), guarded()
		ctl.Reset(req.Endpoint)
		trip(t, ctl, req)
		elapse(31 * time.Second)
		probe := admit(t, ctl, another(req))
		ctl.Reset(req.Endpoint)
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		probe.Done(refused(time.Hour))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		elapse(2 * time.Second)
		admit(t, ctl, another(req)).Done(Result{Answered: true, BreakerFailure: true, DeferFor: time.Hour})
		require.Zero(t, rateOf(ctl, req.Endpoint, req.Limits))
		ctl.Reset(req.Endpoint)
		require.Positive(t, rateOf(ctl, req.Endpoint, req.Limits))

		req = guarded()
		req.Limits.MaxInFlight = 30
		var begun []*Permit
		for range 20 {
			begun = append(begun, admit(t, ctl, another(req)))
		}
		ctl.Reset(req.Endpoint)
		for _, p := range begun {
			p.Done(refused(time.Millisecond))
		}
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit, "what was before says nothing")
	})
}

// After an outage the rate rises slowly: no second has more than twice as many requests as before; in
// the end all is delivered, and deliveries were not deferred often.
func TestRecoveryRampsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, fails, back = 20, 120 * time.Second, 180 * time.Second
		s := newSim(t, guarded().Limits, func(at time.Duration) (time.Duration, Result) {
			if at >= fails && at < back {
				return 5 * time.Millisecond, refused(0)
			}
			return 10*time.Millisecond + time.Duration(rand.Int64N(int64(5*time.Millisecond))), delivered(0)
		})
		go s.stream(rate, 5*time.Minute)
		s.sleep(10 * time.Minute)
		s.end()
		require.Equal(t, len(s.all), s.delivered())
		average, _ := s.returns()
		require.LessOrEqual(t, average, 2.0)
		closed := s.closed()
		require.LessOrEqual(t, s.within(back, closed), 1, "probes")
		require.LessOrEqual(t, s.within(closed, closed+10*time.Second), rate/2, "a ramp-up, not a step")
		require.LessOrEqual(t, s.within(closed, closed+rampTime), 2*rate)
		require.Greater(t, s.within(closed+rampTime/2, closed+rampTime), rate*3/4, "it rises")
	})
}
