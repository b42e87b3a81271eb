package gate

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// admit is an Enter that has to succeed.
func admit(t testing.TB, g *Gate, en Entry) *Pass {
	t.Helper()
	admission, pass := g.Enter(t.Context(), en)
	require.Equal(t, Admission{Verdict: Admitted}, admission)
	require.NotNil(t, pass)
	return pass
}

// learn lets an endpoint be known to answer after latency.
func learn(t testing.TB, g *Gate, en Entry, latency time.Duration) {
	t.Helper()
	pass := admit(t, g, another(en))
	pass.Done(delivered(latency))
}

// another is somebody else for the same endpoint.
func another(en Entry) Entry {
	en.Delivery = newDelivery(en.Endpoint)
	return en
}

// Where a turn lies decides whether it is awaited, deferred or held.
func TestVerdictByDistance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every    time.Duration // between two requests, by the rate
		reserved int           // who have asked before, beside the one that was admitted
		waits    time.Duration
		until    time.Duration
		verdict  Verdict
		released bool
	}{
		"at once":             {every: 5 * time.Millisecond, verdict: Admitted},
		"near":                {every: 200 * time.Millisecond, waits: 190 * time.Millisecond, verdict: Admitted},
		"just near":           {every: 259 * time.Millisecond, waits: 249 * time.Millisecond, verdict: Admitted},
		"not near":            {every: 261 * time.Millisecond, until: minDeferral, verdict: Deferred},
		"nearly far":          {every: time.Second, until: minDeferral, verdict: Deferred},
		"far":                 {every: 2 * time.Second, until: 1990 * time.Millisecond, verdict: Deferred},
		"later":               {every: 2 * time.Second, reserved: 5, until: 11990 * time.Millisecond, verdict: Deferred},
		"last of newcomers":   {every: 10 * time.Second, reserved: 23, until: 239990 * time.Millisecond, verdict: Deferred},
		"too far":             {every: 10 * time.Second, reserved: 24, verdict: Held},
		"released":            {every: 10 * time.Second, reserved: 24, released: true, until: 249990 * time.Millisecond, verdict: Deferred},
		"a pioneer":           {every: 100 * time.Second, reserved: 3, until: 399990 * time.Millisecond, verdict: Deferred},
		"no pioneer any more": {every: 100 * time.Second, reserved: 4, released: true, verdict: Held},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				en.Limits.Rate = 1 / c.every.Seconds()
				learn(t, g, en, time.Millisecond)
				for range c.reserved {
					admission, _ := g.Enter(t.Context(), another(en))
					require.Equal(t, Deferred, admission.Verdict)
				}
				begun := time.Now()
				en.Released = c.released
				admission, pass := g.Enter(t.Context(), en)
				require.Equal(t, c.verdict, admission.Verdict)
				require.Equal(t, c.verdict == Admitted, pass != nil)
				require.InDelta(t, c.waits, time.Since(begun), 10)
				switch c.verdict {
				case Admitted:
					require.Equal(t, Admission{Verdict: Admitted}, admission)
				case Deferred:
					require.Equal(t, ReasonRate, admission.Reason)
					require.InDelta(t, c.until, admission.Until.Sub(begun), 100)
				case Held:
					require.Equal(t, ReasonBacklog, admission.Reason)
					require.Zero(t, admission.Until)
				}
			})
		})
	}
}

// Exactly GCRA: with places for everybody and timers that are exact, in no stretch of
// time go more than the rate and the burst allow, and as many as that do go.
func TestRateIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		g, en := c.gate(), entry()
		rate := rapid.Float64Range(0.2, 2000).Draw(t, "rate")
		en.Limits = Limits{Rate: rate, MaxInFlight: 1000}
		_, first := g.Enter(canceled(), en)
		first.Done(delivered(time.Millisecond))
		begun, level, before := c.Time, 1.0, c.Time
		due := map[webhook.DeliveryID]time.Time{}
		ask := func(id webhook.DeliveryID) {
			en.Delivery = id
			delete(due, id)
			admission, pass := g.Enter(canceled(), en) // nobody waits inside: such turns are lost
			switch {
			case pass != nil:
				pass.Done(delivered(time.Millisecond))
				level = max(0, level-rate*c.Sub(before).Seconds()) + 1
				before = c.Time
				require.LessOrEqual(t, level, 1+rate*burst.Seconds()+1e-3)
			case admission.Verdict == Deferred && g.Health(en.Endpoint).Reserved > len(due):
				due[id] = admission.Until
			}
		}
		for c.Sub(begun) < 20*time.Second {
			for range rapid.IntRange(0, 5).Draw(t, "ask") {
				ask(newDelivery(en.Endpoint))
			}
			next := c.Add(time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond)
			for {
				at, who := next, webhook.DeliveryID{}
				for id, until := range due {
					if until.Before(at) {
						at, who = until, id
					}
				}
				c.Time = at
				if who == (webhook.DeliveryID{}) {
					break
				}
				ask(who)
			}
		}
	})
}

// As long as the rate is the limit, all of it is used.
func TestRateIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, Limits{Rate: 20}, constant(10*time.Millisecond))
		s.late = 0
		go s.stream(40, 30*time.Second)
		s.sleep(30 * time.Second)
		require.InDelta(t, 20*30, s.delivered(), 20)
		require.LessOrEqual(t, s.within(0, 30*time.Second), 22)
		s.sleep(40 * time.Second)
		s.end()
		require.Equal(t, 40*30, s.delivered())
	})
}

// The width of a shared workflow comes at once to an endpoint that nobody knows:
// all of them go within the same call.
func TestFiftyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, Limits{}, constant(45*time.Millisecond))
		for range 50 {
			s.send()
		}
		s.sleep(300 * time.Millisecond)
		require.Equal(t, 50, s.delivered())
		_, most := s.returns()
		require.Zero(t, most)
		s.end()
		require.Equal(t, 10, s.most)
	})
}

// Waiters go in the order of asking, and there is a bound to their number: how many come while
// one request is under way at a receiver that takes so long for each, and how many of them wait.
func TestWaitersInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		latency time.Duration
		before  Result
		waits   int
	}{
		"quick":           {200 * time.Microsecond, delivered(200 * time.Microsecond), quickWaiters},
		"one that failed": {400 * time.Microsecond, refused(400 * time.Microsecond), maxWaiters},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				en.Limits.MaxInFlight = 1
				learn(t, g, en, c.latency)
				pass := admit(t, g, en)
				elapse(c.latency)
				pass.Done(c.before)
				first := admit(t, g, en)
				order := make(chan int, c.waits)
				deferred := 0
				for i := range c.waits + 10 {
					go func() {
						admission, pass := g.Enter(t.Context(), another(en))
						if pass == nil {
							if admission.Reason == ReasonInFlight {
								deferred++
							}
							return
						}
						order <- i
						elapse(c.latency)
						pass.Done(delivered(c.latency))
					}()
					synctest.Wait()
				}
				require.Equal(t, c.waits, g.Health(en.Endpoint).Waiting)
				require.Equal(t, 10, deferred)
				require.Equal(t, 10, g.Health(en.Endpoint).Reserved)
				first.Done(delivered(c.latency))
				elapse(longPatience)
				require.Len(t, order, c.waits)
				for i := range c.waits {
					require.Equal(t, i, <-order)
				}
			})
		})
	}
}

// While many wait inside for one quick endpoint, no more than usual wait for another.
func TestWaitersInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		for i, most := range []int{quickWaiters, maxWaiters} {
			en := entry()
			en.Limits.MaxInFlight = 1
			learn(t, g, en, 100*time.Microsecond)
			pass := admit(t, g, en)
			t.Cleanup(pass.Cancel)
			for range quickWaiters + 1 {
				go g.Enter(t.Context(), another(en))
			}
			synctest.Wait()
			require.Equal(t, most, g.Health(en.Endpoint).Waiting, "endpoint %d", i)
		}
	})
}

// Who comes back at its time has a place inside, even when the endpoint is quick no more and
// those who came while it was are still there.
func TestReturningAmongMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		learn(t, g, en, 200*time.Microsecond)
		pass := admit(t, g, en)
		ctx, cancel := context.WithCancel(t.Context())
		crowd := func(n int) {
			for range n {
				go g.Enter(ctx, another(en))
			}
			synctest.Wait()
		}
		crowd(quickWaiters)
		late := another(en)
		admission, _ := g.Enter(t.Context(), late)
		require.Equal(t, Deferred, admission.Verdict)
		cancel()
		pass.Done(delivered(200 * time.Microsecond))
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()

		elapse(time.Until(admission.Until) - 10*time.Millisecond)
		pass = admit(t, g, another(en))
		crowd(quickWaiters)
		elapse(10 * time.Millisecond)
		pass.Done(refused(200 * time.Microsecond)) // the first of the crowd goes, and takes long
		synctest.Wait()
		waiting := g.Health(en.Endpoint).Waiting
		require.Greater(t, waiting, 2*maxWaiters)
		go g.Enter(ctx, late)
		synctest.Wait()
		require.Equal(t, waiting+1, g.Health(en.Endpoint).Waiting)
	})
}

// A lower rate rules for those who wait inside, too.
func TestLowerRateWhileManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.Rate = 1000
		learn(t, g, en, 200*time.Microsecond)
		var admitted atomic.Int64
		for range 500 {
			go func() {
				if _, pass := g.Enter(t.Context(), another(en)); pass != nil {
					admitted.Add(1)
					pass.Done(delivered(200 * time.Microsecond))
				}
			}()
		}
		elapse(50 * time.Millisecond)
		synctest.Wait()
		require.InDelta(t, 60, admitted.Load(), 5)
		en.Limits.Rate = 1
		before := admitted.Load()
		if _, pass := g.Enter(t.Context(), another(en)); pass != nil {
			admitted.Add(1)
			pass.Done(delivered(200 * time.Microsecond))
		}
		elapse(time.Second)
		require.LessOrEqual(t, admitted.Load()-before, int64(2))
		require.LessOrEqual(t, g.Health(en.Endpoint).Waiting, 1)
		g.Reset(en.Endpoint)
	})
}

// A returning delivery has its turn for a second, even against newcomers; one that
// comes early is told the same time again.
func TestComingBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late time.Duration
		goes bool
		same bool
	}{
		"far too early":  {late: -1500 * time.Millisecond, same: true},
		"early":          {late: -200 * time.Millisecond, goes: true},
		"in time":        {goes: true},
		"late":           {late: lateness, goes: true},
		"much too late":  {late: lateness + 600*time.Millisecond},
		"just too late":  {late: lateness + 1},
		"late and lucky": {late: lateness / 2, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				en.Limits.Rate = 0.5
				learn(t, g, en, time.Millisecond)
				mine, _ := g.Enter(t.Context(), en)
				for range 3 { // they stand behind
					next, _ := g.Enter(t.Context(), another(en))
					require.Equal(t, Deferred, next.Verdict)
				}
				elapse(time.Until(mine.Until) + c.late)
				begun := time.Now()
				admission, pass := g.Enter(t.Context(), en)
				require.Equal(t, c.goes, pass != nil)
				require.Equal(t, c.same, admission.Until.Equal(mine.Until))
				if c.goes {
					require.Equal(t, max(0, -c.late), time.Since(begun))
					require.Equal(t, 3, g.Health(en.Endpoint).Reserved)
				} else {
					require.Equal(t, Deferred, admission.Verdict)
					require.Equal(t, 4, g.Health(en.Endpoint).Reserved)
				}
			})
		})
	}
}

// Whoever is told to go now by a person goes, if there is a place, and its turn is
// free for others.
func TestEarlierThanReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		learn(t, g, en, 10*time.Second)
		pass := admit(t, g, another(en))
		admission, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, admission.Verdict)
		pass.Done(delivered(time.Millisecond))
		admit(t, g, en).Cancel()
		require.Zero(t, g.Health(en.Endpoint).Reserved)
	})
}

// A place is kept for whoever is a little late when places are rare, and for a
// second only.
func TestPlaceIsKeptForTheLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		learn(t, g, en, 400*time.Millisecond)
		pass := admit(t, g, another(en))
		elapse(300 * time.Millisecond)
		g.Enter(canceled(), another(en))
		mine, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, mine.Verdict)
		elapse(time.Until(mine.Until) + lateness*9/10)
		pass.Done(delivered(400 * time.Millisecond))
		other, _ := g.Enter(canceled(), another(en))
		require.Equal(t, Deferred, other.Verdict, "it is kept")
		admit(t, g, en).Cancel()
	})
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		learn(t, g, en, 10*time.Second)
		pass := admit(t, g, another(en))
		mine, _ := g.Enter(t.Context(), en)
		pass.Done(delivered(10 * time.Second))
		elapse(time.Until(mine.Until) + lateness + 1)
		admit(t, g, another(en)).Cancel()
	})
}

// Whoever comes late has paid for its turn when it was: the next one need not wait
// longer for that.
func TestLateTurnIsPaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.Rate = 0.25
		learn(t, g, en, time.Millisecond)
		mine, _ := g.Enter(t.Context(), en)
		elapse(time.Until(mine.Until) + lateness)
		admit(t, g, en).Done(delivered(time.Millisecond))
		next, _ := g.Enter(t.Context(), another(en))
		require.InDelta(t, 4*time.Second, next.Until.Sub(mine.Until), float64(2*burst))
	})
}

// Forget is for those who will not come; who is here keeps its turn.
func TestForgetWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.Rate = 5
		learn(t, g, en, time.Millisecond)
		answer := make(chan *Pass)
		go func() {
			_, pass := g.Enter(t.Context(), en)
			answer <- pass
		}()
		synctest.Wait()
		g.Forget(en.Endpoint, en.Delivery)
		require.EqualValues(t, 1, g.reserved.Load())
		again, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, again.Verdict, "it is here already")
		require.NotNil(t, <-answer)
		require.Zero(t, g.reserved.Load())
	})
}

// A turn that comes in the same moment in which the context ends is given back.
func TestGoneAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		learn(t, g, en, time.Millisecond)
		pass := admit(t, g, another(en))
		e := pass.endpoint
		e.shard.mu.Lock()
		_, _, w := e.decide(g.now(), &en)
		e.shard.mu.Unlock()
		require.NotNil(t, w)
		pass.Done(delivered(time.Millisecond))
		require.NotNil(t, w.pass)
		admission, got, next, more := e.awake(w, &en, true)
		require.Equal(t, Deferred, admission.Verdict)
		require.Nil(t, got)
		require.Nil(t, next)
		require.False(t, more)
		require.Zero(t, g.Health(en.Endpoint).InFlight)
		require.Zero(t, e.inside)
	})
}

// What is not used is given back: by Forget, by a context that ends, by being late.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.Rate = 0.5
		learn(t, g, en, time.Millisecond)
		var all []Entry
		var until []time.Time
		for range 5 {
			one := another(en)
			admission, _ := g.Enter(t.Context(), one)
			all, until = append(all, one), append(until, admission.Until)
		}
		g.Forget(en.Endpoint, all[2].Delivery)
		g.Forget(en.Endpoint, all[2].Delivery)
		require.Equal(t, 4, g.Health(en.Endpoint).Reserved)
		admission, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, until[2], admission.Until, "the hole is used")
		admission, _ = g.Enter(t.Context(), another(en))
		require.Equal(t, until[4].Add(2*time.Second), admission.Until)

		elapse(time.Hour)
		require.Zero(t, g.Health(en.Endpoint).Reserved)
		require.Zero(t, g.reserved.Load())
		g.Forget(webhook.NewEndpointID(), en.Delivery)

		en.Limits.Rate = 5
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan Admission)
		go func() {
			admission, _ := g.Enter(ctx, en)
			answer <- admission
		}()
		synctest.Wait()
		require.Equal(t, 1, g.Health(en.Endpoint).Waiting)
		cancel()
		require.Equal(t, Deferred, (<-answer).Verdict)
		require.Zero(t, g.Health(en.Endpoint).Waiting)
		require.Zero(t, g.reserved.Load())
	})
}

// New limits rule from the next Enter.
func TestLimitsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits = Limits{Rate: 0.5, MaxInFlight: 1}
		learn(t, g, en, 100*time.Millisecond)
		first, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, first.Verdict)
		g.Enter(t.Context(), another(en))

		en.Limits.Rate = 0.25 // what is reserved was for a faster rate
		g.Enter(t.Context(), another(en))
		require.Equal(t, 1, g.Health(en.Endpoint).Reserved)

		en.Limits.Rate = 1000
		pass := admit(t, g, en)
		waiting, at := make(chan *Pass), time.Time{}
		go func() {
			_, pass := g.Enter(t.Context(), another(en))
			at = time.Now()
			waiting <- pass
		}()
		synctest.Wait()
		require.Equal(t, 1, g.Health(en.Endpoint).Waiting)
		en.Limits.MaxInFlight = 3
		elapse(50 * time.Millisecond)
		begun := time.Now()
		third := admit(t, g, another(en))
		second := <-waiting
		require.NotNil(t, second, "the one that waited goes too")
		require.Equal(t, begun, at, "at once")

		en.Limits.MaxInFlight = 1
		first, _ = g.Enter(canceled(), another(en))
		require.Equal(t, Deferred, first.Verdict)
		pass.Done(delivered(0))
		second.Done(delivered(0))
		first, _ = g.Enter(canceled(), another(en))
		require.Equal(t, Deferred, first.Verdict, "one is still in flight")
		third.Done(delivered(0))
		elapse(time.Second)
		admit(t, g, another(en)).Cancel()
	})
}

// Absent and impossible limits are the defaults.
func TestLimitsDefaults(t *testing.T) {
	t.Parallel()
	want := Limits{MaxInFlight: 10, Rate: 10_000, Timeout: 15 * time.Second}
	require.Equal(t, want, Limits{}.withDefaults())
	require.Equal(t, want, Limits{MaxInFlight: -1, Rate: math.NaN(), Timeout: -1}.withDefaults())
	want.Breaker = webhook.DefaultCircuitBreaker()
	require.Equal(t, want, Limits{Breaker: webhook.CircuitBreaker{Enabled: true, FailureRatio: math.NaN()}}.withDefaults())
	require.Equal(t, Limits{MaxInFlight: 3, Rate: 2, Timeout: time.Second}.withDefaults(), LimitsOf(&webhook.Endpoint{
		MaxInFlight: 3, RateLimit: 2, Timeout: time.Second, CircuitBreaker: webhook.CircuitBreaker{Cooldown: 1},
	}).withDefaults())
	require.True(t, LimitsOf(&webhook.Endpoint{AutoTimeout: true}).withDefaults().AutoTimeout)
}

// Names are labels of metrics and shown by the API.
func TestNames(t *testing.T) {
	t.Parallel()
	for v, name := range map[Verdict]string{Admitted: "admitted", Deferred: "deferred", Held: "held", 0: "unknown", 9: "unknown"} {
		require.Equal(t, name, v.String())
	}
	for r, name := range []string{"", "in_flight", "host_in_flight", "rate", "circuit_open", "retry_after", "rate_limit_hint", "backlog", "unknown"} {
		require.Equal(t, name, Reason(r).String())
	}
	for c, name := range []string{"closed", "open", "half_open", "unknown"} {
		require.Equal(t, name, Circuit(c).String())
	}
}

// When this process stalls for a moment, a quick endpoint looks slow: those in its line wait
// for it to be quick again. Where that is not to be expected, they come back.
func TestStallDefersNobody(t *testing.T) {
	t.Parallel()
	const quick, stall = 3 * time.Millisecond, 30 * time.Millisecond
	limited := refused(quick)
	limited.DeferFor = 10 * time.Second
	for name, c := range map[string]struct {
		before []Result // of the endpoint's earlier requests
		limits Limits
		come   int
		waits  bool
	}{
		"quick":             {before: []Result{delivered(quick)}, come: 100, waits: true},
		"at a high rate":    {before: []Result{delivered(quick)}, limits: Limits{Rate: 250}, come: 100, waits: true},
		"at a low rate":     {before: []Result{delivered(quick)}, limits: Limits{Rate: 190}, come: 60},
		"as slow as may be": {before: []Result{delivered(50 * time.Millisecond)}, come: 60, waits: true},
		"slow":              {before: []Result{delivered(51 * time.Millisecond)}, come: 60},
		"slow in many places": {
			before: slices.Repeat([]Result{delivered(500 * time.Millisecond)}, 20), limits: Limits{MaxInFlight: 100}, come: 20,
		},
		"slow in few places":       {before: []Result{delivered(20 * time.Millisecond)}, limits: Limits{MaxInFlight: 2}, come: 30},
		"one that failed":          {before: []Result{delivered(quick), refused(quick)}, come: 100},
		"one that did and is well": {before: []Result{refused(quick), delivered(quick)}, come: 100, waits: true},
		"unknown":                  {come: 60},
		"on a slope":               {before: append(slices.Repeat([]Result{delivered(quick)}, 6000), limited, delivered(quick)), come: 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				en.Limits = c.limits
				for _, result := range c.before {
					admit(t, g, another(en)).Done(result)
					elapse(10 * time.Millisecond)
					if result.DeferFor > 0 {
						elapse(result.DeferFor + 11*time.Second) // where it allows about 160 a second
					}
				}
				sent := make([]*Pass, en.Limits.withDefaults().MaxInFlight)
				for i := range sent {
					sent[i] = admit(t, g, another(en))
				}
				elapse(stall)
				var went, deferred atomic.Int64
				for range c.come {
					go func() {
						_, pass := g.Enter(t.Context(), another(en))
						if pass == nil {
							deferred.Add(1)
							return
						}
						elapse(quick)
						went.Add(1)
						pass.Done(delivered(quick))
					}()
					synctest.Wait()
				}
				require.Equal(t, !c.waits, g.Slow(en.Endpoint), "where the next would have to come back")
				require.Equal(t, c.waits, g.Health(en.Endpoint).WaitsFor == ReasonNone)
				for _, pass := range sent {
					pass.Done(delivered(stall))
				}
				elapse(2 * time.Second)
				synctest.Wait()
				require.EqualValues(t, c.come, went.Load()+deferred.Load())
				require.Equal(t, c.waits, deferred.Load() == 0, "%d came back", deferred.Load())
			})
		})
	}
}
