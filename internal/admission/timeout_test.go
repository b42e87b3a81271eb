package admission

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// automatic is a request for an endpoint with an automatic timeout.
func automatic() Request {
	req := newRequest()
	req.Limits.AutoTimeout, req.Limits.Rate = true, 1e9
	return req
}

func cutOff() Result {
	return Result{Number: 1, Reason: "timeout_headers", BreakerFailure: true, TimedOut: true}
}

// after ends requests with a result and returns the timeout of the next first attempt.
func after(t *testing.T, ctl *Controller, req Request, n int, r Result) time.Duration {
	t.Helper()
	for range n {
		admit(t, ctl, another(req)).Done(r)
	}
	return ctl.Health(req.Endpoint).Timeout
}

// Whatever the latencies were, in whatever order and over whatever time: three times
// their exact p99 by nearest rank, rounded up to a second, from 5 to 30 s.
func TestAutoTimeoutFollowsTheP99(t *testing.T) {
	t.Parallel()
	type counted struct {
		part    time.Duration
		latency time.Duration
	}
	rapid.Check(t, func(t *rapid.T) {
		var (
			a      autoTimeout
			now    time.Duration
			window []counted
		)
		for range rapid.IntRange(1, 12).Draw(t, "phases") {
			now += time.Duration(rapid.Int64Range(0, int64(8*time.Minute)).Draw(t, "later"))
			most := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 40 * time.Second}).Draw(t, "most")
			latencies := rapid.SliceOfN(rapid.Int64Range(1, int64(most)), 0, 150).Draw(t, "latencies")
			for _, ns := range latencies {
				r, had, counts := Result{Latency: time.Duration(ns)}, time.Duration(0), time.Duration(ns)
				switch rapid.IntRange(0, 9).Draw(t, "kind") {
				case 0: // says nothing
					a.learn(now, webhook.MaxTimeout, &Result{Latency: webhook.MaxTimeout, Answered: true, BreakerFailure: true})
					continue
				case 1: // took longer than the time it had
					r.TimedOut, had = true, rapid.SampledFrom([]time.Duration{autoLeast, 8 * time.Second}).Draw(t, "had")
					counts = had
				default:
					r.Delivered = true
				}
				a.learn(now, had, &r)
				window = append(window, counted{now / recentPart, counts})
			}
			window = slices.DeleteFunc(window, func(c counted) bool { return c.part <= now/recentPart-windowParts })

			got := a.timeout(now, 0)
			require.GreaterOrEqual(t, got, autoLeast)
			require.LessOrEqual(t, got, webhook.MaxTimeout)
			_, n := a.sum(now)
			require.EqualValues(t, len(window), n, "old ones are forgotten")
			require.Equal(t, n == 0, a.empty(now))
			if len(window) < autoEnough {
				require.Equal(t, webhook.DefaultTimeout, got)
				continue
			}
			slices.SortFunc(window, func(a, b counted) int { return int(a.latency - b.latency) })
			p99 := window[(len(window)*99+99)/100-1].latency
			require.GreaterOrEqual(t, got, min(3*p99, webhook.MaxTimeout))
			require.Less(t, got, max(3*p99+time.Second, autoLeast+1))
		}
	})
}

// Every step, at its ends.
func TestAutoTimeoutSteps(t *testing.T) {
	t.Parallel()
	for latency, want := range map[time.Duration]time.Duration{
		1: 5 * time.Second, time.Millisecond: 5 * time.Second, 5 * time.Second / 3: 5 * time.Second, 5*time.Second/3 + 1: 6 * time.Second,
		2 * time.Second: 6 * time.Second, 2*time.Second + 1: 7 * time.Second, 5 * time.Second: 15 * time.Second,
		9*time.Second + 667*time.Millisecond: webhook.MaxTimeout, 10 * time.Second: webhook.MaxTimeout,
		15 * time.Second: webhook.MaxTimeout, never / 2: webhook.MaxTimeout,
	} {
		ctl, req := New(Config{}), automatic()
		require.Equal(t, want, after(t, ctl, req, autoEnough, delivered(latency)), latency)
	}
}

// Few answers say nothing, refusals nothing at all; what was learnt is forgotten with time, by a reset, and when
// the timeout is not automatic any more.
func TestAutoTimeoutRemembers(t *testing.T) {
	t.Parallel()
	c := newClock()
	ctl, req := c.controller(), automatic()
	fast := delivered(time.Millisecond)
	require.Zero(t, ctl.Health(req.Endpoint).Timeout, "not known at all")
	require.Equal(t, webhook.DefaultTimeout, after(t, ctl, req, autoEnough-1, fast))
	require.Equal(t, webhook.DefaultTimeout, after(t, ctl, req, 100, refused(time.Millisecond)))
	require.Equal(t, autoLeast, after(t, ctl, req, 1, fast))

	// One in a hundred may be slower.
	require.Equal(t, autoLeast, after(t, ctl, req, 99-autoEnough, fast))
	require.Equal(t, autoLeast, after(t, ctl, req, 1, delivered(8*time.Second)))
	require.Equal(t, 24*time.Second, after(t, ctl, req, 1, delivered(8*time.Second)))

	ctl.Reset(req.Endpoint)
	require.Equal(t, webhook.DefaultTimeout, after(t, ctl, req, 0, fast))
	require.Equal(t, autoLeast, after(t, ctl, req, autoEnough, fast))

	// An idle endpoint is forgotten with its latencies, not before.
	others := func() {
		for range 2000 { // of every shard
			admit(t, ctl, newRequest()).Cancel()
		}
	}
	c.advance(2 * idleAfter)
	others()
	require.Equal(t, autoLeast, ctl.Health(req.Endpoint).Timeout)
	c.advance(idleAfter)
	require.Equal(t, webhook.DefaultTimeout, ctl.Health(req.Endpoint).Timeout)
	c.advance(idleAfter)
	others()
	require.Equal(t, webhook.Observation{Circuit: webhook.CircuitClosed}, ctl.Health(req.Endpoint))

	require.Equal(t, autoLeast, after(t, ctl, req, autoEnough, fast))
	fixed := req
	fixed.Limits = Limits{Timeout: 7 * time.Second}
	permit := admit(t, ctl, another(fixed))
	require.Equal(t, 7*time.Second, permit.Timeout())
	permit.Done(fast)
	require.Zero(t, ctl.Health(req.Endpoint).Timeout)
	permit = admit(t, ctl, another(req))
	require.Equal(t, webhook.DefaultTimeout, permit.Timeout())
	permit.Cancel()
}

// A receiver that becomes slower than its timeout, however slow, is given the time it needs after few time-outs;
// and when it is fast again, the timeout is short again.
func TestAutoTimeoutGrowsAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		ctl, req := c.controller(), automatic()
		fast := rapid.IntRange(0, 2000).Draw(t, "fast")
		takes := time.Duration(rapid.Int64Range(1, int64(webhook.MaxTimeout)-1).Draw(t, "takes"))
		request := func(takes time.Duration) bool {
			permit := ctl.Acquire(canceled(), another(req)).Permit
			require.NotNil(t, permit)
			c.advance(min(takes, permit.Timeout()) / 1000) // as many at a time
			if takes > permit.Timeout() {
				r := cutOff()
				r.Latency = permit.Timeout()
				permit.Done(r)
				return false
			}
			permit.Done(delivered(takes))
			return true
		}
		for range fast {
			require.True(t, request(100*time.Millisecond))
		}
		cut := 0
		for !request(takes) {
			cut++
			require.LessOrEqual(t, cut, 2*(fast/99+1)+autoEnough, "two steps: from 5 to 15 and to 30 s")
		}
		for range windowParts + 1 {
			c.advance(recentPart)
			for range autoEnough {
				require.True(t, request(100*time.Millisecond))
			}
		}
		require.Equal(t, autoLeast, ctl.Health(req.Endpoint).Timeout)
	})
}

// Each retry has twice the time of the attempt before, up to 30 s, whichever way it is admitted; with a fixed
// timeout it has that.
func TestRetriesHaveMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ways := map[string]func(ctl *Controller, req Request) *Permit{
			"at once": func(ctl *Controller, req Request) *Permit { return admit(t, ctl, req) },
			"after a wait": func(ctl *Controller, req Request) *Permit {
				var permits []*Permit
				for range webhook.DefaultMaxInFlight {
					permits = append(permits, admit(t, ctl, another(req)))
				}
				got := make(chan *Permit)
				go func() {
					permit := ctl.Acquire(t.Context(), req).Permit
					got <- permit
				}()
				synctest.Wait()
				require.Equal(t, 1, queueOf(ctl, req.Endpoint).waiting)
				for _, permit := range permits {
					permit.Cancel()
				}
				return <-got
			},
			"as a probe": func(ctl *Controller, req Request) *Permit {
				req.Limits.Breaker = webhook.DefaultCircuitBreaker()
				trip(t, ctl, req)
				elapse(time.Minute)
				return admit(t, ctl, req)
			},
		}
		for name, way := range ways {
			for retries, want := range map[int]string{0: "5s", 1: "10s", 2: "20s", 3: "30s", 4: "30s", 1000: "30s"} {
				ctl, req := New(Config{}), automatic()
				after(t, ctl, req, autoEnough, delivered(time.Millisecond))
				req = another(req)
				req.Retries = retries
				permit := way(ctl, req)
				require.NotNil(t, permit)
				require.Equal(t, want, permit.Timeout().String(), "%s, %d", name, retries)
				permit.Cancel()
			}
		}
		ctl, req := New(Config{}), newRequest()
		req.Limits.Timeout, req.Retries = 2*time.Second, 3
		permit := admit(t, ctl, req)
		require.Equal(t, 2*time.Second, permit.Timeout())
		permit.Done(cutOff())
	})
}

// When a slot is likely to become free follows from the timeout of its request.
func TestSlotsOfAutoTimeouts(t *testing.T) {
	t.Parallel()
	c := newClock()
	ctl, req := c.controller(), automatic()
	req.Limits.MaxInFlight = 1
	after(t, ctl, req, autoEnough, delivered(time.Millisecond))
	admit(t, ctl, another(req))
	c.advance(4 * time.Second)
	decision := ctl.Acquire(canceled(), another(req))
	permit := decision.Permit
	require.Nil(t, permit)
	require.Equal(t, c.Add(minDeferral), decision.Until, "it ends after 5 s, not after 15 s")
}
