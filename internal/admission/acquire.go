package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// decide answers a request: with a decision, or with a waiter that waits for one.
func (e *endpoint) decide(now time.Duration, req *Request) (Decision, *waiter) {
	if p := e.admitAtOnce(now, req); p != nil {
		return Decision{Permit: p}, nil
	}
	e.expire(now)
	e.admitWaiters(now)
	own := e.reservations.of(req.Delivery)
	if own != nil && own.waiting {
		return e.deferred(now+minDeferral, webhook.ReasonInFlight), nil // it is here already
	}
	if until, reason := e.blocked(now); until > now {
		return e.decideBlocked(now, until, reason, req)
	}
	if own != nil && own.at <= now+e.patience() && len(e.waiters) < maxReturningWaiters {
		return e.wait(now, own.at, req, true)
	}
	at, reason := e.earliest(now)
	if !e.host.open(&e.turn) {
		e.host.join(&e.turn)
	}
	switch {
	case at <= now:
		e.reservations.remove(req.Delivery)
		if p := e.admit(now, now, req.Retries); p != nil {
			return Decision{Permit: p}, nil
		}
	case at <= now+e.patience() && len(e.waiters) < e.mayWait():
		e.reservations.remove(req.Delivery)
		e.reservations.add(at, req.Delivery)
		return e.wait(now, at, req, false)
	case own != nil && own.at > now+e.patience(): // it came early
		return e.deferred(own.at, reason), nil
	}
	e.reservations.remove(req.Delivery)
	return e.reserve(now, at, reason, req), nil
}

// decideBlocked answers a request while none is admitted, but for a probe.
func (e *endpoint) decideBlocked(now, until time.Duration, reason string, req *Request) (Decision, *waiter) {
	if reason == webhook.ReasonCircuitOpen {
		if req.Probe {
			e.endCooldown(now)
		}
		if e.probeDue(now) && e.host.mayTake(now, &e.turn) {
			if p := e.admit(now, now, req.Retries); p != nil {
				e.reservations.remove(req.Delivery)
				return Decision{Permit: p}, nil
			}
		}
	}
	own := e.reservations.of(req.Delivery)
	switch {
	case own != nil && own.at >= max(until, now+minDeferral):
		return e.deferred(own.at, reason), nil
	case own != nil && reason == webhook.ReasonCircuitOpen && own.at <= now+shortPatience && e.probeDue(now):
		return e.wait(now, own.at, req, true) // for the host's next slot, as the probe
	}
	e.reservations.remove(req.Delivery)
	return e.reserve(now, until, reason, req), nil
}

// reserve reserves the first time that is free, not before from and worth a timer.
func (e *endpoint) reserve(now, from time.Duration, reason string, req *Request) Decision {
	n := len(e.reservations.all)
	if n >= e.mayReserve() || n >= alwaysReserved && e.env.reserved.Load() >= int64(e.env.config.MaxReserved) {
		return Decision{Reason: webhook.ReasonBacklog}
	}
	at := e.reservations.free(max(from, now+minDeferral), e.pacing(now))
	if at > now+e.reach(now, req.Released) && n >= alwaysReserved {
		return Decision{Reason: webhook.ReasonBacklog}
	}
	e.reservations.add(at, req.Delivery)
	return e.deferred(at, reason)
}

// reserveAgain reserves for a delivery that came at its reservation while no slot was free:
// before those that have not had theirs.
func (e *endpoint) reserveAgain(now time.Duration, req *Request) Decision {
	if !e.slots.full() && e.rate.allowsLate(now) && !e.host.mayTake(now, &e.turn) {
		e.turn.missed++
	}
	from, reason := e.earliest(now)
	if until, _ := e.blocked(now); until <= now && len(e.reservations.all) < e.mayReserve() {
		p := e.pacing(now)
		p.slots /= 2
		turn := min(e.host.turnAgain(now, &e.turn), now+soon/2)
		least := max(e.slots.nextFree(now), turn, e.rate.next-burst, now+minDeferral)
		if at, found := e.reservations.freeBefore(least, now+soon, p); found {
			e.reservations.add(at, req.Delivery)
			return e.deferred(at, reason)
		}
	}
	return e.reserve(now, from, reason, req)
}

func (e *endpoint) deferred(at time.Duration, reason string) Decision {
	return Decision{Reason: reason, Until: e.env.time(at)}
}
