package admission

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

// admit is an Acquire that has to succeed.
func admit(t testing.TB, ctl *Controller, req Request) *Permit {
	t.Helper()
	decision := ctl.Acquire(t.Context(), req)
	require.NotNil(t, decision.Permit)
	require.Equal(t, Decision{Permit: decision.Permit}, decision)
	return decision.Permit
}

// learn lets an endpoint be known to answer after latency.
func learn(t testing.TB, ctl *Controller, req Request, latency time.Duration) {
	t.Helper()
	permit := admit(t, ctl, another(req))
	permit.Done(delivered(latency))
}

// another is a request of another delivery for the same endpoint.
func another(req Request) Request {
	req.Delivery = newDelivery(req.Endpoint)
	return req
}

// How far away a reservation is decides whether the delivery waits, is deferred or is held.
func TestDecisionByDistance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every    time.Duration // between two requests, by the rate
		reserved int           // deliveries deferred before, in addition to the one that was admitted
		waits    time.Duration
		until    time.Duration
		decision kind
		released bool
	}{
		"at once":          {every: 5 * time.Millisecond, decision: isAdmitted},
		"near":             {every: 200 * time.Millisecond, waits: 190 * time.Millisecond, decision: isAdmitted},
		"just near":        {every: 259 * time.Millisecond, waits: 249 * time.Millisecond, decision: isAdmitted},
		"not near":         {every: 261 * time.Millisecond, until: minDeferral, decision: isDeferred},
		"nearly far":       {every: time.Second, until: minDeferral, decision: isDeferred},
		"far":              {every: 2 * time.Second, until: 1990 * time.Millisecond, decision: isDeferred},
		"later":            {every: 2 * time.Second, reserved: 5, until: 11990 * time.Millisecond, decision: isDeferred},
		"last of new ones": {every: 10 * time.Second, reserved: 23, until: 239990 * time.Millisecond, decision: isDeferred},
		"too far":          {every: 10 * time.Second, reserved: 24, decision: isHeld},
		"released":         {every: 10 * time.Second, reserved: 24, released: true, until: 249990 * time.Millisecond, decision: isDeferred},
		"always reserved":  {every: 100 * time.Second, reserved: 3, until: 399990 * time.Millisecond, decision: isDeferred},
		"not any more":     {every: 100 * time.Second, reserved: 4, released: true, decision: isHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				req.Limits.Rate = 1 / c.every.Seconds()
				learn(t, ctl, req, time.Millisecond)
				for range c.reserved {
					decision := ctl.Acquire(t.Context(), another(req))
					require.True(t, decision.Deferred())
				}
				begun := time.Now()
				req.Released = c.released
				decision := ctl.Acquire(t.Context(), req)
				require.Equal(t, c.decision, kindOf(decision))
				require.InDelta(t, c.waits, time.Since(begun), 10)
				switch c.decision {
				case isAdmitted:
					require.Equal(t, Decision{Permit: decision.Permit}, decision)
				case isDeferred:
					require.Equal(t, webhook.ReasonRate, decision.Reason)
					require.InDelta(t, c.until, decision.Until.Sub(begun), 100)
				case isHeld:
					require.Equal(t, webhook.ReasonBacklog, decision.Reason)
					require.Zero(t, decision.Until)
				}
			})
		})
	}
}

// The rate limit is exactly GCRA: with enough slots and exact timers, no stretch of time has more
// requests than the rate and the burst allow.
func TestRateIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		ctl, req := c.controller(), newRequest()
		rate := rapid.Float64Range(0.2, 2000).Draw(t, "rate")
		req.Limits = Limits{Rate: rate, MaxInFlight: 1000}
		first := ctl.Acquire(canceled(), req).Permit
		first.Done(delivered(time.Millisecond))
		begun, level, before := c.now(), 1.0, c.now()
		due := map[webhook.DeliveryID]time.Time{}
		ask := func(id webhook.DeliveryID) {
			req.Delivery = id
			delete(due, id)
			decision := ctl.Acquire(canceled(), req) // none waits inside: near reservations are lost
			permit := decision.Permit
			switch {
			case permit != nil:
				permit.Done(delivered(time.Millisecond))
				level = max(0, level-rate*c.Sub(before).Seconds()) + 1
				before = c.now()
				require.LessOrEqual(t, level, 1+rate*burst.Seconds()+1e-3)
			case decision.Deferred() && queueOf(ctl, req.Endpoint).reserved > len(due):
				due[id] = decision.Until
			}
		}
		for c.Sub(begun) < 20*time.Second {
			for range rapid.IntRange(0, 5).Draw(t, "ask") {
				ask(newDelivery(req.Endpoint))
			}
			next := c.Add(time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond)
			for {
				at, first := next, webhook.DeliveryID{}
				for id, until := range due {
					if until.Before(at) {
						at, first = until, id
					}
				}
				c.set(at)
				if first == (webhook.DeliveryID{}) {
					break
				}
				ask(first)
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

// The width of a shared workflow comes at once to an endpoint that has not answered yet: all are
// admitted within the same call.
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

// Waiting deliveries are admitted in their order, and their number has a bound: how many come
// while one request is in flight to a receiver that takes so long for each, and how many wait.
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
				ctl, req := New(Config{}), newRequest()
				req.Limits.MaxInFlight = 1
				learn(t, ctl, req, c.latency)
				permit := admit(t, ctl, req)
				elapse(c.latency)
				permit.Done(c.before)
				first := admit(t, ctl, req)
				order := make(chan int, c.waits)
				deferred := 0
				for i := range c.waits + 10 {
					go func() {
						decision := ctl.Acquire(t.Context(), another(req))
						permit := decision.Permit
						if permit == nil {
							if decision.Reason == webhook.ReasonInFlight {
								deferred++
							}
							return
						}
						order <- i
						elapse(c.latency)
						permit.Done(delivered(c.latency))
					}()
					synctest.Wait()
				}
				require.Equal(t, c.waits, queueOf(ctl, req.Endpoint).waiting)
				require.Equal(t, 10, deferred)
				require.Equal(t, 10, queueOf(ctl, req.Endpoint).reserved)
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

// While many deliveries wait for one quick endpoint, no more than usual wait for another.
func TestWaitersInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{})
		for i, most := range []int{quickWaiters, maxWaiters} {
			req := newRequest()
			req.Limits.MaxInFlight = 1
			learn(t, ctl, req, 100*time.Microsecond)
			permit := admit(t, ctl, req)
			t.Cleanup(permit.Cancel)
			for range quickWaiters + 1 {
				go ctl.Acquire(t.Context(), another(req))
			}
			synctest.Wait()
			require.Equal(t, most, queueOf(ctl, req.Endpoint).waiting, "endpoint %d", i)
		}
	})
}

// A delivery that comes back at its time may wait, even when the endpoint is not quick any more and
// those that came while it was are still waiting.
func TestReturningAmongMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		learn(t, ctl, req, 200*time.Microsecond)
		permit := admit(t, ctl, req)
		ctx, cancel := context.WithCancel(t.Context())
		come := func(n int) {
			for range n {
				go ctl.Acquire(ctx, another(req))
			}
			synctest.Wait()
		}
		come(quickWaiters)
		late := another(req)
		decision := ctl.Acquire(t.Context(), late)
		require.True(t, decision.Deferred())
		cancel()
		permit.Done(delivered(200 * time.Microsecond))
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()

		elapse(time.Until(decision.Until) - 10*time.Millisecond)
		permit = admit(t, ctl, another(req))
		come(quickWaiters)
		elapse(10 * time.Millisecond)
		permit.Done(refused(200 * time.Microsecond)) // the first of them is admitted, and takes long
		synctest.Wait()
		waiting := queueOf(ctl, req.Endpoint).waiting
		require.Greater(t, waiting, 2*maxWaiters)
		go ctl.Acquire(ctx, late)
		synctest.Wait()
		require.Equal(t, waiting+1, queueOf(ctl, req.Endpoint).waiting)
	})
}

// A lower rate applies to waiting deliveries, too.
func TestLowerRateWhileManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 1000
		learn(t, ctl, req, 200*time.Microsecond)
		var admitted atomic.Int64
		for range 500 {
			go func() {
				if permit := ctl.Acquire(t.Context(), another(req)).Permit; permit != nil {
					admitted.Add(1)
					permit.Done(delivered(200 * time.Microsecond))
				}
			}()
		}
		elapse(50 * time.Millisecond)
		synctest.Wait()
		require.InDelta(t, 60, admitted.Load(), 5)
		req.Limits.Rate = 1
		before := admitted.Load()
		if permit := ctl.Acquire(t.Context(), another(req)).Permit; permit != nil {
			admitted.Add(1)
			permit.Done(delivered(200 * time.Microsecond))
		}
		elapse(time.Second)
		require.LessOrEqual(t, admitted.Load()-before, int64(2))
		require.LessOrEqual(t, queueOf(ctl, req.Endpoint).waiting, 1)
		ctl.Reset(req.Endpoint)
	})
}

// A deferred delivery keeps its reservation for a second, also against new deliveries; one that
// comes early is given the same time again.
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
				ctl, req := New(Config{}), newRequest()
				req.Limits.Rate = 0.5
				learn(t, ctl, req, time.Millisecond)
				mine := ctl.Acquire(t.Context(), req)
				for range 3 { // they stand behind
					next := ctl.Acquire(t.Context(), another(req))
					require.True(t, next.Deferred())
				}
				elapse(time.Until(mine.Until) + c.late)
				begun := time.Now()
				decision := ctl.Acquire(t.Context(), req)
				permit := decision.Permit
				require.Equal(t, c.goes, permit != nil)
				require.Equal(t, c.same, decision.Until.Equal(mine.Until))
				if c.goes {
					require.Equal(t, max(0, -c.late), time.Since(begun))
					require.Equal(t, 3, queueOf(ctl, req.Endpoint).reserved)
				} else {
					require.True(t, decision.Deferred())
					require.Equal(t, 4, queueOf(ctl, req.Endpoint).reserved)
				}
			})
		})
	}
}

// A delivery that a person sends before its time is admitted if a slot is free, and gives its
// reservation back.
func TestEarlierThanReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		learn(t, ctl, req, 10*time.Second)
		permit := admit(t, ctl, another(req))
		decision := ctl.Acquire(t.Context(), req)
		require.True(t, decision.Deferred())
		permit.Done(delivered(time.Millisecond))
		admit(t, ctl, req).Cancel()
		require.Zero(t, queueOf(ctl, req.Endpoint).reserved)
	})
}

// A delivery that is a little late goes before those that came first; its reservation is lost after
// a second.
func TestLateGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		learn(t, ctl, req, 200*time.Millisecond)
		permit := admit(t, ctl, another(req))
		elapse(200 * time.Millisecond)
		for range 2 { // they are to wait inside, and do not
			require.True(t, ctl.Acquire(canceled(), another(req)).Deferred())
		}
		elapse(200 * time.Millisecond)
		mine := ctl.Acquire(t.Context(), req)
		require.True(t, mine.Deferred())
		permit.Done(delivered(200 * time.Millisecond))
		elapse(time.Until(mine.Until) + lateness/2)
		permit = admit(t, ctl, another(req))
		elapse(100 * time.Millisecond)
		order := make(chan webhook.DeliveryID, 2)
		for _, one := range []Request{another(req), req} {
			go func() {
				if p := ctl.Acquire(t.Context(), one).Permit; p != nil {
					order <- one.Delivery
					p.Done(delivered(time.Millisecond))
				}
			}()
			synctest.Wait()
		}
		require.Equal(t, 2, queueOf(ctl, req.Endpoint).waiting)
		permit.Done(delivered(100 * time.Millisecond))
		require.Equal(t, req.Delivery, <-order)
		<-order
	})
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		learn(t, ctl, req, 10*time.Second)
		permit := admit(t, ctl, another(req))
		mine := ctl.Acquire(t.Context(), req)
		permit.Done(delivered(10 * time.Second))
		elapse(time.Until(mine.Until) + lateness + 1)
		admit(t, ctl, another(req)).Cancel()
	})
}

// A late delivery is charged at the time of its reservation: the next one need not wait longer.
func TestLateIsChargedOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 0.25
		learn(t, ctl, req, time.Millisecond)
		mine := ctl.Acquire(t.Context(), req)
		elapse(time.Until(mine.Until) + lateness)
		admit(t, ctl, req).Done(delivered(time.Millisecond))
		next := ctl.Acquire(t.Context(), another(req))
		require.InDelta(t, 4*time.Second, next.Until.Sub(mine.Until), float64(2*burst))
	})
}

// Forget drops the reservation of a delivery that is not there; one that waits keeps its own.
func TestForgetWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 5
		learn(t, ctl, req, time.Millisecond)
		answer := make(chan *Permit)
		go func() {
			permit := ctl.Acquire(t.Context(), req).Permit
			answer <- permit
		}()
		synctest.Wait()
		ctl.Forget(req.Endpoint, req.Delivery)
		require.EqualValues(t, 1, ctl.reserved.total.Load())
		again := ctl.Acquire(t.Context(), req)
		require.True(t, again.Deferred(), "it is here already")
		require.NotNil(t, <-answer)
		require.Zero(t, ctl.reserved.total.Load())
	})
}

// A permit that comes in the same moment in which the context ends is given back.
func TestGoneAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		learn(t, ctl, req, time.Millisecond)
		permit := admit(t, ctl, another(req))
		e := permit.endpoint
		e.lock.Lock()
		_, w := e.decide(ctl.now(), &req)
		e.lock.Unlock()
		require.NotNil(t, w)
		permit.Done(delivered(time.Millisecond))
		require.NotNil(t, w.permit)
		decision, next, more := e.awake(w, &req, true)
		require.True(t, decision.Deferred())
		require.Nil(t, decision.Permit)
		require.Nil(t, next)
		require.False(t, more)
		require.Zero(t, ctl.Health(req.Endpoint).InFlight)
		require.Zero(t, e.inside)
	})
}

// Reservations are given back: by Forget, by a context that ends, by being too late.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 0.5
		learn(t, ctl, req, time.Millisecond)
		var all []Request
		var until []time.Time
		for range 5 {
			one := another(req)
			decision := ctl.Acquire(t.Context(), one)
			all, until = append(all, one), append(until, decision.Until)
		}
		ctl.Forget(req.Endpoint, all[2].Delivery)
		ctl.Forget(req.Endpoint, all[2].Delivery)
		require.Equal(t, 4, queueOf(ctl, req.Endpoint).reserved)
		decision := ctl.Acquire(t.Context(), another(req))
		require.Equal(t, until[2], decision.Until, "the hole is used")
		decision = ctl.Acquire(t.Context(), another(req))
		require.Equal(t, until[4].Add(2*time.Second), decision.Until)

		elapse(time.Hour)
		require.Zero(t, queueOf(ctl, req.Endpoint).reserved)
		require.Zero(t, ctl.reserved.total.Load())
		ctl.Forget(webhook.NewEndpointID(), req.Delivery)

		req.Limits.Rate = 5
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan Decision)
		go func() {
			decision := ctl.Acquire(ctx, req)
			answer <- decision
		}()
		synctest.Wait()
		require.Equal(t, 1, queueOf(ctl, req.Endpoint).waiting)
		cancel()
		require.True(t, (<-answer).Deferred())
		require.Zero(t, queueOf(ctl, req.Endpoint).waiting)
		require.Zero(t, ctl.reserved.total.Load())
	})
}

// New limits apply from the next Acquire.
func TestLimitsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits = Limits{Rate: 0.5, MaxInFlight: 1}
		learn(t, ctl, req, 100*time.Millisecond)
		first := ctl.Acquire(t.Context(), req)
		require.True(t, first.Deferred())
		ctl.Acquire(t.Context(), another(req))

		req.Limits.Rate = 0.25 // what is reserved was for a faster rate
		ctl.Acquire(t.Context(), another(req))
		require.Equal(t, 1, queueOf(ctl, req.Endpoint).reserved)

		req.Limits.Rate = 1000
		permit := admit(t, ctl, req)
		waiting, at := make(chan *Permit), time.Time{}
		go func() {
			permit := ctl.Acquire(t.Context(), another(req)).Permit
			at = time.Now()
			waiting <- permit
		}()
		synctest.Wait()
		require.Equal(t, 1, queueOf(ctl, req.Endpoint).waiting)
		req.Limits.MaxInFlight = 3
		elapse(50 * time.Millisecond)
		begun := time.Now()
		third := admit(t, ctl, another(req))
		second := <-waiting
		require.NotNil(t, second, "the one that waited goes too")
		require.Equal(t, begun, at, "at once")

		req.Limits.MaxInFlight = 1
		first = ctl.Acquire(canceled(), another(req))
		require.True(t, first.Deferred())
		permit.Done(delivered(0))
		second.Done(delivered(0))
		first = ctl.Acquire(canceled(), another(req))
		require.True(t, first.Deferred(), "one is still in flight")
		third.Done(delivered(0))
		elapse(time.Second)
		admit(t, ctl, another(req)).Cancel()
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
	for reason, name := range map[string]string{
		webhook.ReasonInFlight: "in_flight", webhook.ReasonHost: "host_in_flight", webhook.ReasonRate: "rate", webhook.ReasonCircuitOpen: "circuit_open",
		webhook.ReasonRetryAfter: "retry_after", webhook.ReasonRateLimitHint: "rate_limit_hint", webhook.ReasonBacklog: "backlog",
	} {
		require.Equal(t, name, reason)
	}
	require.Equal(t, []webhook.CircuitState{"closed", "open", "half_open"},
		[]webhook.CircuitState{webhook.CircuitClosed, webhook.CircuitOpen, webhook.CircuitHalfOpen})
}

// When this process stalls for a moment, a quick endpoint looks slow: its deliveries wait until it
// is quick again. Where that is not to be expected, they are deferred.
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
		"slow in many slots": {
			before: slices.Repeat([]Result{delivered(500 * time.Millisecond)}, 20), limits: Limits{MaxInFlight: 100}, come: 20,
		},
		"slow in few slots":           {before: []Result{delivered(20 * time.Millisecond)}, limits: Limits{MaxInFlight: 2}, come: 30},
		"one that failed":             {before: []Result{delivered(quick), refused(quick)}, come: 100},
		"one that did and is healthy": {before: []Result{refused(quick), delivered(quick)}, come: 100, waits: true},
		"unknown":                     {come: 60},
		"during a ramp-up":            {before: append(slices.Repeat([]Result{delivered(quick)}, 6000), limited, delivered(quick)), come: 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				req.Limits = c.limits
				for _, result := range c.before {
					admit(t, ctl, another(req)).Done(result)
					elapse(10 * time.Millisecond)
					if result.DeferFor > 0 {
						elapse(result.DeferFor + 11*time.Second) // where it allows about 160 a second
					}
				}
				sent := make([]*Permit, req.Limits.withDefaults().MaxInFlight)
				for i := range sent {
					sent[i] = admit(t, ctl, another(req))
				}
				elapse(stall)
				var went, deferred atomic.Int64
				for range c.come {
					go func() {
						permit := ctl.Acquire(t.Context(), another(req)).Permit
						if permit == nil {
							deferred.Add(1)
							return
						}
						elapse(quick)
						went.Add(1)
						permit.Done(delivered(quick))
					}()
					synctest.Wait()
				}
				require.Equal(t, !c.waits, ctl.LikelySlow(req.Endpoint), "where the next would have to come back")
				require.Equal(t, c.waits, ctl.Health(req.Endpoint).DeferReason == "")
				for _, permit := range sent {
					permit.Done(delivered(stall))
				}
				elapse(2 * time.Second)
				synctest.Wait()
				require.EqualValues(t, c.come, went.Load()+deferred.Load())
				require.Equal(t, c.waits, deferred.Load() == 0, "%d came back", deferred.Load())
			})
		})
	}
}
