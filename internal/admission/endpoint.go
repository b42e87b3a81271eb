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
	// A circuit that closes by more than lateRecovery later than expected invalidates the
	// reservations, which are for the expected time.
	lateRecovery = 10 * time.Second
)

// endpoint is one endpoint: its schedule, and what is needed to change it.
type endpoint struct {
	schedule

	id   webhook.EndpointID
	lock *lock // guards it

	inside   int  // in Acquire, and will look at the endpoint again
	timerSet bool // see admitLater
	dropped  bool // forgotten while deliveries waited, see Controller.Drop

	usedAt time.Duration
	use    *list.Element // of its shard
}

func newEndpoint(id webhook.EndpointID, env *environment, l *lock, now time.Duration) *endpoint {
	e := &endpoint{id: id, lock: l}
	e.env = env
	e.rate.born, e.rate.sentAt = now, now
	e.breaker.state, e.breaker.random = webhook.CircuitClosed, env.config.Random
	e.reservations.counts, e.reservations.tenant = &env.reserved, unique.Make("")
	return e
}

// apply sets the limits; false if they are unchanged.
func (e *endpoint) apply(now time.Duration, limits Limits) bool {
	if limits == e.limits {
		return false
	}
	rate, circuit := e.limits.Rate, e.breaker.state
	e.configure(now, limits)
	if limits.Rate < rate {
		e.invalidate(never) // reservations were for a higher rate; each delivery gets another
	}
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
	e.observe(now, f, r)
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

// invalidate lets waiting deliveries ask again, and drops the reservations for times before the given one.
func (e *endpoint) invalidate(before time.Duration) {
	for _, w := range e.waiters {
		e.reservations.remove(w.delivery)
		close(w.ready)
	}
	e.waiters = nil
	e.reservations.expire(before)
}

// idle reports whether the endpoint can be forgotten without an effect on a delivery.
func (e *endpoint) idle(now time.Duration) bool {
	e.expire(now)
	return len(e.slots.inFlight) == 0 && e.inside == 0 && len(e.reservations.all) == 0
}

func (e *endpoint) unlock() { e.lock.unlock(e.env.config.OnCircuitChange) }
