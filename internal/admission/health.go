package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Health is what this process observes of an endpoint, with times of Config.Now. For an unknown endpoint the circuit is
// closed, and all else zero.
func (c *Controller) Health(id webhook.EndpointID) webhook.Observation {
	h := webhook.Observation{Circuit: webhook.CircuitClosed}
	c.look(id, func(e *endpoint, now time.Duration) { h = e.health(now) })
	return h
}

func (e *endpoint) health(now time.Duration) webhook.Observation {
	b := &e.breaker
	h := webhook.Observation{
		Circuit: b.state, Why: b.why(),
		Rate: e.effectiveRate(now), Recovering: e.rampingUp(now), InFlight: len(e.slots.inFlight),
		SuccessStreak: e.recent.successStreak, FailureStreak: e.recent.failureStreak,
	}
	h.Delivered, h.Failed, h.First, h.Retries = e.recent.sum(now)
	if f := e.recent.failing; f != nil {
		h.FailingSince, h.LastFailedAt, h.LastFailure, h.LastError = e.env.time(f.since), e.env.time(f.last), string(f.reason), f.error
		h.LastTimes = f.times
	}
	if h.LastFailure == "" && b.state != webhook.CircuitClosed { // taken over from another process
		h.LastFailure = string(b.last)
	}
	if e.recent.deliveredAt > 0 {
		h.LastSuccess = e.env.time(e.recent.deliveredAt)
	}
	if r := e.recent.redirects; r.strayed() {
		h.Strayed = webhook.Strayed{To: r.to, Before: r.before, At: e.env.time(r.since)}
	}
	if b.changed {
		h.Since = e.env.time(b.since)
	}
	if e.slots.known || len(e.slots.inFlight) > 0 {
		h.Latency = e.slots.smoothed(now)
	}
	if e.limits.AutoTimeout {
		h.Timeout = e.timeout(now, 0)
	}
	if b.state == webhook.CircuitOpen {
		h.NextProbe = e.env.time(b.until)
	}
	if b.probe != nil {
		over := b.probe.start + e.probeTime(now)
		if over <= now { // it takes longer than usual, and no longer than it may
			over = max(b.probe.start+b.probe.timeout, now+minProbe)
		}
		h.ProbeOver = e.env.time(over)
	}
	if e.blockedUntil > now {
		h.BlockedUntil, h.BlockReason = e.env.time(e.blockedUntil), e.blockedFor
	}
	if at, reason := e.earliest(now); at > now+e.patience() {
		h.DeferReason = reason
	}
	return h
}

// healthy reports whether an endpoint needs no attention: it answers, or nothing was sent to it
// lately.
func (e *endpoint) healthy(now time.Duration) bool {
	until, _ := e.blocked(now)
	if until > now || len(e.reservations.all) > 0 || e.rampingUp(now) || e.recent.redirects.strayed() {
		return false
	}
	answers := e.recent.failureStreak == 0 && e.slots.smoothed(now) <= slowLatency
	delivered, failed, _, _ := e.recent.sum(now)
	return answers || len(e.slots.inFlight) == 0 && delivered+failed == 0
}

// EachUnhealthy calls f with every endpoint that is not healthy:
// no request is admitted or a delivery waits, the last request failed, it is slow, its rate
// ramps up, or its redirects have strayed. Those of a shard are copied under its lock, and f is called without one: the whole is
// not of one moment.
func (c *Controller) EachUnhealthy(f func(webhook.EndpointID, webhook.Observation)) {
	for i := range c.shards {
		found := map[webhook.EndpointID]webhook.Observation{}
		c.each(i, func(e *endpoint, now time.Duration) {
			if !e.healthy(now) {
				found[e.id] = e.health(now)
			}
		})
		for id, h := range found {
			f(id, h)
		}
	}
}

// OpenCircuits are the endpoints whose circuits are open.
func (c *Controller) OpenCircuits() (all []webhook.EndpointID) {
	for i := range c.shards {
		c.each(i, func(e *endpoint, _ time.Duration) {
			if e.breaker.state == webhook.CircuitOpen {
				all = append(all, e.id)
			}
		})
	}
	return all
}

// Totals are sums over all endpoints.
type Totals struct {
	Endpoints, InFlight, Waiting, Reserved int
	NotClosed                              int // circuits
}

// Totals counts. It takes each lock in turn, so the sums need not be of one moment.
func (c *Controller) Totals() (sum Totals) {
	for i := range c.shards {
		c.each(i, func(e *endpoint, _ time.Duration) {
			sum.Endpoints++
			sum.InFlight += len(e.slots.inFlight)
			sum.Waiting += len(e.waiters)
			sum.Reserved += len(e.reservations.all) - len(e.waiters)
			if e.breaker.state != webhook.CircuitClosed {
				sum.NotClosed++
			}
		})
	}
	return sum
}

// each calls f with the endpoints of a shard, under its lock.
func (c *Controller) each(i int, f func(e *endpoint, now time.Duration)) {
	s := &c.shards[i]
	s.lock.Lock()
	defer s.unlock()
	now := c.now()
	for _, e := range s.endpoints {
		e.expire(now)
		f(e, now)
	}
}
