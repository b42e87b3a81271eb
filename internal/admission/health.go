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

func (s *schedule) health(now time.Duration) webhook.Observation {
	b := &s.breaker
	h := webhook.Observation{
		Circuit: b.state, Why: b.why(),
		Rate: s.effectiveRate(now), Recovering: s.rampingUp(now), InFlight: len(s.slots.inFlight),
		SuccessStreak: s.recent.successStreak, FailureStreak: s.recent.failureStreak,
	}
	h.Delivered, h.Failed, h.First, h.Retries = s.recent.sum(now)
	if f := s.recent.failing; f != nil {
		h.FailingSince, h.LastFailedAt, h.LastFailure, h.LastError = s.env.time(f.since), s.env.time(f.last), string(f.reason), f.error
		h.LastTimes = f.times
	}
	if h.LastFailure == "" && b.state != webhook.CircuitClosed { // taken over from another process
		h.LastFailure = string(b.last)
	}
	if s.recent.deliveredAt > 0 {
		h.LastSuccess = s.env.time(s.recent.deliveredAt)
	}
	if r := s.recent.redirects; r.strayed() {
		h.Strayed = webhook.Strayed{To: r.to, Before: r.before, At: s.env.time(r.since)}
	}
	if b.changed {
		h.Since = s.env.time(b.since)
	}
	if s.slots.known || len(s.slots.inFlight) > 0 {
		h.Latency = s.slots.smoothed(now)
	}
	if s.limits.AutoTimeout {
		h.Timeout = s.timeout(now, 0)
	}
	if b.state == webhook.CircuitOpen {
		h.NextProbe = s.env.time(b.until)
	}
	if b.probe != nil {
		over := b.probe.start + s.probeTime(now)
		if over <= now { // it takes longer than usual, and no longer than it may
			over = max(b.probe.start+b.probe.timeout, now+minProbe)
		}
		h.ProbeOver = s.env.time(over)
	}
	if s.blockedUntil > now {
		h.BlockedUntil, h.BlockReason = s.env.time(s.blockedUntil), s.blockedFor
	}
	if at, reason := s.earliest(now); at > now+s.patience() {
		h.DeferReason = reason
	}
	return h
}

// healthy reports whether an endpoint needs no attention: it answers, or nothing was sent to it lately, and the last that was did
// not fail.
func (s *schedule) healthy(now time.Duration) bool {
	if s.shut(now) || len(s.reservations.all) > 0 || s.rampingUp(now) || s.recent.redirects.strayed() {
		return false
	}
	answers := s.recent.failureStreak == 0 && s.slots.smoothed(now) <= slowLatency
	delivered, failed, _, _ := s.recent.sum(now)
	return answers || len(s.slots.inFlight) == 0 && delivered+failed == 0 && !s.recent.failed(now)
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
