package gate

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// What is not known has the zero health and the rate of its limits.
func TestUnknownEndpoint(t *testing.T) {
	t.Parallel()
	g, id := New(Config{}), webhook.NewEndpointID()
	require.Equal(t, Health{}, g.Health(id))
	require.InDelta(t, 10_000, g.Rate(id, Limits{}), 0)
	require.InDelta(t, 3, g.Rate(id, Limits{Rate: 3}), 0)
	require.Equal(t, unknownReserved, g.Room(id))
	require.False(t, g.Slow(id))
	require.Equal(t, Totals{}, g.Totals(), "looking does not make one")
}

// What health tells of a quarter of an hour.
func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		results(t, g, en, 10, time.Second, delivered(20*time.Millisecond))
		again := refused(20 * time.Millisecond)
		again.Number = 2
		results(t, g, en, 5, time.Second, again)
		admit(t, g, another(en))
		h := g.Health(en.Endpoint)
		require.Equal(t, Recent{Delivered: 10, Failed: 5, First: 10, Retries: 5}, h.Recent)
		ratio, known := h.SuccessRatio()
		require.True(t, known)
		require.InDelta(t, 2.0/3, ratio, 1e-9)
		require.InDelta(t, 0.5, h.RetryRatio(), 1e-9)
		require.Equal(t, 20*time.Millisecond, h.Latency)
		require.Equal(t, 1, h.InFlight)
		require.Equal(t, 5, h.FailureStreak)
		require.Zero(t, h.SuccessStreak)
		require.InDelta(t, 1, h.RecentRate, 0.15)
		require.InDelta(t, 1, h.EarlierRate, 0.15)
		require.InEpsilon(t, 500, h.Rate, 0.06)
		require.Equal(t, Totals{Endpoints: 1, InFlight: 1}, g.Totals())

		elapse(11 * time.Minute)
		require.Equal(t, 10, g.Health(en.Endpoint).Delivered)
		elapse(5 * time.Minute)
		h = g.Health(en.Endpoint)
		require.Equal(t, Recent{}, h.Recent)
		_, known = h.SuccessRatio()
		require.False(t, known)
		require.Zero(t, h.RetryRatio())
	})
}

// What an endpoint is told of beside the others: each way of not being well, and no other.
func TestEachUnwell(t *testing.T) {
	t.Parallel()
	asked := delivered(time.Millisecond)
	asked.DeferFor = time.Minute
	hinted := delivered(time.Millisecond)
	hinted.PaceFor = time.Minute
	for name, c := range map[string]struct {
		make func(t *testing.T, g *Gate, en Entry)
		want func(t *testing.T, h Health) // nil: it is well
	}{
		"answers": {make: func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			results(t, g, en, 3, 0, delivered(20*time.Millisecond))
			admit(t, g, another(en))
		}},
		"failed once": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			results(t, g, en, 1, 0, refused(time.Millisecond))
		}, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, 1, h.FailureStreak)
			require.Equal(t, ReasonNone, h.WaitsFor)
		}},
		"failed long ago": {make: func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			results(t, g, en, 1, 16*time.Minute, refused(2*time.Second))
			require.Equal(t, 1, g.Health(en.Endpoint).FailureStreak)
		}},
		"slow": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			results(t, g, en, 1, 0, delivered(2*time.Second))
		}, func(t *testing.T, h Health) { t.Helper(); require.Equal(t, 2*time.Second, h.Latency) }},
		"hangs": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			for range 10 {
				admit(t, g, another(en))
			}
			elapse(2 * time.Second)
		}, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, 10, h.InFlight)
			require.Equal(t, ReasonInFlight, h.WaitsFor)
		}},
		"at its rate": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			en.Limits.Rate = 0.5
			results(t, g, en, 1, 0, delivered(time.Millisecond))
			g.Enter(t.Context(), another(en))
		}, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, 1, h.Reserved)
			require.Equal(t, ReasonRate, h.WaitsFor)
			require.False(t, h.Recovering)
		}},
		"open": {func(t *testing.T, g *Gate, en Entry) { t.Helper(); trip(t, g, en) }, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, CircuitOpen, h.Circuit)
			require.Equal(t, ReasonCircuitOpen, h.WaitsFor)
			require.False(t, h.Recovering, "nobody goes yet")
		}},
		"half open": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			trip(t, g, en)
			elapse(31 * time.Second)
			admit(t, g, another(en))
		}, func(t *testing.T, h Health) { t.Helper(); require.Equal(t, CircuitHalfOpen, h.Circuit) }},
		"recovers": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			trip(t, g, en)
			elapse(31 * time.Second)
			results(t, g, en, 1, 0, delivered(time.Millisecond))
		}, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, CircuitClosed, h.Circuit)
			require.True(t, h.Recovering)
			require.Less(t, h.Rate, 100.0)
		}},
		"recovered": {make: func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			trip(t, g, en)
			elapse(31 * time.Second)
			results(t, g, en, 1, 6*time.Minute, delivered(time.Millisecond))
		}},
		"asked for a pause": {func(t *testing.T, g *Gate, en Entry) { t.Helper(); results(t, g, en, 1, 0, asked) }, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, ReasonRetryAfter, h.BarredFor)
			require.Equal(t, ReasonRetryAfter, h.WaitsFor)
		}},
		"hinted": {func(t *testing.T, g *Gate, en Entry) { t.Helper(); results(t, g, en, 1, 0, hinted) }, func(t *testing.T, h Health) {
			t.Helper()
			require.Equal(t, ReasonRateLimitHint, h.WaitsFor)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := New(Config{})
				en := guarded()
				c.make(t, g, en)
				var seen []Health
				g.EachUnwell(func(id webhook.EndpointID, h Health) {
					require.Equal(t, en.Endpoint, id)
					require.Equal(t, h, g.Health(id), "no lock is held, and it is the same")
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

// All that are not well are told of, each once.
func TestEachUnwellOfMany(t *testing.T) {
	t.Parallel()
	g, want := newClock().gate(), map[webhook.EndpointID]int{}
	for i := range 1000 {
		en := entry()
		en.Endpoint[15] = byte(i)
		_, pass := g.Enter(canceled(), en)
		if i%3 == 0 {
			pass.Done(refused(0))
			want[en.Endpoint] = 1
		} else {
			pass.Done(delivered(0))
		}
	}
	got := map[webhook.EndpointID]int{}
	g.EachUnwell(func(id webhook.EndpointID, _ Health) { got[id]++ })
	require.Equal(t, want, got)
}

// An endpoint that hangs is known to be slow before its first time-out.
func TestSlowBeforeTheFirstTimeout(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]int{"never seen": 0, "fast before": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				results(t, g, en, earlier, time.Millisecond, delivered(10*time.Millisecond))
				for range 10 {
					admit(t, g, another(en))
				}
				require.False(t, g.Slow(en.Endpoint))
				require.Less(t, g.Rate(en.Endpoint, en.Limits), 1000.0)
				elapse(1500 * time.Millisecond)
				require.True(t, g.Slow(en.Endpoint))
				require.Greater(t, g.Health(en.Endpoint).Latency, time.Second)
				require.Less(t, g.Rate(en.Endpoint, en.Limits), 10.0)
				admission, _ := g.Enter(t.Context(), en)
				require.Equal(t, Deferred, admission.Verdict)
				require.Greater(t, time.Until(admission.Until), 2*time.Second)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // who is overdue ends by its timeout, or nobody knows when
		g, en := New(Config{}), entry()
		en.Limits.MaxInFlight = 1
		begun := time.Now()
		admit(t, g, another(en))
		elapse(8 * time.Second)
		admission, _ := g.Enter(t.Context(), en)
		require.Equal(t, begun.Add(15*time.Second), admission.Until)
		g.Forget(en.Endpoint, en.Delivery)
		elapse(12 * time.Second)
		admission, _ = g.Enter(t.Context(), en)
		require.Equal(t, begun.Add(30*time.Second), admission.Until)
	})
	synctest.Test(t, func(t *testing.T) { // one slow request is not a slow endpoint, full places are
		g, en := New(Config{}), entry()
		results(t, g, en, 50, time.Millisecond, delivered(400*time.Millisecond))
		admit(t, g, another(en))
		elapse(3 * time.Second)
		require.False(t, g.Slow(en.Endpoint))
		for range 9 {
			admit(t, g, another(en))
		}
		require.True(t, g.Slow(en.Endpoint))
	})
}

// Room is what the releases may use: as many as it says do get a reservation.
func TestRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate  float64
		known bool
		room  int
	}{
		"known":      {rate: 2, known: true, room: 600},
		"slow":       {rate: 0.02, known: true, room: 6},
		"very slow":  {rate: 0.001, known: true, room: pioneers},
		"fast":       {rate: 10_000, known: true, room: maxReserved},
		"not known":  {rate: 10_000, room: unknownReserved},
		"not, slow":  {rate: 0.1, room: 30},
		"hour's few": {rate: 0.01, known: true, room: pioneers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			g, en := clock.gate(), entry()
			en.Limits.Rate = c.rate
			_, pass := g.Enter(canceled(), another(en))
			if c.known {
				pass.Done(delivered(0))
			}
			room, got := g.Room(en.Endpoint), 0
			taken := g.Health(en.Endpoint).Reserved
			require.InDelta(t, c.room, room+taken, 2)
			if c.rate > 100 {
				return // all of them would go
			}
			for range room + 20 {
				one := another(en)
				one.Released = true
				if admission, _ := g.Enter(canceled(), one); admission.Verdict == Deferred {
					got++
				}
			}
			require.InDelta(t, room, got, 3)
			require.LessOrEqual(t, g.Room(en.Endpoint), 3)
		})
	}
}

// 2,000 behind an endpoint that hangs: a handful of requests and of reservations, the
// rest is held, and an hour of it makes few come for nothing.
func TestHangingEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, guarded().Limits, func(time.Duration) (time.Duration, Result) {
			return 15 * time.Second, Result{Reason: "timeout_headers", Trouble: true}
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
		require.LessOrEqual(t, average, 2.0)
	})
}

// An endpoint that takes in less than is sent to it: its places are used, nobody
// comes back often, and who came first does not wait for much longer than in a queue.
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

// 100,000 endpoints take bounded memory, and those that are idle are forgotten.
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
	g := clock.gate(func(c *Config) { c.MaxEndpoints = 2 * n })
	before := heap()
	for range n {
		en := guarded()
		_, pass := g.Enter(canceled(), en)
		pass.Done(refused(time.Millisecond))
	}
	require.Equal(t, n, g.Totals().Endpoints)
	each := (heap() - before) / n
	t.Logf("%d bytes per endpoint", each)
	require.Less(t, each, int64(1400))

	clock.advance(idleAfter)
	for range n {
		_, pass := g.Enter(canceled(), entry())
		pass.Done(delivered(time.Millisecond))
	}
	require.LessOrEqual(t, g.Totals().Endpoints, n+shards, "who was idle is forgotten")
	runtime.KeepAlive(g)
}

// Above the bound those that are not in use go first; what is in flight, waiting or
// reserved is never forgotten.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := clock.gate(func(c *Config) { c.MaxEndpoints = 10 * shards })
	var passes []*Pass
	var reserved []Entry
	for range 200 {
		en := entry()
		_, pass := g.Enter(canceled(), en)
		passes = append(passes, pass)
		en = entry()
		en.Limits.Rate = 0.1
		_, pass = g.Enter(canceled(), en)
		pass.Done(delivered(0))
		en = another(en)
		admission, _ := g.Enter(canceled(), en)
		require.Equal(t, Deferred, admission.Verdict)
		reserved = append(reserved, en)
	}
	for range 100 * shards {
		_, pass := g.Enter(canceled(), entry())
		pass.Done(delivered(0))
	}
	require.LessOrEqual(t, g.Totals().Endpoints, 11*shards+400)
	require.Equal(t, 200, g.Totals().InFlight)
	require.Equal(t, 200, g.Totals().Reserved)
	for i, p := range passes {
		require.Equal(t, 1, g.Health(p.endpoint.id).InFlight)
		p.Done(delivered(0))
		g.Forget(reserved[i].Endpoint, reserved[i].Delivery)
	}
	require.Zero(t, g.Totals().Reserved)
	require.Zero(t, g.Totals().InFlight)
}

// Who is turned away inside Enter, who has just asked, and what a receiver asked for
// are remembered, however many others there are.
func TestRememberedWhileNeeded(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := clock.gate(func(c *Config) { c.MaxEndpoints = shards })
	sameShard := func(en Entry) Entry {
		other := entry()
		other.Endpoint[15] = en.Endpoint[15]
		return other
	}
	first := entry()
	first.Limits.MaxInFlight = 1
	_, pass := g.Enter(canceled(), first)
	second := sameShard(first)
	_, other := g.Enter(canceled(), second)
	require.Equal(t, 1, g.Health(second.Endpoint).InFlight)
	other.Done(delivered(0))

	waits := another(first)
	s := pass.endpoint.shard
	s.mu.Lock()
	_, _, w := pass.endpoint.decide(g.now(), &waits)
	s.mu.Unlock()
	require.NotNil(t, w)
	pass.Done(Result{Trouble: true, DeferFor: 30 * time.Minute})
	clock.advance(time.Hour)
	for range 10 {
		_, other = g.Enter(canceled(), sameShard(first))
		other.Done(delivered(0))
	}
	require.Equal(t, 1, g.Health(first.Endpoint).FailureStreak, "it is remembered")
	_, again, next, _ := pass.endpoint.awake(w, &waits, false)
	require.Nil(t, next)
	again.Done(delivered(0))

	roomy := clock.gate()
	_, pass = roomy.Enter(canceled(), first)
	pass.Done(Result{Trouble: true, DeferFor: time.Hour})
	for _, remembered := range []bool{true, false} {
		clock.advance(59 * time.Minute)
		for range 10 {
			_, pass = roomy.Enter(canceled(), sameShard(first))
			pass.Done(delivered(0))
		}
		require.Equal(t, remembered, roomy.Health(first.Endpoint) != Health{})
	}
}

// All endpoints together have a bound of reservations, beyond a few for each.
func TestReservedBound(t *testing.T) {
	t.Parallel()
	g := newClock().gate(func(c *Config) { c.MaxReserved = 20 })
	for range 3 {
		en := entry()
		en.Limits.Rate = 0.5
		_, pass := g.Enter(canceled(), another(en))
		pass.Done(delivered(0))
		for range 100 {
			g.Enter(canceled(), another(en))
		}
		require.LessOrEqual(t, g.Room(en.Endpoint), 0)
	}
	require.Equal(t, 20+2*pioneers, g.Totals().Reserved)
}

// A real clock and many at once: no race, never more than allowed, all is given back.
func TestStress(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	g := New(Config{MaxEndpoints: shards, Changed: func(Change) { open.Add(1) }})
	endpoints := make([]Entry, 20)
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
				en := another(endpoints[k])
				admission, pass := g.Enter(t.Context(), en)
				g.Slow(en.Endpoint)
				if pass == nil {
					if admission.Verdict == Deferred {
						g.Forget(en.Endpoint, en.Delivery)
					}
					continue
				}
				if inFlight[k].Add(1) > 3 {
					t.Error("more in flight than allowed")
				}
				runtime.Gosched()
				inFlight[k].Add(-1)
				if (k+i)%3 == 0 || k == 0 {
					pass.Done(refused(0))
				} else {
					pass.Done(delivered(0))
				}
				g.Health(en.Endpoint)
			}
		})
	}
	all.Wait()
	totals := g.Totals()
	require.Zero(t, totals.InFlight)
	require.Zero(t, totals.Waiting)
	require.Zero(t, totals.Reserved)
	require.Zero(t, g.reserved.Load())
	require.Positive(t, open.Load())
}
