package admission

import (
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// at is a request for a new endpoint of a host.
func at(host string) Request {
	req := newRequest()
	req.Host = host
	return req
}

// requireAtRest checks that nothing is in flight, waits or is reserved.
func requireAtRest(t *testing.T, ctl *Controller) {
	t.Helper()
	totals := ctl.Totals()
	require.Zero(t, totals.InFlight)
	require.Zero(t, totals.Waiting)
	require.Zero(t, totals.Reserved)
	for _, h := range ctl.hosts {
		require.Zero(t, h.inFlight)
		h.prunedAt = -pruneEvery
		h.prune(ctl.now())
		require.Empty(t, h.queue)
	}
}

// What counts as one host.
func TestHostOf(t *testing.T) {
	t.Parallel()
	ctl := New(Config{MaxInFlightPerHost: 1})
	for given, want := range map[string]string{
		"https://example.com/a?b=c":            "example.com:443",
		"https://example.com:443":              "example.com:443",
		"https://EXAMPLE.com":                  "example.com:443",
		"https://example.com./":                "example.com:443",
		"HTTPS://example.com/":                 "example.com:443",
		"https://example.com:8443/a":           "example.com:8443",
		"http://example.com/a":                 "example.com:80",
		"http://example.com:443/a":             "example.com:443",
		"https://a.example.com/":               "a.example.com:443",
		"https://192.0.2.1/":                   "192.0.2.1:443",
		"https://[2001:DB8::1]:99/":            "[2001:db8::1]:99",
		"https://[2001:db8:0:0:0:0:0:1]:99/":   "[2001:db8::1]:99",
		"https://" + strings.Repeat("a", 2000): strings.Repeat("a", 2000) + ":443",
		"":                                     "",
		"https://":                             "",
		"https://:443/":                        "",
		"https://exa mple.com":                 "",
		"https://example.com:port/":            "",
	} {
		require.Equal(t, want, ctl.HostOf(given), given)
	}
	require.Empty(t, New(Config{}).HostOf("https://example.com"), "nothing is limited, nothing is parsed")
}

// Without a limit nothing is kept of hosts, and shards have locks of their own.
func TestNoLimitPerHost(t *testing.T) {
	t.Parallel()
	ctl := New(Config{})
	for range 100 {
		permit := admit(t, ctl, at("receiver.test:443"))
		require.Nil(t, permit.host)
	}
	require.Empty(t, ctl.hosts)
	require.NotSame(t, ctl.shards[0].lock, ctl.shards[1].lock)
	limited := New(Config{MaxInFlightPerHost: 1})
	require.Same(t, limited.shards[0].lock, limited.shards[1].lock)
}

// A permit is what a request costs; it is not to become larger where hosts are not limited.
func TestCostsNothingMore(t *testing.T) { //nolint:paralleltest // it counts allocations
	ctl := New(Config{})
	req := newRequest()
	req.Limits.Rate = 1e9
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		permit := ctl.Acquire(t.Context(), req).Permit
		permit.Cancel()
	}), 1.0)
	require.LessOrEqual(t, reflect.TypeFor[Permit]().Size(), uintptr(64), "a size that is allocated")
}

// The limit holds over endpoints and for each host by itself; each way in which a request may end gives
// the slot back, once.
func TestLimitPerHost(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Permit){
		"done":     func(p *Permit) { p.Done(delivered(time.Millisecond)) },
		"failed":   func(p *Permit) { p.Done(refused(time.Millisecond)) },
		"canceled": func(p *Permit) { p.Cancel() },
		"twice":    func(p *Permit) { p.Cancel(); p.Done(delivered(time.Millisecond)); p.Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctl := newClock().controller(func(c *Config) { c.MaxInFlightPerHost = 3 })
			for range 3 {
				var permits []*Permit
				for range 3 {
					permits = append(permits, admit(t, ctl, at("a.test:443")))
				}
				waits := at("a.test:443")
				decision := ctl.Acquire(canceled(), waits)
				require.True(t, decision.Deferred())
				require.Zero(t, ctl.Health(waits.Endpoint).InFlight, "it has no slot of its endpoint")
				permits = append(permits, admit(t, ctl, at("b.test:443")), admit(t, ctl, at("")))
				for _, p := range permits {
					end(p)
				}
			}
			requireAtRest(t, ctl)
		})
	}
}

// A delivery that waits for its host is admitted as soon as a request of another endpoint ends there,
// and endpoints take turns.
func TestEndpointsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 1})
		busy := admit(t, ctl, at("a.test:443"))
		var mu sync.Mutex
		var order []string
		enter := func(name string, req Request) {
			go func() {
				permit := ctl.Acquire(t.Context(), req).Permit
				if permit == nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				elapse(time.Millisecond)
				permit.Done(delivered(time.Millisecond))
			}()
			synctest.Wait()
		}
		many, one := at("a.test:443"), at("a.test:443")
		for range 3 {
			enter("many", another(many))
		}
		enter("one", one)
		require.Empty(t, order)
		require.Equal(t, 4, ctl.Totals().Waiting)
		busy.Done(delivered(time.Millisecond))
		elapse(10 * time.Millisecond)
		require.Equal(t, []string{"many", "one", "many", "many"}, order)
	})
}

// An open circuit is probed although others keep the host busy all the time.
func TestProbeOfABusyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Breaker: webhook.DefaultCircuitBreaker()}
		limits.Breaker.MinRequests = 5
		sims := newSims(t, 3, Config{MaxInFlightPerHost: 2}, limits, constant(200*time.Millisecond))
		sick := sims[0]
		sick.serve = func(at time.Duration) (time.Duration, Result) {
			if at < time.Minute {
				return 200 * time.Millisecond, refused(200 * time.Millisecond)
			}
			return 200 * time.Millisecond, delivered(200 * time.Millisecond)
		}
		for _, s := range sims {
			n := 1000
			if s == sick {
				n = 20
			}
			for range n {
				s.send()
			}
		}
		elapse(time.Minute)
		require.Equal(t, webhook.CircuitOpen, sick.controller.Health(sick.endpoint).Circuit)
		for sick.delivered() < 20 {
			require.Less(t, sick.now(), 5*time.Minute)
			elapse(time.Second)
		}
		require.Less(t, sims[1].delivered()+sims[2].delivered(), 2000, "the others kept it busy")
		for _, s := range sims {
			s.end()
		}
	})
}

// A probe needs a slot of the host as well. A delivery that comes in time to be the probe waits for one,
// and is admitted as soon as it is free; others are deferred.
func TestProbeWaitsForTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 1})
		req := guarded()
		req.Host = "a.test:443"
		failed := 0
		for ; ctl.Health(req.Endpoint).Circuit == webhook.CircuitClosed; failed++ {
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
			elapse(10 * time.Millisecond)
		}
		decision := ctl.Acquire(t.Context(), req)
		require.True(t, decision.Deferred())
		elapse(time.Until(decision.Until) - 10*time.Millisecond)
		busy := admit(t, ctl, at("a.test:443"))
		elapse(10 * time.Millisecond)
		admitted := make(chan *Permit)
		go func() {
			permit := ctl.Acquire(t.Context(), req).Permit
			admitted <- permit
		}()
		elapse(100 * time.Millisecond)
		require.Equal(t, 1, queueOf(ctl, req.Endpoint).waiting)
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		later := ctl.Acquire(t.Context(), another(req))
		require.True(t, later.Deferred())
		require.Equal(t, 1, ctl.Totals().InFlight)
		busy.Done(delivered(time.Second))
		probe := <-admitted
		require.NotNil(t, probe)
		require.Equal(t, webhook.CircuitHalfOpen, ctl.Health(req.Endpoint).Circuit)
		probe.Done(delivered(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		require.Positive(t, failed)
	})
}

// A delivery that comes while the receiver has asked for no requests does not wait for a slot of the host: it
// would be admitted when that is free.
func TestBlockedAtABusyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{MaxInFlightPerHost: 1}), at("a.test:443")
		limited := delivered(time.Millisecond)
		limited.PaceFor = 5 * time.Second
		admit(t, ctl, another(req)).Done(limited)
		mine := ctl.Acquire(t.Context(), req)
		require.True(t, mine.Deferred())
		elapse(time.Until(mine.Until) - 200*time.Millisecond)
		busy := admit(t, ctl, at("a.test:443"))
		entered := make(chan Decision)
		go func() {
			decision := ctl.Acquire(t.Context(), req)
			entered <- decision
		}()
		elapse(50 * time.Millisecond)
		busy.Done(delivered(time.Millisecond))
		decision := <-entered
		require.True(t, decision.Deferred())
		require.False(t, decision.Until.Before(mine.Until))
	})
}

// Where the slots of its host become free rarely, an endpoint is not quick, and deliveries are deferred.
// Where it only looks so, because this process stalls, they wait.
func TestQuickAtAHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		latency, stall time.Duration
		waits          bool
	}{
		"quick, after a stall": {3 * time.Millisecond, 350 * time.Millisecond, true},
		"slow":                 {500 * time.Millisecond, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{MaxInFlightPerHost: 1}), at("a.test:443")
				learn(t, ctl, req, time.Millisecond)
				for range 100 {
					busy := admit(t, ctl, at("a.test:443"))
					elapse(c.latency)
					busy.Done(delivered(c.latency))
				}
				busy := admit(t, ctl, at("a.test:443"))
				elapse(c.stall)
				wait := ctl.Forecast(req.Endpoint).Wait
				require.Greater(t, wait, shortPatience)
				require.Less(t, wait, longPatience)
				entered := make(chan kind)
				go func() {
					decision := ctl.Acquire(t.Context(), another(req))
					permit := decision.Permit
					if permit != nil {
						permit.Done(delivered(time.Millisecond))
					}
					entered <- kindOf(decision)
				}()
				synctest.Wait()
				require.Equal(t, c.waits, queueOf(ctl, req.Endpoint).waiting == 1)
				busy.Done(delivered(c.stall))
				require.Equal(t, c.waits, <-entered == isAdmitted)
			})
		})
	}
}

// At a host that hangs, a delivery that could be the probe does not come back again and again.
func TestProbeOfAHangingHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 1})
		req := guarded()
		req.Host = "a.test:443"
		for ctl.Health(req.Endpoint).Circuit == webhook.CircuitClosed {
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
			elapse(10 * time.Millisecond)
		}
		admit(t, ctl, at("a.test:443"))
		elapse(2 * time.Minute)
		decision := ctl.Acquire(t.Context(), req)
		require.True(t, decision.Deferred())
		require.Greater(t, time.Until(decision.Until), time.Minute)
	})
}

// An endpoint that gets another URL counts at the new host; requests in flight stay at the old one until
// they end, and deliveries that waited for it are deferred.
func TestMovesToAnotherHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 1})
		req := at("old.test:443")
		before := admit(t, ctl, req)
		answer := make(chan Decision)
		go func() {
			decision := ctl.Acquire(t.Context(), another(req))
			answer <- decision
		}()
		synctest.Wait()
		req.Host = "new.test:443"
		after := admit(t, ctl, another(req))
		waited := <-answer
		require.True(t, waited.Deferred())
		require.GreaterOrEqual(t, time.Until(waited.Until), minDeferral)
		require.Equal(t, 2, ctl.Health(req.Endpoint).InFlight)
		require.Len(t, ctl.hosts, 2)

		decision := ctl.Acquire(canceled(), at("old.test:443"))
		require.True(t, decision.Deferred(), "the old host is full")
		require.Equal(t, 1, ctl.hosts["old.test:443"].inFlight)
		before.Cancel()
		require.Equal(t, 0, ctl.hosts["old.test:443"].inFlight)
		require.Equal(t, 1, ctl.hosts["new.test:443"].inFlight)
		after.Cancel()
		admit(t, ctl, at("new.test:443")).Cancel()
	})
}

// Health tells that an endpoint waits for its host.
func TestHealthOfABusyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 2})
		req, other := at("a.test:443"), at("a.test:443")
		admit(t, ctl, req).Done(delivered(time.Millisecond))
		first, second := admit(t, ctl, another(other)), admit(t, ctl, another(other))
		elapse(20 * time.Second)
		require.Equal(t, webhook.ReasonHost, ctl.Health(req.Endpoint).DeferReason)
		require.True(t, ctl.LikelySlow(req.Endpoint))
		require.Less(t, rateOf(ctl, req.Endpoint, req.Limits), 2.0)
		decision := ctl.Acquire(t.Context(), another(req))
		require.True(t, decision.Deferred())
		require.Equal(t, webhook.ReasonHost, decision.Reason)
		first.Done(delivered(20 * time.Second))
		second.Done(delivered(20 * time.Second))
		elapse(time.Until(decision.Until) + 2*lateness)
		require.Empty(t, ctl.Health(req.Endpoint).DeferReason)
		admit(t, ctl, another(req)).Cancel()
	})
}

// Hosts are forgotten with their endpoints.
func TestMemoryOfHosts(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) {
		c.MaxInFlightPerHost = 1
		c.MaxEndpoints = 10 * shards
	})
	const n = 100_000
	for range n {
		req := newRequest()
		req.Host = req.Endpoint.String() + ".test:443"
		admit(t, ctl, req).Done(delivered(time.Millisecond))
		require.LessOrEqual(t, len(ctl.hosts), 12*shards)
	}
	clock.advance(2 * idleAfter)
	for i := range 40 * shards {
		req := newRequest()
		req.Endpoint[len(req.Endpoint)-1] = byte(i)
		admit(t, ctl, req).Cancel()
	}
	require.Empty(t, ctl.hosts)
}

// With the real clock and many goroutines: no race, never more in flight than allowed, all is given back.
func TestStressOfHosts(t *testing.T) {
	t.Parallel()
	const slots = 4
	ctl := New(Config{MaxInFlightPerHost: slots, MaxEndpoints: shards})
	hosts := []string{"a.test:443", "b.test:443"}
	endpoints := make([]Request, 20)
	for i := range endpoints {
		endpoints[i] = guarded()
		endpoints[i].Limits.Breaker.Cooldown = 20 * time.Millisecond
	}
	inFlight := make([]atomic.Int32, len(hosts))
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := range 100 {
				k, to := (w+i)%len(endpoints), (i/25+w)%len(hosts) // they move now and then
				req := another(endpoints[k])
				req.Host = hosts[to]
				decision := ctl.Acquire(t.Context(), req)
				permit := decision.Permit
				if permit == nil {
					if decision.Deferred() {
						ctl.Forget(req.Endpoint, req.Delivery)
					}
					continue
				}
				if inFlight[to].Add(1) > slots {
					t.Error("more in flight than allowed")
				}
				runtime.Gosched()
				inFlight[to].Add(-1)
				if (k+i)%3 == 0 || k == 0 {
					permit.Done(refused(0))
				} else {
					permit.Done(delivered(0))
				}
				ctl.Health(req.Endpoint)
				ctl.EachUnhealthy(func(webhook.EndpointID, webhook.Observation) {})
			}
		})
	}
	all.Wait()
	requireAtRest(t, ctl)
}

// While all its slots are taken none is admitted, also at the very moment at which the next is expected to
// become free.
func TestNoSlotWhenOneIsExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl := New(Config{MaxInFlightPerHost: 1})
		permit := admit(t, ctl, at("receiver.test:443"))
		ctl.shards[0].lock.Lock()
		gap := permit.host.interval
		ctl.shards[0].lock.Unlock()
		elapse(gap)
		req := at("receiver.test:443")
		req.Limits.MaxInFlight = 5
		got := make(chan *Permit, 1)
		go func() {
			p := ctl.Acquire(t.Context(), req).Permit
			got <- p
		}()
		synctest.Wait()
		require.Empty(t, got, "the only slot is taken")
		permit.Done(delivered(gap))
		if p := <-got; p != nil {
			p.Cancel()
		}
	})
}
