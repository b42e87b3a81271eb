package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// hostModel is some endpoints, each with a model of its own, of two hosts.
type hostModel struct {
	*rapid.T

	controller *Controller
	slots      int // of each host
	all        []*model
	at         map[*Permit]string // the host of what is in flight
}

// settle waits until all goroutines are blocked, and notes where admitted requests go.
func (h *hostModel) settle() {
	for _, m := range h.all {
		m.settle()
	}
	for _, m := range h.all {
		for p, d := range m.sending {
			if h.at[p] == "" {
				h.at[p] = d.host
			}
		}
	}
	inFlight := map[string]int{}
	for p, host := range h.at {
		if p.ended {
			delete(h.at, p)
			continue
		}
		if host != "" {
			inFlight[host]++
		}
	}
	for host, n := range inFlight {
		require.LessOrEqual(h, n, h.slots, "more in flight than allowed to %s", host)
	}
	h.check(inFlight)
}

// check checks the invariants of hosts.
func (h *hostModel) check(inFlight map[string]int) {
	ctl := h.controller
	ctl.hostsLock.Lock()
	defer ctl.hostsLock.Unlock()
	now := ctl.now()
	leading := map[*host]int{}
	for i := range ctl.shards {
		for _, e := range ctl.shards[i].endpoints {
			if e.host == nil {
				continue
			}
			leading[e.host]++
			e.checkWaiters(h)
			require.Same(h, e.host, ctl.hosts[e.host.name])
			require.False(h, e.overdue(now) && e.host.mayTake(now, &e.hostEntry), "a delivery waits although it could be admitted")
		}
	}
	for name, known := range ctl.hosts {
		require.Equal(h, name, known.name)
		require.Equal(h, inFlight[name], known.inFlight)
		require.Equal(h, leading[known], known.endpoints)
		require.Positive(h, known.inFlight+known.endpoints, "it is not needed")
		var waiting []*hostEntry
		for _, q := range known.queue {
			if _, listed := find(known.waiting, q); listed {
				waiting = append(waiting, q)
			} else {
				require.False(h, q.waits(), "an endpoint with a waiting delivery is not looked at")
			}
		}
		require.True(h, slices.Equal(waiting, known.waiting), "each of the queue, and once")
		seen := map[*hostEntry]bool{}
		for _, q := range known.queue {
			require.True(h, q.queued && q.contender.(*endpoint).host == known && !seen[q], "each once")
			seen[q] = true
		}
	}
	for name, n := range inFlight {
		require.True(h, n == 0 || ctl.hosts[name] != nil, "a host is forgotten while something is in flight")
	}
}

// overdue reports whether a delivery waits beyond its reservation that could be admitted, but for the host.
func (e *endpoint) overdue(now time.Duration) bool {
	return len(e.waiters) > 0 && e.waiters[0].at <= now && e.breaker.state == webhook.CircuitClosed && !e.slots.full() &&
		(e.rate.allowsLate(now) || !e.timerSet)
}

func (h *hostModel) pick() *model {
	m := h.all[rapid.IntRange(0, len(h.all)-1).Draw(h.T, "endpoint")]
	m.T = h.T
	return m
}

// The invariants of hosts, whatever happens in whatever order at whichever endpoint: never more in
// flight than allowed, no delivery waits while a slot is free, endpoints move to another host while
// requests are in flight, circuits open and are probed; at last all deliveries have been admitted, and
// nothing is left.
func TestHostModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			h := &hostModel{T: t, slots: rapid.IntRange(1, 4).Draw(t, "slots"), at: make(map[*Permit]string)}
			h.controller = New(Config{MaxInFlightPerHost: h.slots, MaxEndpoints: shards})
			ctx, stop := context.WithCancel(context.Background())
			defer synctest.Wait()
			defer stop()
			breaker := webhook.DefaultCircuitBreaker()
			breaker.MinRequests, breaker.Cooldown = 3, 2*time.Second
			for i := range rapid.IntRange(2, 5).Draw(t, "endpoints") {
				m := &model{
					T: t, ctx: ctx, controller: h.controller, request: newRequest(),
					deferred: make(map[webhook.DeliveryID]*modeled), sending: make(map[*Permit]*modeled),
				}
				m.request.Host = fmt.Sprintf("host%d:443", i%2)
				m.request.Limits = Limits{
					MaxInFlight: rapid.IntRange(1, 4).Draw(t, "in flight"),
					Rate:        rapid.SampledFrom([]float64{0.5, 20, 1000}).Draw(t, "rate"), Breaker: breaker,
				}
				m.arrive(1)
				h.all = append(h.all, m)
			}
			h.settle()
			step := func(does func(*model)) func(*rapid.T) {
				return func(t *rapid.T) {
					h.T = t
					for _, m := range h.all {
						m.T = t
					}
					does(h.pick())
					h.settle()
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"ask": step(func(m *model) { m.arrive(200) }),
				"ask together": step(func(m *model) {
					for range rapid.IntRange(1, 40).Draw(m.T, "how many") {
						m.arrive(200)
					}
				}),
				"come back early": step(func(m *model) { m.comeBack(m.pick(m.due(time.Hour))) }),
				"rest":            step((*model).rest),
				"leave":           step((*model).goAway),
				"end":             step(func(m *model) { m.end(delivered(0)) }),
				"fail":            step(func(m *model) { m.end(refused(0)) }),
				"ask for a pause": step(func(m *model) { m.end(Result{BreakerFailure: true, Answered: true, DeferFor: 3 * time.Second}) }),
				"reset":           step(func(m *model) { m.controller.Reset(m.request.Endpoint) }),
				"move": step(func(m *model) {
					m.request.Host = rapid.SampledFrom([]string{"host0:443", "host1:443", ""}).Draw(m.T, "to")
				}),
				"time": step(func(m *model) {
					passTime(time.Duration(rapid.IntRange(1, 2000).Draw(m.T, "ms"))*time.Millisecond, h.all...)
				}),
			})
			h.T = t
			h.drain(t)
		})
	})
}

// drain lets everything come to its end: requests take 100 ms from here on.
func (h *hostModel) drain(t *rapid.T) {
	open := func() (n int) {
		for _, m := range h.all {
			m.T = t
			n += len(m.inside) + len(m.deferred) + len(m.held) + len(m.sending)
		}
		return n
	}
	for n := 0; open() > 0; n++ {
		require.Less(t, n, 30_000, "a delivery is never admitted")
		for _, m := range h.all {
			for _, p := range m.permits() {
				delete(m.sending, p)
				p.Done(delivered(100 * time.Millisecond))
			}
			h.settle()
			for range min(roomOf(h.controller, m.request.Endpoint), len(m.held)) {
				d := m.held[0]
				m.held = m.held[1:]
				m.enter(d, true)
			}
		}
		passTime(200*time.Millisecond, h.all...)
		h.settle()
	}
	require.Zero(t, h.controller.Totals().InFlight)
	require.Zero(t, h.controller.reserved.total.Load())
	require.Zero(t, h.controller.inside.Load())
	// Idle endpoints are forgotten, and their hosts with them.
	elapse(2 * idleAfter)
	for i := range 2 * shards {
		req := newRequest()
		req.Endpoint[shardByte] = byte(i)
		permit := h.controller.Acquire(canceled(), req).Permit
		permit.Done(delivered(0))
	}
	require.Empty(t, h.controller.hosts)
}
