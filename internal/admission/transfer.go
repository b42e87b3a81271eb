package admission

import (
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// State is the state of an endpoint that a controller transfers to another one. Durations count from Export.
type State struct {
	Request Request       // with the endpoint, its limits and its host
	Age     time.Duration // since Export

	Circuit *OpenCircuit // nil if it is closed
	Block   time.Duration
	Reason  string // of the block
	Ramp    *Ramp  // nil if the rate does not ramp up
	Earlier float64
	Latency time.Duration // 0: not known
	// Begun are the requests that still count for the rate, by how long before Export they began, the earliest first. Nil above maxMarks per
	// second.
	Begun []time.Duration
}

// OpenCircuit is a circuit that is open or half open.
type OpenCircuit struct {
	NextProbe, Cooldown time.Duration
	Since               time.Duration // for how long
	Failures, Requests  uint32        // in the window, when it opened
	Last                retry.Reason
}

// Ramp is a ramp-up of the rate, which may lie ahead.
type Ramp struct {
	From, Over time.Duration
	Base       float64
}

// Export returns the states of the selected endpoints, without those whose state is the initial one.
func (c *Controller) Export(which func(webhook.EndpointID) bool) (all []State) {
	for i := range c.shards {
		c.each(i, func(e *endpoint, now time.Duration) {
			if which(e.id) && e.notable(now) {
				all = append(all, e.export(now))
			}
		})
	}
	return all
}

func (r *receiver) notable(now time.Duration) bool {
	return r.breaker.state != webhook.CircuitClosed || r.blockedUntil > now || r.rate.ramp.active || r.unresponsive(now) ||
		len(r.rate.recent(now)) > 0
}

func (e *endpoint) export(now time.Duration) State {
	s := State{Request: Request{Endpoint: e.id, Tenant: e.reservations.tenant.Value(), Limits: e.limits}, Earlier: e.rate.earlier, Begun: e.rate.recent(now)}
	if e.host != nil {
		s.Request.Host = e.host.name
	}
	if b := &e.breaker; b.state != webhook.CircuitClosed {
		s.Circuit = &OpenCircuit{
			NextProbe: max(b.until-now, 0), Cooldown: b.cooldown, Since: now - b.since, Failures: b.failures, Requests: b.requests, Last: b.last,
		}
	}
	if e.blockedUntil > now {
		s.Block, s.Reason = e.blockedUntil-now, e.blockedFor
	}
	if r := &e.rate.ramp; r.active {
		s.Ramp = &Ramp{From: r.from - now, Over: r.over, Base: r.base}
	}
	if e.slots.known {
		s.Latency = max(e.slots.latency, 1)
	}
	return s
}

// Import takes over the state that another controller has exported. A probe that it has sent is repeated.
func (c *Controller) Import(s State) {
	e, now := c.lockFor(&s.Request)
	defer e.unlock()
	then := now - s.Age
	e.rate.earlier = s.Earlier
	e.rate.count(then, s.Begun)
	if r := s.Ramp; r != nil {
		e.rate.ramp = rampUp{active: true, from: then + r.From, over: r.Over, base: r.Base}
	}
	if s.Latency > 0 && !e.slots.known {
		e.slots.measure(s.Latency)
	}
	if s.Block > 0 {
		e.blockedUntil, e.blockedFor = then+s.Block, s.Reason
	}
	if o := s.Circuit; o != nil && e.breaker.settings.Enabled {
		e.breaker.takeOver(then, o)
		e.lock.changes = append(e.lock.changes, webhook.CircuitChange{
			EndpointID: e.id, TakenOver: true, From: webhook.CircuitClosed, To: webhook.CircuitOpen, At: e.env.time(e.breaker.since), Why: e.breaker.why(),
		})
	}
}
