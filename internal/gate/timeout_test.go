package gate

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// automatic is an entry for an endpoint whose timeout follows its answers.
func automatic() Entry {
	en := entry()
	en.Limits.AutoTimeout, en.Limits.Rate = true, 1e9
	return en
}

func cutOff() Result {
	return Result{Number: 1, Reason: "timeout_headers", Trouble: true, TimedOut: true}
}

// after lets requests come to results and returns the timeout of the next first attempt.
func after(t *testing.T, g *Gate, en Entry, n int, r Result) time.Duration {
	t.Helper()
	for range n {
		admit(t, g, another(en)).Done(r)
	}
	return g.Health(en.Endpoint).Timeout
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
			a      answers
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
					a.learn(now, &Pass{timeout: webhook.MaxTimeout}, &Result{Latency: webhook.MaxTimeout, Answered: true, Trouble: true})
					continue
				case 1: // took longer than the time it had
					r.TimedOut, had = true, rapid.SampledFrom([]time.Duration{autoLeast, 8 * time.Second}).Draw(t, "had")
					counts = had
				default:
					r.Delivered = true
				}
				a.learn(now, &Pass{timeout: had}, &r)
				window = append(window, counted{now / recentPart, counts})
			}
			window = slices.DeleteFunc(window, func(c counted) bool { return c.part <= now/recentPart-recentParts })

			got := a.timeout(now)
			require.GreaterOrEqual(t, got, autoLeast)
			require.LessOrEqual(t, got, webhook.MaxTimeout)
			require.EqualValues(t, len(window), a.count(now), "old ones are forgotten")
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
		g, en := New(Config{}), automatic()
		require.Equal(t, want, after(t, g, en, autoEnough, delivered(latency)), latency)
	}
}

// Few answers say nothing, refusals nothing at all, and what was learnt is forgotten
// with time, by a reset, and when the timeout does not follow any more.
func TestAutoTimeoutRemembers(t *testing.T) {
	t.Parallel()
	c := newClock()
	g, en := c.gate(), automatic()
	fast := delivered(time.Millisecond)
	require.Zero(t, g.Health(en.Endpoint).Timeout, "not known at all")
	require.Equal(t, webhook.DefaultTimeout, after(t, g, en, autoEnough-1, fast))
	require.Equal(t, webhook.DefaultTimeout, after(t, g, en, 100, refused(time.Millisecond)))
	require.Equal(t, autoLeast, after(t, g, en, 1, fast))

	// One in a hundred may be slower.
	require.Equal(t, autoLeast, after(t, g, en, 99-autoEnough, fast))
	require.Equal(t, autoLeast, after(t, g, en, 1, delivered(8*time.Second)))
	require.Equal(t, 24*time.Second, after(t, g, en, 1, delivered(8*time.Second)))

	g.Reset(en.Endpoint)
	require.Equal(t, webhook.DefaultTimeout, after(t, g, en, 0, fast))
	require.Equal(t, autoLeast, after(t, g, en, autoEnough, fast))

	// An idle endpoint is forgotten with its answers, not before.
	others := func() {
		for range 2000 { // of every shard
			admit(t, g, entry()).Cancel()
		}
	}
	c.advance(2 * idleAfter)
	others()
	require.Equal(t, autoLeast, g.Health(en.Endpoint).Timeout)
	c.advance(idleAfter)
	require.Equal(t, webhook.DefaultTimeout, g.Health(en.Endpoint).Timeout)
	c.advance(idleAfter)
	others()
	require.Equal(t, Health{}, g.Health(en.Endpoint))

	require.Equal(t, autoLeast, after(t, g, en, autoEnough, fast))
	fixed := en
	fixed.Limits = Limits{Timeout: 7 * time.Second}
	pass := admit(t, g, another(fixed))
	require.Equal(t, 7*time.Second, pass.Timeout())
	pass.Done(fast)
	require.Zero(t, g.Health(en.Endpoint).Timeout)
	pass = admit(t, g, another(en))
	require.Equal(t, webhook.DefaultTimeout, pass.Timeout())
	pass.Cancel()
}

// A receiver that becomes slower than its timeout, however slow, is given the time it
// needs after few that were cut off; and when it is fast again, the timeout is short again.
func TestAutoTimeoutGrowsAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		g, en := c.gate(), automatic()
		fast := rapid.IntRange(0, 2000).Draw(t, "fast")
		takes := time.Duration(rapid.Int64Range(1, int64(webhook.MaxTimeout)-1).Draw(t, "takes"))
		request := func(takes time.Duration) bool {
			_, pass := g.Enter(canceled(), another(en))
			require.NotNil(t, pass)
			c.advance(min(takes, pass.Timeout()) / 1000) // as many at a time
			if takes > pass.Timeout() {
				r := cutOff()
				r.Latency = pass.Timeout()
				pass.Done(r)
				return false
			}
			pass.Done(delivered(takes))
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
		for range recentParts + 1 {
			c.advance(recentPart)
			for range autoEnough {
				require.True(t, request(100*time.Millisecond))
			}
		}
		require.Equal(t, autoLeast, g.Health(en.Endpoint).Timeout)
	})
}

// Each retry has twice the time of the attempt before, up to 30 s, whichever way it gets
// in; one with a timeout that is set has that.
func TestRetriesHaveMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ways := map[string]func(g *Gate, en Entry) *Pass{
			"at once": func(g *Gate, en Entry) *Pass { return admit(t, g, en) },
			"after a wait": func(g *Gate, en Entry) *Pass {
				var passes []*Pass
				for range webhook.DefaultMaxInFlight {
					passes = append(passes, admit(t, g, another(en)))
				}
				got := make(chan *Pass)
				go func() {
					_, pass := g.Enter(t.Context(), en)
					got <- pass
				}()
				synctest.Wait()
				require.Equal(t, 1, g.Health(en.Endpoint).Waiting)
				for _, pass := range passes {
					pass.Cancel()
				}
				return <-got
			},
			"as a probe": func(g *Gate, en Entry) *Pass {
				en.Limits.Breaker = webhook.DefaultCircuitBreaker()
				trip(t, g, en)
				elapse(time.Minute)
				return admit(t, g, en)
			},
		}
		for name, way := range ways {
			for retries, want := range map[int]string{0: "5s", 1: "10s", 2: "20s", 3: "30s", 4: "30s", 1000: "30s"} {
				g, en := New(Config{}), automatic()
				after(t, g, en, autoEnough, delivered(time.Millisecond))
				en = another(en)
				en.Retries = retries
				pass := way(g, en)
				require.NotNil(t, pass)
				require.Equal(t, want, pass.Timeout().String(), "%s, %d", name, retries)
				pass.Cancel()
			}
		}
		g, en := New(Config{}), entry()
		en.Limits.Timeout, en.Retries = 2*time.Second, 3
		pass := admit(t, g, en)
		require.Equal(t, 2*time.Second, pass.Timeout())
		pass.Done(cutOff())
	})
}

// When a place is likely to become free follows from the time that its request has.
func TestPlacesOfAutoTimeouts(t *testing.T) {
	t.Parallel()
	c := newClock()
	g, en := c.gate(), automatic()
	en.Limits.MaxInFlight = 1
	after(t, g, en, autoEnough, delivered(time.Millisecond))
	admit(t, g, another(en))
	c.advance(4 * time.Second)
	admission, pass := g.Enter(canceled(), another(en))
	require.Nil(t, pass)
	require.Equal(t, c.Add(minDeferral), admission.Until, "it ends after 5 s, not after 15 s")
}
