package admission

import (
	"container/list"
	"time"
	"unique"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxBlock is for how long a receiver's answer blocks its endpoint at most.
	maxBlock = time.Hour
	// minProbe is how long a probe is expected to take at least.
	minProbe = 100 * time.Millisecond
	// slowLatency is the smoothed latency above which an endpoint is slow.
	slowLatency = time.Second
	// A circuit that closes by more than lateRecovery later than expected invalidates the
	// reservations, which are for the expected time.
	lateRecovery = 10 * time.Second
)

// endpoint is what is known of one endpoint. Its times are since the controller was made.
type endpoint struct {
	id     webhook.EndpointID
	env    *environment
	lock   *lock // guards it
	limits Limits

	slots        concurrency
	rate         rateLimit
	breaker      breaker
	reservations reservations
	host         *host     // nil where there is no limit
	hostEntry    hostEntry // in the queue of the host

	waiters  []*waiter // by their reservations
	inside   int       // in Acquire, and will look at the endpoint again
	timerSet bool      // see admitLater
	dropped  bool      // forgotten while deliveries waited, see Controller.Drop

	blockedUntil time.Duration // by what the receiver asked for
	blockedFor   string
	failures     int // that the breaker counts, in a row
	recent       recent
	autoTimeout  *autoTimeout // nil unless the timeout follows the latencies

	usedAt time.Duration
	use    *list.Element // of its shard
}

func newEndpoint(id webhook.EndpointID, env *environment, l *lock, now time.Duration) *endpoint {
	e := &endpoint{id: id, env: env, lock: l}
	e.rate.born, e.rate.sentAt = now, now
	e.breaker.state, e.breaker.random = webhook.CircuitClosed, env.config.Random
	e.reservations.counts, e.reservations.tenant = &env.reserved, unique.Make("")
	return e
}

// apply sets the limits; false if they are unchanged.
func (e *endpoint) apply(now time.Duration, limits Limits) bool {
	first := e.limits.MaxInFlight == 0
	if !first && limits == e.limits {
		return false
	}
	before := e.limits
	e.limits = limits
	e.slots.limit = limits.MaxInFlight
	e.rate.set(now, limits.Rate)
	if !limits.AutoTimeout {
		e.autoTimeout = nil
	} else if e.autoTimeout == nil {
		e.autoTimeout = &autoTimeout{}
	}
	if !first && limits.Rate < before.Rate {
		e.invalidate(never) // reservations were for a higher rate; each delivery gets another
	}
	circuit := e.breaker.state
	e.breaker.configure(now, limits.Breaker)
	e.followCircuit(now, circuit)
	return true
}

// setHost makes a host the endpoint's; nil is none. Requests in flight keep their slots of the
// one before. Deliveries that wait would have gone there, too, and have to ask again.
func (e *endpoint) setHost(now time.Duration, h *host) {
	e.invalidate(0)
	if before := e.host; before != nil {
		before.leave(&e.hostEntry)
		before.endpoints--
		e.host = nil
		before.admitWaiters(now)
		e.env.forgetHost(before)
	}
	if h != nil {
		h.endpoints++
		e.host, e.hostEntry = h, hostEntry{contender: e}
	}
}

// hasHost reports whether a host is the endpoint's.
func (e *endpoint) hasHost(name string) bool {
	if e.host == nil {
		return name == "" || e.env.config.MaxInFlightPerHost <= 0
	}
	return e.host.name == name
}

// learn updates the endpoint with the result of a request.
func (e *endpoint) learn(now time.Duration, f *activeRequest, r *Result) {
	if r.Latency <= 0 {
		r.Latency = now - f.start
	}
	e.slots.measure(min(r.Latency, f.timeout))
	if e.autoTimeout != nil {
		e.autoTimeout.learn(now, f.timeout, r)
	}
	if !r.BreakerFailure {
		e.failures = 0
	} else {
		if e.failures == 0 {
			e.rate.remember(now)
		}
		e.failures++
	}
	e.recent.count(now, r)
	e.report(now, f, r.signal(), r.Reason)
	if r.DeferFor > 0 {
		until := addTime(now, r.DeferFor)
		e.block(now, until, min(rampTime, max(until-now, time.Second)), webhook.ReasonRetryAfter)
	}
	if r.PaceFor > 0 {
		e.block(now, addTime(now, r.PaceFor), 0, webhook.ReasonRateLimitHint)
	}
}

// report passes the result of a request to the circuit breaker.
func (e *endpoint) report(now time.Duration, f *activeRequest, s signal, reason retry.Reason) {
	before := e.breaker.state
	e.breaker.report(now, f, s, reason)
	e.followCircuit(now, before)
}

// followCircuit adapts the rate and the reservations after a change of the circuit.
func (e *endpoint) followCircuit(now time.Duration, before webhook.CircuitState) {
	b := &e.breaker
	if b.state == before {
		return
	}
	e.lock.changes = append(e.lock.changes, webhook.CircuitChange{EndpointID: e.id, From: before, To: b.state, At: e.env.time(now), Why: b.why()})
	switch b.state {
	case webhook.CircuitOpen:
		e.invalidate(never)
		e.rate.startRampUp(b.until+e.probeTime(now), rampTime) // if the next probe succeeds
	case webhook.CircuitClosed:
		if now > e.rate.ramp.from+lateRecovery {
			e.invalidate(never)
		}
		e.rate.startRampUp(now, rampTime)
	case webhook.CircuitHalfOpen:
	}
}

// endCooldown lets the next request be the probe.
func (e *endpoint) endCooldown(now time.Duration) {
	if e.breaker.endCooldown(now) {
		e.rate.skipRampUp(now)
	}
}

// blocked returns until when no request is admitted, and why; the past when requests are.
func (e *endpoint) blocked(now time.Duration) (time.Duration, string) {
	switch {
	case e.blockedUntil > now:
		return e.blockedUntil, e.blockedFor
	case e.breaker.state != webhook.CircuitClosed:
		return max(e.nextProbe(now), now+1), webhook.ReasonCircuitOpen
	}
	return 0, ""
}

// block admits no request before until, and lets the rate ramp up then if over is not zero.
func (e *endpoint) block(now, until, over time.Duration, reason string) {
	until = min(until, now+maxBlock)
	if until <= e.blockedUntil || until <= now {
		return
	}
	if over > 0 {
		e.rate.remember(now)
	}
	end := until
	if over > lateness && e.blockedUntil <= now { // reservations within the ramp-up are for a higher rate
		end = addTime(until, over)
	}
	e.blockedUntil, e.blockedFor = until, reason
	e.invalidate(end)
	if over > 0 {
		e.rate.startRampUp(until, over)
	}
}

// nextProbe is when the next probe should come while the circuit is not closed: the first at
// the end of the cooldown, others when the one before is likely to be over.
func (e *endpoint) nextProbe(now time.Duration) time.Duration {
	b, probe := &e.breaker, e.probeTime(now)
	if b.probe != nil {
		return max(b.probe.start+probe, now)
	}
	from := max(b.until, e.host.nextFree(now))
	if n := len(e.reservations.all); n > 0 && e.reservations.all[n-1].at >= b.until {
		from += probe
	}
	return from
}

// probeTime is how long a probe is expected to take.
func (e *endpoint) probeTime(now time.Duration) time.Duration {
	return min(max(e.slots.smoothed(now)*3/2, minProbe), e.timeout(now, 0))
}

// probeDue reports whether a request may be admitted as the probe, but for the host's slots.
func (e *endpoint) probeDue(now time.Duration) bool {
	return e.breaker.probeDue(now) && !e.slots.full() && e.rate.conforms(now)
}

// timeout is how long a request may take that is admitted now.
func (e *endpoint) timeout(now time.Duration, retries int) time.Duration {
	if e.autoTimeout == nil {
		return e.limits.Timeout
	}
	return e.autoTimeout.timeout(now, retries)
}

// unresponsive reports whether the circuit is not closed, or requests take long.
func (e *endpoint) unresponsive(now time.Duration) bool {
	return e.breaker.state != webhook.CircuitClosed || e.slots.smoothed(now) > slowLatency
}

// invalidate lets waiting deliveries ask again, and drops the reservations for times before the given one.
func (e *endpoint) invalidate(before time.Duration) {
	for _, w := range e.waiters {
		e.reservations.remove(w.delivery)
		close(w.ready)
	}
	e.waiters = nil
	e.reservations.expire(before)
}

// expire drops reservations of deliveries that did not come.
func (e *endpoint) expire(now time.Duration) { e.reservations.expire(now - lateness) }

// idle reports whether the endpoint can be forgotten without an effect on a delivery.
func (e *endpoint) idle(now time.Duration) bool {
	e.expire(now)
	return len(e.slots.inFlight) == 0 && e.inside == 0 && len(e.reservations.all) == 0
}

// forgettable reports whether the endpoint has no state that still matters.
func (e *endpoint) forgettable(now time.Duration) bool {
	return now >= e.blockedUntil && e.autoTimeout.empty(now) && e.recent.redirects == nil &&
		(e.breaker.state == webhook.CircuitClosed || now > e.breaker.until+idleAfter)
}

func (e *endpoint) unlock() { e.lock.unlock(e.env.config.OnCircuitChange) }
