package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// quickLatency is the most that a quick endpoint takes to answer, and quickInterval how
	// often, at least, one of its slots becomes free and its rate allows a request.
	quickLatency, quickInterval = 50 * time.Millisecond, 5 * time.Millisecond
	// unknownWaiters is how many new deliveries wait inside Acquire for an endpoint that has
	// not answered yet: the width of a shared workflow. maxWaiters is that for one that
	// has answered, 2,000 per second for as long as shortPatience, and quickWaiters for a quick
	// one, 3,400 per second for as long as longPatience, while no more than that wait for all
	// endpoints together. More returning deliveries may wait than new ones: admission gave
	// them the time.
	unknownWaiters      = 100
	maxWaiters          = 512
	quickWaiters        = 2048
	maxReturningWaiters = quickWaiters + maxWaiters
	// spare is the part of the slots' time (one in so many) that reservations leave free, for
	// deliveries that are late and requests that take longer: without it they would find all
	// slots taken again and again.
	spare = 20
)

// schedule is when requests may go to an endpoint, by its receiver, its reservations, those that wait, and its host.
type schedule struct {
	receiver

	env          *environment
	reservations reservations
	waiters      []*waiter // by their reservations
	host         *host     // nil where there is no limit
	hostEntry    hostEntry // in the queue of the host
}

// blocked returns until when no request is admitted, and why; the past when requests are.
func (s *schedule) blocked(now time.Duration) (time.Duration, string) {
	switch {
	case s.blockedUntil > now:
		return s.blockedUntil, s.blockedFor
	case s.breaker.state != webhook.CircuitClosed:
		return max(s.nextProbe(now), now+1), webhook.ReasonCircuitOpen
	}
	return 0, ""
}

// nextProbe is when the next probe should come while the circuit is not closed: the first at
// the end of the cooldown, others when the one before is likely to be over.
func (s *schedule) nextProbe(now time.Duration) time.Duration {
	b, probe := &s.breaker, s.probeTime(now)
	if b.probe != nil {
		return max(b.probe.start+probe, now)
	}
	from := max(b.until, s.host.nextFree(now))
	if n := len(s.reservations.all); n > 0 && s.reservations.all[n-1].at >= b.until {
		from += probe
	}
	return from
}

// quick reports whether the endpoint, by the requests that have ended, answers at once and takes
// many. If its slots seem to become free slowly, this process was busy for a moment: a durable
// timer would take longer than the wait.
func (s *schedule) quick() bool {
	c := &s.slots
	return c.known && c.latency <= min(quickLatency, quickInterval*time.Duration(c.limit)) &&
		s.rate.interval <= quickInterval && (s.host == nil || s.host.share(s.host.interval, &s.hostEntry) <= quickInterval) &&
		!s.rate.ramp.active && s.recent.failureStreak == 0
}

// patience is how near a reservation must be for its delivery to wait inside Acquire.
func (s *schedule) patience() time.Duration {
	if s.quick() {
		return longPatience
	}
	return shortPatience
}

// mayWait is how many new deliveries may wait inside Acquire.
func (s *schedule) mayWait() int {
	switch {
	case !s.slots.known:
		return unknownWaiters
	case s.quick() && s.env.inside.Load() < quickWaiters:
		return quickWaiters
	}
	return maxWaiters
}

// pacing returns how far apart requests are to be now.
func (s *schedule) pacing(now time.Duration) pacing {
	interval, reason := s.slots.interval(now), webhook.ReasonInFlight
	if s.host != nil {
		if share := s.host.share(s.host.freeInterval(now), &s.hostEntry); share > interval {
			interval, reason = share, webhook.ReasonHost
		}
	}
	return pacing{rate: s.rate.interval, slots: interval + interval/spare, reason: reason, ramp: &s.rate.ramp}
}

// admissible reports whether a new delivery is admitted at once, and none waits.
func (s *schedule) admissible(now time.Duration) bool {
	return len(s.reservations.all) == 0 && !s.slots.full() && s.breaker.state == webhook.CircuitClosed &&
		s.blockedUntil <= now && s.rate.conforms(now) && s.host.open(&s.hostEntry)
}

// earliest is when a new delivery may be admitted, and why not sooner; now means at once.
func (s *schedule) earliest(now time.Duration) (time.Duration, string) {
	if until, reason := s.blocked(now); until > now {
		return until, reason
	}
	p := s.pacing(now)
	from, reason := max(now, s.rate.next-burst), webhook.ReasonRate
	if !s.rate.allowsLate(now) { // after all that wait
		from = max(from, s.rate.lateFrom(now)+time.Duration(len(s.waiters))*s.rate.leastInterval(now))
	}
	if s.slots.full() {
		from, reason = max(from, s.slots.nextFree(now)), webhook.ReasonInFlight
	} else if p.bySlots(now) {
		reason = p.reason
	}
	if slot := s.host.slotForNew(now, &s.hostEntry); slot > from {
		from, reason = slot, webhook.ReasonHost
	}
	if n := len(s.waiters); n > 0 {
		from = max(from, s.waiters[n-1].at)
	}
	return s.reservations.free(from, p), reason
}

// effectiveRate is how many requests per second are admitted now.
func (s *schedule) effectiveRate(now time.Duration) float64 {
	if s.shut(now) {
		return 0
	}
	return float64(time.Second) / float64(s.pacing(now).interval(now))
}

// waits implements contender.
func (s *schedule) waits() bool { return len(s.waiters) > 0 }

// ready implements contender: it reports whether the first waiting delivery can be admitted, but
// for the host's slots. One whose reservation is past has paid for it. One whose reservation is
// not past yet is admitted when slots become free sooner than predicted, never faster than the
// rate.
func (s *schedule) ready(now time.Duration) bool {
	if len(s.waiters) == 0 {
		return false
	}
	if s.breaker.state != webhook.CircuitClosed {
		return s.probeDue(now)
	}
	return !s.slots.full() && s.rate.allowsLate(now) && (s.waiters[0].at <= now || s.rate.conforms(now))
}

// needsSlot implements contender. Deliveries that wait for something else leave the host's slots
// to others.
func (s *schedule) needsSlot(now, within time.Duration) bool {
	s.expire(now)
	if len(s.reservations.all) == 0 || s.blockedUntil > now || s.slots.full() || s.breaker.state != webhook.CircuitClosed && !s.probeDue(now) {
		return false
	}
	return s.reservations.all[0].at <= now+within
}

// expire drops reservations of deliveries that did not come.
func (s *schedule) expire(now time.Duration) { s.reservations.expire(now - lateness) }
