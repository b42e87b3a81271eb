package gate

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

// at is somebody new for a new endpoint of a host.
func at(host string) Entry {
	en := entry()
	en.Host = host
	return en
}

// requireAtRest: nothing is under way, and nobody waits.
func requireAtRest(t *testing.T, g *Gate) {
	t.Helper()
	totals := g.Totals()
	require.Zero(t, totals.InFlight)
	require.Zero(t, totals.Waiting)
	require.Zero(t, totals.Reserved)
	for _, h := range g.hosts {
		require.Zero(t, h.inFlight)
		require.Empty(t, h.turns)
	}
}

// What counts as one host.
func TestHostOf(t *testing.T) {
	t.Parallel()
	g := New(Config{MaxInFlightPerHost: 1})
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
		require.Equal(t, want, g.HostOf(given), given)
	}
	require.Empty(t, New(Config{}).HostOf("https://example.com"), "nothing is capped, nothing is parsed")
}

// Without a cap nothing is known of hosts, and endpoints have locks of their own.
func TestNoCapPerHost(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	for range 100 {
		pass := admit(t, g, at("receiver.test:443"))
		require.Nil(t, pass.host)
	}
	require.Empty(t, g.hosts)
	require.NotSame(t, g.shards[0].mu, g.shards[1].mu)
	capped := New(Config{MaxInFlightPerHost: 1})
	require.Same(t, capped.shards[0].mu, capped.shards[1].mu)
}

// A pass is what a request costs; it is not to become larger for those without a cap.
func TestCostsNothingMore(t *testing.T) { //nolint:paralleltest // it counts allocations
	g := New(Config{})
	en := entry()
	en.Limits.Rate = 1e9
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, pass := g.Enter(t.Context(), en)
		pass.Cancel()
	}), 1.0)
	require.LessOrEqual(t, reflect.TypeFor[Pass]().Size(), uintptr(64), "a size that is allocated")
}

// The cap holds over endpoints and for each host by itself; each way in which a request
// may end gives the place back, once.
func TestCapPerHost(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Pass){
		"done":     func(p *Pass) { p.Done(delivered(time.Millisecond)) },
		"failed":   func(p *Pass) { p.Done(refused(time.Millisecond)) },
		"canceled": func(p *Pass) { p.Cancel() },
		"twice":    func(p *Pass) { p.Cancel(); p.Done(delivered(time.Millisecond)); p.Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newClock().gate(func(c *Config) { c.MaxInFlightPerHost = 3 })
			for range 3 {
				var passes []*Pass
				for range 3 {
					passes = append(passes, admit(t, g, at("a.test:443")))
				}
				waits := at("a.test:443")
				admission, _ := g.Enter(canceled(), waits)
				require.Equal(t, Deferred, admission.Verdict)
				require.Zero(t, g.Health(waits.Endpoint).InFlight, "it has no place of its endpoint")
				passes = append(passes, admit(t, g, at("b.test:443")), admit(t, g, at("")))
				for _, p := range passes {
					end(p)
				}
			}
			requireAtRest(t, g)
		})
	}
}

// Who waits for the host is let in as soon as somebody else's place there becomes free,
// and one endpoint after the other.
func TestTurnsAtAHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 1})
		busy := admit(t, g, at("a.test:443"))
		var mu sync.Mutex
		var order []string
		enter := func(name string, en Entry) {
			go func() {
				_, pass := g.Enter(t.Context(), en)
				if pass == nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				elapse(time.Millisecond)
				pass.Done(delivered(time.Millisecond))
			}()
			synctest.Wait()
		}
		many, one := at("a.test:443"), at("a.test:443")
		for range 3 {
			enter("many", another(many))
		}
		enter("one", one)
		require.Empty(t, order)
		require.Equal(t, 4, g.Totals().Waiting)
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
		require.Equal(t, CircuitOpen, sick.gate.Health(sick.endpoint).Circuit)
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

// A probe needs a place of the host as well. Who comes in time to be it waits for one, and
// is let in as soon as it is free; others are told when to come.
func TestProbeWaitsForTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 1})
		en := guarded()
		en.Host = "a.test:443"
		failed := 0
		for ; g.Health(en.Endpoint).Circuit == CircuitClosed; failed++ {
			admit(t, g, another(en)).Done(refused(time.Millisecond))
			elapse(10 * time.Millisecond)
		}
		admission, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, admission.Verdict)
		elapse(time.Until(admission.Until) - 10*time.Millisecond)
		busy := admit(t, g, at("a.test:443"))
		elapse(10 * time.Millisecond)
		admitted := make(chan *Pass)
		go func() {
			_, pass := g.Enter(t.Context(), en)
			admitted <- pass
		}()
		elapse(100 * time.Millisecond)
		require.Equal(t, 1, g.Health(en.Endpoint).Waiting)
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
		later, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, Deferred, later.Verdict)
		require.Equal(t, 1, g.Totals().InFlight)
		busy.Done(delivered(time.Second))
		probe := <-admitted
		require.NotNil(t, probe)
		require.Equal(t, CircuitHalfOpen, g.Health(en.Endpoint).Circuit)
		probe.Done(delivered(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		require.Positive(t, failed)
	})
}

// Who comes before the receiver wants requests again does not wait for a place of the host:
// it would go when that is free.
func TestBarredAtABusyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{MaxInFlightPerHost: 1}), at("a.test:443")
		limited := delivered(time.Millisecond)
		limited.PaceFor = 5 * time.Second
		admit(t, g, another(en)).Done(limited)
		mine, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, mine.Verdict)
		elapse(time.Until(mine.Until) - 200*time.Millisecond)
		busy := admit(t, g, at("a.test:443"))
		entered := make(chan Admission)
		go func() {
			admission, _ := g.Enter(t.Context(), en)
			entered <- admission
		}()
		elapse(50 * time.Millisecond)
		busy.Done(delivered(time.Millisecond))
		admission := <-entered
		require.Equal(t, Deferred, admission.Verdict)
		require.False(t, admission.Until.Before(mine.Until))
	})
}

// Where the places of its host become free slowly, an endpoint is not quick: who comes there
// comes back. Where it only looks so, because this process stalls, one waits.
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
				g, en := New(Config{MaxInFlightPerHost: 1}), at("a.test:443")
				learn(t, g, en, time.Millisecond)
				for range 100 {
					busy := admit(t, g, at("a.test:443"))
					elapse(c.latency)
					busy.Done(delivered(c.latency))
				}
				busy := admit(t, g, at("a.test:443"))
				elapse(c.stall)
				turn, _, _ := g.Turn(en.Endpoint)
				require.Greater(t, turn, shortPatience)
				require.Less(t, turn, longPatience)
				entered := make(chan Verdict)
				go func() {
					admission, pass := g.Enter(t.Context(), another(en))
					if pass != nil {
						pass.Done(delivered(time.Millisecond))
					}
					entered <- admission.Verdict
				}()
				synctest.Wait()
				require.Equal(t, c.waits, g.Health(en.Endpoint).Waiting == 1)
				busy.Done(delivered(c.stall))
				require.Equal(t, c.waits, <-entered == Admitted)
			})
		})
	}
}

// At a host that hangs, who comes to be the probe is not told to come again and again.
func TestProbeOfAHangingHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 1})
		en := guarded()
		en.Host = "a.test:443"
		for g.Health(en.Endpoint).Circuit == CircuitClosed {
			admit(t, g, another(en)).Done(refused(time.Millisecond))
			elapse(10 * time.Millisecond)
		}
		admit(t, g, at("a.test:443"))
		elapse(2 * time.Minute)
		admission, _ := g.Enter(t.Context(), en)
		require.Equal(t, Deferred, admission.Verdict)
		require.Greater(t, time.Until(admission.Until), time.Minute)
	})
}

// An endpoint that gets another URL counts at the new host; what is in flight stays at the
// old one until it ends, and who waited for that comes back.
func TestMovesToAnotherHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 1})
		en := at("old.test:443")
		before := admit(t, g, en)
		answer := make(chan Admission)
		go func() {
			admission, _ := g.Enter(t.Context(), another(en))
			answer <- admission
		}()
		synctest.Wait()
		en.Host = "new.test:443"
		after := admit(t, g, another(en))
		waited := <-answer
		require.Equal(t, Deferred, waited.Verdict)
		require.GreaterOrEqual(t, time.Until(waited.Until), minDeferral)
		require.Equal(t, 2, g.Health(en.Endpoint).InFlight)
		require.Len(t, g.hosts, 2)

		admission, _ := g.Enter(canceled(), at("old.test:443"))
		require.Equal(t, Deferred, admission.Verdict, "the old host is full")
		require.Equal(t, 1, g.hosts["old.test:443"].inFlight)
		before.Cancel()
		require.Equal(t, 0, g.hosts["old.test:443"].inFlight)
		require.Equal(t, 1, g.hosts["new.test:443"].inFlight)
		after.Cancel()
		admit(t, g, at("new.test:443")).Cancel()
	})
}

// What an endpoint waits for is told.
func TestHealthOfABusyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 2})
		en, other := at("a.test:443"), at("a.test:443")
		admit(t, g, en).Done(delivered(time.Millisecond))
		first, second := admit(t, g, another(other)), admit(t, g, another(other))
		elapse(20 * time.Second)
		require.Equal(t, ReasonHost, g.Health(en.Endpoint).WaitsFor)
		require.True(t, g.Slow(en.Endpoint))
		require.Less(t, g.Rate(en.Endpoint, en.Limits), 2.0)
		admission, _ := g.Enter(t.Context(), another(en))
		require.Equal(t, Deferred, admission.Verdict)
		require.Equal(t, ReasonHost, admission.Reason)
		first.Done(delivered(20 * time.Second))
		second.Done(delivered(20 * time.Second))
		elapse(time.Until(admission.Until) + 2*lateness)
		require.Equal(t, ReasonNone, g.Health(en.Endpoint).WaitsFor)
		admit(t, g, another(en)).Cancel()
	})
}

// Hosts are forgotten with the endpoints that lead there.
func TestMemoryOfHosts(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := clock.gate(func(c *Config) {
		c.MaxInFlightPerHost = 1
		c.MaxEndpoints = 10 * shards
	})
	const n = 100_000
	for range n {
		en := entry()
		en.Host = en.Endpoint.String() + ".test:443"
		admit(t, g, en).Done(delivered(time.Millisecond))
		require.LessOrEqual(t, len(g.hosts), 12*shards)
	}
	clock.advance(2 * idleAfter)
	for i := range 40 * shards {
		en := entry()
		en.Endpoint[len(en.Endpoint)-1] = byte(i)
		admit(t, g, en).Cancel()
	}
	require.Empty(t, g.hosts)
}

// A real clock and many at once: no race, never more than allowed, all is given back.
func TestStressOfHosts(t *testing.T) {
	t.Parallel()
	const places = 4
	g := New(Config{MaxInFlightPerHost: places, MaxEndpoints: shards})
	hosts := []string{"a.test:443", "b.test:443"}
	endpoints := make([]Entry, 20)
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
				en := another(endpoints[k])
				en.Host = hosts[to]
				admission, pass := g.Enter(t.Context(), en)
				if pass == nil {
					if admission.Verdict == Deferred {
						g.Forget(en.Endpoint, en.Delivery)
					}
					continue
				}
				if inFlight[to].Add(1) > places {
					t.Error("more in flight than allowed")
				}
				runtime.Gosched()
				inFlight[to].Add(-1)
				if (k+i)%3 == 0 || k == 0 {
					pass.Done(refused(0))
				} else {
					pass.Done(delivered(0))
				}
				g.Health(en.Endpoint)
				g.EachUnwell(func(webhook.EndpointID, Health) {})
			}
		})
	}
	all.Wait()
	requireAtRest(t, g)
}

// While all its places are taken nobody gets one, also at the very moment at which the next
// is expected to become free.
func TestNoPlaceWhenOneIsExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{MaxInFlightPerHost: 1})
		pass := admit(t, g, at("receiver.test:443"))
		g.shards[0].mu.Lock()
		gap := pass.host.gap
		g.shards[0].mu.Unlock()
		elapse(gap)
		en := at("receiver.test:443")
		en.Limits.MaxInFlight = 5
		got := make(chan *Pass, 1)
		go func() {
			_, p := g.Enter(t.Context(), en)
			got <- p
		}()
		synctest.Wait()
		require.Empty(t, got, "the only place is taken")
		pass.Done(delivered(gap))
		if p := <-got; p != nil {
			p.Cancel()
		}
	})
}
