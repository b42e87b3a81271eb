package admission

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// An endpoint that is not known has the zero health and the rate of its limits.
func TestUnknownEndpoint(t *testing.T) {
	t.Parallel()
	ctl, id := New(Config{}), webhook.NewEndpointID()
	require.Equal(t, webhook.Observation{Circuit: webhook.CircuitClosed}, ctl.Health(id))
	require.InDelta(t, 10_000, rateOf(ctl, id, Limits{}), 0)
	require.InDelta(t, 3, rateOf(ctl, id, Limits{Rate: 3}), 0)
	require.Equal(t, unknownReserved, ctl.Releasable(id))
	require.False(t, ctl.LikelySlow(id))
	require.Equal(t, Totals{}, ctl.Totals(), "looking does not make one")
}

// Health counts the last quarter of an hour.
func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		results(t, ctl, req, 10, time.Second, delivered(20*time.Millisecond))
		again := refused(20 * time.Millisecond)
		again.Number = 2
		results(t, ctl, req, 5, time.Second, again)
		admit(t, ctl, another(req))
		h := ctl.Health(req.Endpoint)
		require.Equal(t, [4]int{10, 5, 10, 5}, [4]int{h.Delivered, h.Failed, h.First, h.Retries})
		require.InDelta(t, 0.5, h.RetryRatio(), 1e-9)
		require.Equal(t, 20*time.Millisecond, h.Latency)
		require.Equal(t, 1, h.InFlight)
		require.Equal(t, 5, h.FailureStreak)
		require.Zero(t, h.SuccessStreak)
		require.InDelta(t, 1, queueOf(ctl, req.Endpoint).recent, 0.15)
		require.InDelta(t, 1, queueOf(ctl, req.Endpoint).earlier, 0.15)
		require.InDelta(t, 1, ctl.UsualRate(req.Endpoint), 0.15)
		require.InEpsilon(t, 500, h.Rate, 0.06)
		require.Equal(t, Totals{Endpoints: 1, InFlight: 1}, ctl.Totals())

		elapse(11 * time.Minute)
		require.Equal(t, 10, ctl.Health(req.Endpoint).Delivered)
		elapse(5 * time.Minute)
		h = ctl.Health(req.Endpoint)
		require.Zero(t, h.Attempts()+h.First+h.Retries)
		require.Zero(t, h.RetryRatio())
	})
}

// Each way of not being healthy is reported, and no other.
func TestEachUnhealthy(t *testing.T) {
	t.Parallel()
	asked := delivered(time.Millisecond)
	asked.DeferFor = time.Minute
	hinted := delivered(time.Millisecond)
	hinted.PaceFor = time.Minute
	for name, c := range map[string]struct {
		make func(t *testing.T, ctl *Controller, req Request)
		want func(t *testing.T, h webhook.Observation) // nil: it is healthy
	}{
		"answers": {make: func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 3, 0, delivered(20*time.Millisecond))
			admit(t, ctl, another(req))
		}},
		"failed once": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 0, refused(time.Millisecond))
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, 1, h.FailureStreak)
			require.Empty(t, h.DeferReason)
		}},
		"failed last, and was sent nothing since": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 23*time.Hour, refused(2*time.Second))
			other := newRequest() // of the same shard, which looks whether it can be forgotten
			other.Endpoint[shardByte] = req.Endpoint[shardByte]
			ctl.Acquire(canceled(), other).Permit.Done(delivered(0))
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.True(t, h.Failing())
			require.Zero(t, h.Attempts(), "of the last 15 minutes")
			require.Equal(t, time.Now().Add(-23*time.Hour), h.LastFailedAt)
		}},
		"failed long ago": {make: func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 25*time.Hour, refused(2*time.Second))
			require.Equal(t, 1, ctl.Health(req.Endpoint).FailureStreak)
		}},
		"slow": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 0, delivered(2*time.Second))
		}, func(t *testing.T, h webhook.Observation) { t.Helper(); require.Equal(t, 2*time.Second, h.Latency) }},
		"hangs": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			for range 10 {
				admit(t, ctl, another(req))
			}
			elapse(2 * time.Second)
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, 10, h.InFlight)
			require.Equal(t, webhook.ReasonInFlight, h.DeferReason)
		}},
		"at its rate": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			req.Limits.Rate = 0.5
			results(t, ctl, req, 1, 0, delivered(time.Millisecond))
			ctl.Acquire(t.Context(), another(req))
			require.Equal(t, 1, queueOf(ctl, req.Endpoint).reserved)
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.ReasonRate, h.DeferReason)
			require.False(t, h.Recovering)
		}},
		"open": {func(t *testing.T, ctl *Controller, req Request) { t.Helper(); trip(t, ctl, req) }, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.CircuitOpen, h.Circuit)
			require.Equal(t, webhook.ReasonCircuitOpen, h.DeferReason)
			require.False(t, h.Recovering, "no request is admitted yet")
		}},
		"half open": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			trip(t, ctl, req)
			elapse(31 * time.Second)
			admit(t, ctl, another(req))
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.CircuitHalfOpen, h.Circuit)
		}},
		"recovers": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			trip(t, ctl, req)
			elapse(31 * time.Second)
			results(t, ctl, req, 1, 0, delivered(time.Millisecond))
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.CircuitClosed, h.Circuit)
			require.True(t, h.Recovering)
			require.Less(t, h.Rate, 100.0)
		}},
		"recovered": {make: func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			trip(t, ctl, req)
			elapse(31 * time.Second)
			results(t, ctl, req, 1, 6*time.Minute, delivered(time.Millisecond))
		}},
		"asked for a pause": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 0, asked)
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.ReasonRetryAfter, h.BlockReason)
			require.Equal(t, webhook.ReasonRetryAfter, h.DeferReason)
		}},
		"hinted": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			results(t, ctl, req, 1, 0, hinted)
		}, func(t *testing.T, h webhook.Observation) {
			t.Helper()
			require.Equal(t, webhook.ReasonRateLimitHint, h.DeferReason)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl := New(Config{})
				req := guarded()
				c.make(t, ctl, req)
				var seen []webhook.Observation
				ctl.EachUnhealthy(func(id webhook.EndpointID, h webhook.Observation) {
					require.Equal(t, req.Endpoint, id)
					require.Equal(t, h, ctl.Health(id), "no lock is held, and it is the same")
					seen = append(seen, h)
				})
				if c.want == nil {
					require.Empty(t, seen)
					return
				}
				require.Len(t, seen, 1)
				c.want(t, seen[0])
			})
		})
	}
}

// Every endpoint that is not healthy is reported, once.
func TestEachUnhealthyOfMany(t *testing.T) {
	t.Parallel()
	ctl, want := newClock().controller(), map[webhook.EndpointID]int{}
	for i := range 1000 {
		req := newRequest()
		req.Endpoint[shardByte] = byte(i)
		permit := ctl.Acquire(canceled(), req).Permit
		if i%3 == 0 {
			permit.Done(refused(0))
			want[req.Endpoint] = 1
		} else {
			permit.Done(delivered(0))
		}
	}
	got := map[webhook.EndpointID]int{}
	ctl.EachUnhealthy(func(id webhook.EndpointID, _ webhook.Observation) { got[id]++ })
	require.Equal(t, want, got)
}

// An endpoint that hangs is known to be slow before its first time-out.
func TestSlowBeforeTheFirstTimeout(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]int{"never seen": 0, "fast before": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				results(t, ctl, req, earlier, time.Millisecond, delivered(10*time.Millisecond))
				for range 10 {
					admit(t, ctl, another(req))
				}
				require.False(t, ctl.LikelySlow(req.Endpoint))
				require.Less(t, rateOf(ctl, req.Endpoint, req.Limits), 1000.0)
				elapse(1500 * time.Millisecond)
				require.True(t, ctl.LikelySlow(req.Endpoint))
				require.Greater(t, ctl.Health(req.Endpoint).Latency, time.Second)
				require.Less(t, rateOf(ctl, req.Endpoint, req.Limits), 10.0)
				decision := ctl.Acquire(t.Context(), req)
				require.True(t, decision.Deferred())
				require.Greater(t, time.Until(decision.Until), 2*time.Second)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a request that is overdue ends by its timeout, or is expected to take as long again
		ctl, req := New(Config{}), newRequest()
		req.Limits.MaxInFlight = 1
		begun := time.Now()
		admit(t, ctl, another(req))
		elapse(8 * time.Second)
		decision := ctl.Acquire(t.Context(), req)
		require.Equal(t, begun.Add(15*time.Second), decision.Until)
		ctl.Forget(req.Endpoint, req.Delivery)
		elapse(12 * time.Second)
		decision = ctl.Acquire(t.Context(), req)
		require.Equal(t, begun.Add(30*time.Second), decision.Until)
	})
	synctest.Test(t, func(t *testing.T) { // one slow request is not a slow endpoint, but with all slots taken it is
		ctl, req := New(Config{}), newRequest()
		results(t, ctl, req, 50, time.Millisecond, delivered(400*time.Millisecond))
		admit(t, ctl, another(req))
		elapse(3 * time.Second)
		require.False(t, ctl.LikelySlow(req.Endpoint))
		for range 9 {
			admit(t, ctl, another(req))
		}
		require.True(t, ctl.LikelySlow(req.Endpoint))
	})
}

// As many deliveries get a reservation as fit before the horizon, and no more are released.
func TestReservationsFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate  float64
		known bool
		room  int
	}{
		"known":      {rate: 2, known: true, room: 600},
		"slow":       {rate: 0.02, known: true, room: 6},
		"very slow":  {rate: 0.001, known: true, room: alwaysReserved},
		"fast":       {rate: 10_000, known: true, room: maxReserved},
		"not known":  {rate: 10_000, room: unknownReserved},
		"not, slow":  {rate: 0.1, room: 30},
		"hour's few": {rate: 0.01, known: true, room: alwaysReserved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			ctl, req := clock.controller(), newRequest()
			req.Limits.Rate = c.rate
			permit := ctl.Acquire(canceled(), another(req)).Permit
			if c.known {
				permit.Done(delivered(0))
			}
			room, got := roomOf(ctl, req.Endpoint), 0
			taken := queueOf(ctl, req.Endpoint).reserved
			require.InDelta(t, c.room, room+taken, 2)
			require.LessOrEqual(t, ctl.Releasable(req.Endpoint), room)
			if c.rate > 100 {
				return // all of them would go
			}
			for range room + 20 {
				one := another(req)
				one.Released = true
				if decision := ctl.Acquire(canceled(), one); decision.Deferred() {
					got++
				}
			}
			require.InDelta(t, room, got, 3)
			require.LessOrEqual(t, roomOf(ctl, req.Endpoint), 3)
		})
	}
}

// 2,000 deliveries behind an endpoint that hangs: few requests and reservations, the rest is held, and
// within an hour few come back in vain.
func TestHangingEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, guarded().Limits, func(time.Duration) (time.Duration, Result) {
			return 15 * time.Second, Result{Reason: "timeout_headers", BreakerFailure: true}
		})
		for range 2000 {
			s.send()
		}
		s.sleep(2 * time.Second)
		require.Equal(t, 1890, s.heldNow())
		s.sleep(time.Hour)
		s.end()
		require.Equal(t, 10, s.most)
		require.LessOrEqual(t, s.reserved, 300)
		require.Less(t, len(s.arrivals), 60)
		average, _ := s.returns()
		require.LessOrEqual(t, average, 3.0)
	})
}

// An endpoint that takes less than is sent to it: its slots are used, deliveries are not deferred often,
// and the first ones do not wait for much longer than in a queue.
func TestOverloadedEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, Limits{}, constant(time.Second))
		go s.stream(15, 2*time.Minute) // of which 10 can go
		s.sleep(2 * time.Minute)
		require.Greater(t, s.delivered(), 2*60*10*85/100)
		s.sleep(3 * time.Minute)
		s.end()
		require.Equal(t, len(s.all), s.delivered())
		require.Equal(t, 10, s.most)
		average, _ := s.returns()
		require.LessOrEqual(t, average, 1.5)
		for i, d := range s.all {
			queue := time.Duration(i)*time.Second/10 - d.asked
			require.Less(t, d.done-d.asked, queue+30*time.Second, i)
		}
	})
}

// 100,000 endpoints take bounded memory, and idle ones are forgotten.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	if testing.Short() {
		t.Skip("100,000 endpoints")
	}
	const n = 100_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxEndpoints = 2 * n })
	before := heap()
	for range n {
		req := guarded()
		permit := ctl.Acquire(canceled(), req).Permit
		permit.Done(refused(time.Millisecond))
	}
	require.Equal(t, n, ctl.Totals().Endpoints)
	each := (heap() - before) / n
	t.Logf("%d bytes per endpoint", each)
	require.Less(t, each, int64(1550))

	clock.advance(failuresKept)
	for range n {
		permit := ctl.Acquire(canceled(), newRequest()).Permit
		permit.Done(delivered(time.Millisecond))
	}
	require.LessOrEqual(t, ctl.Totals().Endpoints, n+shards, "idle ones are forgotten")
	runtime.KeepAlive(ctl)
}

// Above the bound those that are not in use are forgotten first; one with requests in flight, waiting
// deliveries or reservations is never forgotten.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxEndpoints = 10 * shards })
	var permits []*Permit
	var reserved []Request
	for range 200 {
		req := newRequest()
		permit := ctl.Acquire(canceled(), req).Permit
		permits = append(permits, permit)
		req = newRequest()
		req.Limits.Rate = 0.1
		permit = ctl.Acquire(canceled(), req).Permit
		permit.Done(delivered(0))
		req = another(req)
		decision := ctl.Acquire(canceled(), req)
		require.True(t, decision.Deferred())
		reserved = append(reserved, req)
	}
	for range 100 * shards {
		permit := ctl.Acquire(canceled(), newRequest()).Permit
		permit.Done(delivered(0))
	}
	require.LessOrEqual(t, ctl.Totals().Endpoints, 11*shards+400)
	require.Equal(t, 200, ctl.Totals().InFlight)
	require.Equal(t, 200, ctl.Totals().Reserved)
	for i, p := range permits {
		require.Equal(t, 1, ctl.Health(p.endpoint.id).InFlight)
		p.Done(delivered(0))
		ctl.Forget(reserved[i].Endpoint, reserved[i].Delivery)
	}
	require.Zero(t, ctl.Totals().Reserved)
	require.Zero(t, ctl.Totals().InFlight)
}

// Deliveries that have to ask again, endpoints that have just been used, and what a receiver asked for
// are remembered, however many other endpoints there are.
func TestRememberedWhileNeeded(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxEndpoints = shards })
	sameShard := func(req Request) Request {
		other := newRequest()
		other.Endpoint[shardByte] = req.Endpoint[shardByte]
		return other
	}
	first := newRequest()
	first.Limits.MaxInFlight = 1
	permit := ctl.Acquire(canceled(), first).Permit
	second := sameShard(first)
	other := ctl.Acquire(canceled(), second).Permit
	require.Equal(t, 1, ctl.Health(second.Endpoint).InFlight)
	other.Done(delivered(0))

	waits := another(first)
	permit.endpoint.lock.Lock()
	_, w := permit.endpoint.decide(ctl.now(), &waits)
	permit.endpoint.lock.Unlock()
	require.NotNil(t, w)
	permit.Done(Result{BreakerFailure: true, DeferFor: 30 * time.Minute})
	clock.advance(time.Hour)
	for range 10 {
		other = ctl.Acquire(canceled(), sameShard(first)).Permit
		other.Done(delivered(0))
	}
	require.Equal(t, 1, ctl.Health(first.Endpoint).FailureStreak, "it is remembered")
	again, next, _ := permit.endpoint.awake(w, &waits, false)
	require.Nil(t, next)
	again.Permit.Done(delivered(0))

	roomy := clock.controller()
	permit = roomy.Acquire(canceled(), first).Permit
	permit.Done(Result{BreakerFailure: true, DeferFor: time.Hour})
	for _, remembered := range []bool{true, false} {
		clock.advance(failuresKept - time.Minute) // its pause is over, its failure is known
		for range 10 {
			permit = roomy.Acquire(canceled(), sameShard(first)).Permit
			permit.Done(delivered(0))
		}
		require.Equal(t, remembered, roomy.Health(first.Endpoint) != webhook.Observation{Circuit: webhook.CircuitClosed})
	}
}

// All endpoints together have a bound of reservations, beyond a few for each.
func TestReservedBound(t *testing.T) {
	t.Parallel()
	ctl := newClock().controller(func(c *Config) { c.MaxReserved = 20 })
	for range 3 {
		req := newRequest()
		req.Limits.Rate = 0.5
		permit := ctl.Acquire(canceled(), another(req)).Permit
		permit.Done(delivered(0))
		for range 100 {
			ctl.Acquire(canceled(), another(req))
		}
		require.LessOrEqual(t, ctl.Releasable(req.Endpoint), 0)
	}
	require.Equal(t, 20+2*alwaysReserved, ctl.Totals().Reserved)
}

// A tenant that has reserved all there is leaves room for another one, which gets what becomes free.
func TestTenantsShareReservations(t *testing.T) {
	t.Parallel()
	const most = 60
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxReserved = most })
	requestOf := func(tenant string) Request {
		req := newRequest()
		req.Tenant, req.Limits.Rate = tenant, 1
		ctl.Acquire(canceled(), another(req)).Permit.Done(delivered(0))
		return req
	}
	fill := func(req Request) (reserved int) {
		for {
			switch d := ctl.Acquire(canceled(), another(req)); {
			case d.Permit != nil:
				d.Permit.Done(delivered(0))
			case !d.Deferred():
				return reserved
			default:
				reserved++
			}
		}
	}
	large := []Request{requestOf("large"), requestOf("large")}
	require.Equal(t, most, fill(large[0]))
	require.Equal(t, alwaysReserved, fill(large[1]))
	require.Zero(t, ctl.Releasable(large[1].Endpoint))
	small, next := requestOf("small"), requestOf("small")
	require.Positive(t, ctl.Releasable(small.Endpoint))
	require.GreaterOrEqual(t, fill(small), alwaysReserved)
	before := ctl.Totals().Reserved
	clock.advance(most*time.Second/2 + lateness) // half of what the large one has reserved is over
	ctl.Forecast(large[0].Endpoint)
	require.Less(t, ctl.Totals().Reserved, before)
	require.Greater(t, fill(next), 2*alwaysReserved)
}

// With the real clock and many goroutines: no race, never more in flight than allowed, all is given back.
func TestStress(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	ctl := New(Config{MaxEndpoints: shards, OnCircuitChange: func(webhook.CircuitChange) { open.Add(1) }})
	endpoints := make([]Request, 20)
	inFlight := make([]atomic.Int32, len(endpoints))
	for i := range endpoints {
		endpoints[i] = guarded()
		endpoints[i].Limits.MaxInFlight = 3
		endpoints[i].Limits.Breaker.Cooldown = 20 * time.Millisecond
	}
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := range 100 {
				k := (w + i) % len(endpoints)
				req := another(endpoints[k])
				decision := ctl.Acquire(t.Context(), req)
				permit := decision.Permit
				ctl.LikelySlow(req.Endpoint)
				if permit == nil {
					if decision.Deferred() {
						ctl.Forget(req.Endpoint, req.Delivery)
					}
					continue
				}
				if inFlight[k].Add(1) > 3 {
					t.Error("more in flight than allowed")
				}
				runtime.Gosched()
				inFlight[k].Add(-1)
				if (k+i)%3 == 0 || k == 0 {
					permit.Done(refused(0))
				} else {
					permit.Done(delivered(0))
				}
				ctl.Health(req.Endpoint)
			}
		})
	}
	all.Wait()
	totals := ctl.Totals()
	require.Zero(t, totals.InFlight)
	require.Zero(t, totals.Waiting)
	require.Zero(t, totals.Reserved)
	require.Zero(t, ctl.reserved.total.Load())
	require.Positive(t, open.Load())
}

// What is known of the last failure is that of the streak, and ends with it; when an attempt was delivered stays known.
func TestHealthNamesTheLastFailure(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller()
	clock.advance(time.Minute)
	req := newRequest()
	end := func(r Result) webhook.Observation {
		ctl.Acquire(canceled(), req).Permit.Done(r)
		return ctl.Health(req.Endpoint)
	}
	h := end(delivered(time.Millisecond))
	first := h.LastSuccess
	require.False(t, first.IsZero())
	require.Empty(t, h.LastFailure)
	clock.advance(time.Minute)
	refusal := refused(time.Millisecond)
	refusal.Reason, refusal.Answered = "connect_refused", false
	refusal.Times = webhook.Times{Names: time.Second, Connecting: 2 * time.Second}
	refusal.Error = "connect_refused: " + strings.Repeat("é", maxError)
	h = end(refusal)
	began := h.FailingSince
	require.Equal(t, string(refusal.Reason), h.LastFailure)
	require.Equal(t, refusal.Times, h.LastTimes)
	require.LessOrEqual(t, len(h.LastError), maxError)
	require.True(t, utf8.ValidString(h.LastError))
	require.Equal(t, first, h.LastSuccess)
	clock.advance(time.Minute)
	h = end(refused(time.Millisecond))
	require.Equal(t, began, h.FailingSince)
	require.Equal(t, began.Add(time.Minute), h.LastFailedAt)
	require.Equal(t, "http_503", h.LastFailure)
	require.Empty(t, h.LastError)
	clock.advance(time.Minute)
	h = end(delivered(time.Millisecond))
	require.Zero(t, h.FailingSince)
	require.Empty(t, h.LastFailure)
	require.True(t, h.LastSuccess.After(first))
}
