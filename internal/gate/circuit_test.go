package gate

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// guarded is an entry for an endpoint with a circuit breaker.
func guarded() Entry {
	en := entry()
	en.Limits.Breaker = webhook.DefaultCircuitBreaker()
	return en
}

// results ends requests one after another, every apart.
func results(t testing.TB, g *Gate, en Entry, n int, every time.Duration, r Result) {
	t.Helper()
	for range n {
		pass := admit(t, g, another(en))
		pass.Done(r)
		elapse(every)
	}
}

// trip opens a circuit with 20 failures.
func trip(t testing.TB, g *Gate, en Entry) {
	t.Helper()
	results(t, g, en, en.Limits.Breaker.MinRequests, 0, refused(time.Millisecond))
	require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
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
				g, en := New(Config{}), guarded()
				c.breaker.Enabled = true
				en.Limits.Breaker = c.breaker
				results(t, g, en, c.successes, 0, delivered(time.Millisecond))
				results(t, g, en, c.failures-1, 0, refused(time.Millisecond))
				require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
				results(t, g, en, 1, 0, refused(time.Millisecond))
				h := g.Health(en.Endpoint)
				require.Equal(t, CircuitOpen, h.Circuit)
				require.Equal(t, c.why, h.Why)
				require.Equal(t, time.Now(), h.Since)
				require.Equal(t, time.Now().Add(30*time.Second+openMargin), h.NextProbe)
				require.Zero(t, h.Rate)
				require.True(t, g.Slow(en.Endpoint))
			})
		})
	}
}

// What is older than the window counts no more; what began before it does: a
// receiver that hangs for longer than the window is in trouble too.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		results(t, g, en, 19, 0, refused(time.Millisecond))
		elapse(time.Minute + 1)
		results(t, g, en, 19, 0, refused(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		results(t, g, en, 1, 0, refused(time.Millisecond))
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)

		// The window rolls: nineteen within it, however long it takes.
		en = guarded()
		results(t, g, en, 100, time.Minute/18, refused(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)

		en = guarded()
		en.Limits.Breaker.Window = time.Second
		en.Limits.MaxInFlight = 30
		var passes []*Pass
		for range 20 {
			passes = append(passes, admit(t, g, another(en)))
		}
		elapse(15 * time.Second)
		for _, p := range passes {
			p.Done(Result{Latency: 15 * time.Second, Reason: "timeout_headers", Trouble: true})
		}
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
	})
}

// Only trouble counts: not 4xx, not what says nothing of the receiver, not what was
// never sent; and no circuit opens that is switched off.
func TestNeverOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		for _, r := range []Result{
			delivered(time.Millisecond),
			{Latency: time.Millisecond, Answered: true, Reason: "http_400"},
			{Latency: time.Millisecond, Answered: true, Reason: "http_404"},
			{Latency: time.Millisecond, Reason: "token_refused"},
		} {
			en := guarded()
			results(t, g, en, 200, 0, r)
			require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		}
		en := guarded()
		for range 200 {
			admit(t, g, another(en)).Cancel()
		}
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		en = entry()
		results(t, g, en, 200, 0, refused(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)

		// What says nothing does not make a ratio smaller either.
		en = guarded()
		results(t, g, en, 100, 0, Result{Latency: time.Millisecond, Reason: "token_refused"})
		trip(t, g, en)
	})
}

// While it is open nobody goes; then exactly one does, whose success closes it.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []Change
		g := New(Config{Changed: func(c Change) { changes = append(changes, c) }})
		en := guarded()
		begun := time.Now()
		stale := admit(t, g, another(en))
		trip(t, g, en)
		var first Entry
		seen := map[time.Time]bool{}
		for i := range 50 {
			one := another(en)
			if i == 0 {
				first = one
			}
			admission, _ := g.Enter(t.Context(), one)
			require.Equal(t, Deferred, admission.Verdict)
			require.Equal(t, ReasonCircuitOpen, admission.Reason)
			require.False(t, admission.Until.Before(begun.Add(30*time.Second)))
			require.False(t, seen[admission.Until], "spread")
			seen[admission.Until] = true
		}
		elapse(29 * time.Second)
		admission, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, Deferred, admission.Verdict)
		elapse(time.Second + openMargin + 1)
		stale.Done(delivered(time.Millisecond)) // began before: says nothing
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)

		probe := admit(t, g, first)
		require.Equal(t, CircuitHalfOpen, g.Health(en.Endpoint).Circuit)
		for range 5 {
			for range 10 {
				admission, _ := g.Enter(t.Context(), another(en))
				require.NotEqual(t, Admitted, admission.Verdict)
			}
			elapse(2 * time.Second)
		}
		probe.Done(delivered(time.Millisecond))
		h := g.Health(en.Endpoint)
		require.Equal(t, CircuitClosed, h.Circuit)
		require.Empty(t, h.Why)
		require.Positive(t, h.Rate)
		require.Len(t, changes, 3)
		for i, c := range changes {
			require.Equal(t, en.Endpoint, c.Endpoint)
			want := [][2]Circuit{{CircuitClosed, CircuitOpen}, {CircuitOpen, CircuitHalfOpen}, {CircuitHalfOpen, CircuitClosed}}[i]
			require.Equal(t, want, [2]Circuit{c.From, c.To})
		}
		require.Equal(t, begun, changes[0].At)
		require.Equal(t, begun.Add(30*time.Second+openMargin), changes[0].NextProbe)
		require.Equal(t, "20 of 20 requests failed, the last with http_503", changes[0].Why)
	})
}

// Who comes while a probe is under way is told to come when it is likely to be over.
func TestFollowersWaitForTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		results(t, g, en, 20, 0, refused(4*time.Second))
		first, _ := g.Enter(t.Context(), en)
		second, _ := g.Enter(t.Context(), another(en))
		require.GreaterOrEqual(t, second.Until.Sub(first.Until), 6*time.Second)
		elapse(time.Until(first.Until) + 1)
		probe := admit(t, g, en)
		third, _ := g.Enter(t.Context(), another(en))
		require.GreaterOrEqual(t, time.Until(third.Until), 6*time.Second)
		probe.Done(delivered(time.Second))
	})
}

// The slope begins when the circuit closes, whenever that is, also for those who have
// no reservation.
func TestSlopeBeginsWithClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		results(t, g, en, 600, 100*time.Millisecond, delivered(time.Millisecond))
		for g.Health(en.Endpoint).Circuit == CircuitClosed {
			results(t, g, en, 1, time.Millisecond, refused(time.Millisecond))
		}
		elapse(time.Hour)
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		require.InDelta(t, 1, g.Rate(en.Endpoint, en.Limits), 0.1)
		n := 0
		for range 600 {
			one := another(en)
			if _, pass := g.Enter(canceled(), one); pass != nil {
				pass.Done(delivered(time.Millisecond))
				n++
			}
			g.Forget(en.Endpoint, one.Delivery)
			elapse(100 * time.Millisecond)
		}
		require.InDelta(t, 400, n, 40, "a tenth to one and a half of ten per second, of ten per second that ask")
	})
}

// A probe needs a place like everybody.
func TestProbeNeedsAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		en.Limits.MaxInFlight, en.Limits.Breaker.Cooldown = 2, time.Second
		hangs := admit(t, g, another(en))
		trip(t, g, another(en))
		en.Limits.MaxInFlight = 1
		elapse(5 * time.Second)
		admission, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, Deferred, admission.Verdict)
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
		hangs.Done(refused(time.Millisecond))
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
	})
}

// A probe that could not be made, or from which nothing was learnt, leaves the
// question to the next one.
func TestProbeWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		trip(t, g, en)
		elapse(31 * time.Second)
		admit(t, g, another(en)).Cancel()
		elapse(time.Second)
		admit(t, g, another(en)).Done(Result{Reason: "dns_temporary"})
		require.Equal(t, CircuitHalfOpen, g.Health(en.Endpoint).Circuit)
		elapse(time.Second)
		admit(t, g, another(en)).Done(Result{Answered: true, Reason: "http_404"})
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
	})
}

// Each failed probe doubles the cooldown, to ten minutes at most. Only a few come
// back for nothing; the others are held.
func TestCooldownDoubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{Random: func() float64 { return 0 }}), guarded()
		trip(t, g, en)
		since := time.Now()
		opened := since
		for _, seconds := range []int{30, 60, 120, 240, 480, 600, 600} {
			cooldown := time.Duration(seconds) * time.Second
			h := g.Health(en.Endpoint)
			require.Equal(t, CircuitOpen, h.Circuit)
			require.Equal(t, since, h.Since)
			require.Equal(t, cooldown+openMargin, h.NextProbe.Sub(opened))
			if seconds > 30 {
				for i := range 20 {
					admission, _ := g.Enter(t.Context(), another(en))
					require.Equal(t, i < pioneers, admission.Verdict == Deferred)
				}
				require.Zero(t, g.Room(en.Endpoint))
			}
			elapse(time.Until(h.NextProbe) - 1)
			admission, _ := g.Enter(t.Context(), another(en))
			require.NotEqual(t, Admitted, admission.Verdict)
			elapse(2 * time.Nanosecond)
			admit(t, g, another(en)).Done(refused(time.Millisecond))
			opened = time.Now()
			elapse(2 * time.Second) // what was reserved is lost
		}

		// Found well at last, it is not left alone for ten minutes because of one relapse.
		elapse(time.Until(g.Health(en.Endpoint).NextProbe) + 1)
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		elapse(2 * time.Second)
		results(t, g, en, 20, 1100*time.Millisecond, refused(time.Millisecond))
		h := g.Health(en.Endpoint)
		require.Equal(t, relapses*30*time.Second+openMargin, h.NextProbe.Sub(h.Since))
	})
}

// One that opens again soon after closing goes on where it was; one that was closed
// for long begins anew.
func TestOpensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{Random: func() float64 { return 0 }}), guarded()
		cooldown := func() time.Duration { return time.Until(g.Health(en.Endpoint).NextProbe) - openMargin }
		recovers := func() {
			elapse(time.Until(g.Health(en.Endpoint).NextProbe) + 1)
			admit(t, g, another(en)).Done(delivered(time.Millisecond))
			require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		}
		trip(t, g, en)
		require.Equal(t, 30*time.Second, cooldown())
		recovers()
		elapse(2 * time.Second) // the slope is that flat
		results(t, g, en, 20, 1100*time.Millisecond, refused(time.Millisecond))
		require.Greater(t, cooldown(), 50*time.Second)
		recovers()
		elapse(calm)
		results(t, g, en, 20, time.Second, refused(time.Millisecond))
		require.Less(t, cooldown(), 30*time.Second)
	})
}

// A receiver that comes and goes does not make the circuit open and close all the
// time, and what is sent to it arrives.
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
			if c.From == CircuitClosed {
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

// Settings rule from the next Enter: switching it off closes it.
func TestBreakerSettingsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		results(t, g, en, 19, 0, refused(time.Millisecond))
		en.Limits.Breaker.MinRequests = 5
		results(t, g, en, 5, 0, refused(time.Millisecond))
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
		en.Limits.Breaker.MinRequests = 10
		admission, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, Deferred, admission.Verdict)
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
		en.Limits.Breaker.Enabled = false
		g.Enter(canceled(), another(en))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
	})
}

// A person says that the endpoint is well, or it leads elsewhere now.
func TestReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), guarded()
		g.Reset(en.Endpoint)
		trip(t, g, en)
		elapse(31 * time.Second)
		probe := admit(t, g, another(en))
		g.Reset(en.Endpoint)
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		probe.Done(refused(time.Hour))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		elapse(2 * time.Second)
		admit(t, g, another(en)).Done(Result{Answered: true, Trouble: true, DeferFor: time.Hour})
		require.Zero(t, g.Rate(en.Endpoint, en.Limits))
		g.Reset(en.Endpoint)
		require.Positive(t, g.Rate(en.Endpoint, en.Limits))

		en = guarded()
		en.Limits.MaxInFlight = 30
		var begun []*Pass
		for range 20 {
			begun = append(begun, admit(t, g, another(en)))
		}
		g.Reset(en.Endpoint)
		for _, p := range begun {
			p.Done(refused(time.Millisecond))
		}
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit, "what was before says nothing")
	})
}

// After an outage the rate rises slowly: never more in a second than twice as many
// as before, and in the end everything has arrived, nobody having come back often.
func TestRecoveryIsASlope(t *testing.T) {
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
		require.LessOrEqual(t, s.within(closed, closed+10*time.Second), rate/2, "a slope, not a step")
		require.LessOrEqual(t, s.within(closed, closed+rampTime), 2*rate)
		require.Greater(t, s.within(closed+rampTime/2, closed+rampTime), rate*3/4, "it rises")
	})
}
