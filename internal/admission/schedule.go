package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// quickLatency is the most that a quick endpoint takes to answer, and quickInterval how
	// often, at least, one of its slots becomes free and its rate allows a request.
	quickLatency, quickInterval = 50 * time.Millisecond, 5 * time.Millisecond
	// Reservations of new deliveries go horizonNew ahead, those of released ones horizonReleased,
	// so that there is always room for a backlog before new deliveries.
	horizonNew      = 4 * time.Minute
	horizonReleased = 5 * time.Minute
	// The same while the latency bounds the rate: a receiver that hung may answer at once again,
	// and a delivery that has a reservation waits for it all the same.
	latencyHorizonNew      = 5 * time.Second
	latencyHorizonReleased = 10 * time.Second

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
	// maxReserved is how many reservations one endpoint may have, and unknownReserved how many
	// one that has not answered yet: it may hang.
	maxReserved     = 10_000
	unknownReserved = 100
	// alwaysReserved is how many deliveries may have a reservation however far away it is: so an
	// endpoint is tried again without any being released.
	alwaysReserved = 4
	// spare is the part of the slots' time (one in so many) that reservations leave free, for
	// deliveries that are late and requests that take longer: without it they would find all
	// slots taken again and again.
	spare = 20
)

// quick reports whether the endpoint, by the requests that have ended, answers at once and takes
// many. If its slots seem to become free slowly, this process was busy for a moment: a durable
// timer would take longer than the wait.
func (e *endpoint) quick() bool {
	s := &e.slots
	return s.known && s.latency <= min(quickLatency, quickInterval*time.Duration(s.limit)) &&
		e.rate.interval <= quickInterval && (e.host == nil || e.host.share(e.host.interval, &e.hostEntry) <= quickInterval) &&
		!e.rate.ramp.active && e.recent.failureStreak == 0
}

// patience is how near a reservation must be for its delivery to wait inside Acquire.
func (e *endpoint) patience() time.Duration {
	if e.quick() {
		return longPatience
	}
	return shortPatience
}

// mayWait is how many new deliveries may wait inside Acquire.
func (e *endpoint) mayWait() int {
	switch {
	case !e.slots.known:
		return unknownWaiters
	case e.quick() && e.env.inside.Load() < quickWaiters:
		return quickWaiters
	}
	return maxWaiters
}

// mayReserve is how many reservations there may be in all.
func (e *endpoint) mayReserve() int {
	switch {
	case e.breaker.relapsed():
		return alwaysReserved // more would come back in vain again and again
	case !e.slots.known:
		return max(unknownReserved, 4*e.slots.limit)
	}
	return maxReserved
}

// reach is how far ahead a delivery may get a reservation. After a relapse it grows slowly: if the
// circuit opened again, all deliveries with a reservation would come back in vain.
func (e *endpoint) reach(now time.Duration, p pacing, released bool) time.Duration {
	first, last := horizonNew, horizonReleased
	if until, _ := e.blocked(now); until <= now && p.bySlots(now) && p.reason == webhook.ReasonInFlight {
		first, last = latencyHorizonNew, latencyHorizonReleased
	}
	reach := first
	if released {
		reach = last
	}
	if closed, recovers := e.breaker.recoversFromRelapse(now); recovers {
		reach = min(reach, rampTime/2+2*closed)
	}
	return reach
}

// pacing returns how far apart requests are to be now.
func (e *endpoint) pacing(now time.Duration) pacing {
	interval, reason := e.slots.interval(now), webhook.ReasonInFlight
	if e.host != nil {
		if share := e.host.share(e.host.freeInterval(now), &e.hostEntry); share > interval {
			interval, reason = share, webhook.ReasonHost
		}
	}
	return pacing{rate: e.rate.interval, slots: interval + interval/spare, reason: reason, ramp: &e.rate.ramp}
}

// admissible reports whether a new delivery is admitted at once, and none waits.
func (e *endpoint) admissible(now time.Duration) bool {
	return len(e.reservations.all) == 0 && !e.slots.full() && e.breaker.state == webhook.CircuitClosed &&
		e.blockedUntil <= now && e.rate.conforms(now) && e.host.open(&e.hostEntry)
}

// earliest is when a new delivery may be admitted, and why not sooner; now means at once.
func (e *endpoint) earliest(now time.Duration) (time.Duration, string) {
	if until, reason := e.blocked(now); until > now {
		return until, reason
	}
	p := e.pacing(now)
	from, reason := max(now, e.rate.next-burst), webhook.ReasonRate
	if !e.rate.allowsLate(now) { // after all that wait
		from = max(from, e.rate.lateFrom(now)+time.Duration(len(e.waiters))*e.rate.leastInterval(now))
	}
	if e.slots.full() {
		from, reason = max(from, e.slots.nextFree(now)), webhook.ReasonInFlight
	} else if p.bySlots(now) {
		reason = p.reason
	}
	if slot := e.host.slotForNew(now, &e.hostEntry); slot > from {
		from, reason = slot, webhook.ReasonHost
	}
	if n := len(e.waiters); n > 0 {
		from = max(from, e.waiters[n-1].at)
	}
	return e.reservations.free(from, p), reason
}

// effectiveRate is how many requests per second are admitted now.
func (e *endpoint) effectiveRate(now time.Duration) float64 {
	if until, _ := e.blocked(now); until > now {
		return 0
	}
	return float64(time.Second) / float64(e.pacing(now).interval(now))
}

// rampingUp reports whether it is the ramp-up after an outage that bounds the rate.
func (e *endpoint) rampingUp(now time.Duration) bool {
	until, _ := e.blocked(now)
	return until <= now && e.rate.ramp.active && e.rate.ramp.rate(now) < e.limits.Rate
}
