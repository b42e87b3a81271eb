package admission

import (
	"context"
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
	if !e.host.open(&e.hostEntry) {
		e.host.join(&e.hostEntry)
	}
	switch {
	case at <= now:
		e.reservations.remove(req.Delivery)
		if p := e.admit(now, now, req.Retries); p != nil {
			e.admitLater(now)
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
		if req.Forced {
			e.endCooldown(now)
		}
		if e.probeDue(now) && e.host.mayTake(now, &e.hostEntry) {
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

// await waits until a waiter has a permit, has to ask again, or its time is over.
func (e *endpoint) await(ctx context.Context, w *waiter, req *Request) (Decision, *waiter) {
	now := e.env.now()
	alarm := time.NewTimer(w.at - now)
	if w.at <= now {
		alarm.Reset(w.deadline - now)
	}
	defer alarm.Stop()
	for {
		gone := false
		select {
		case <-w.ready:
		case <-alarm.C:
		case <-ctx.Done():
			gone = true
		}
		decision, next, more := e.awake(w, req, gone)
		if !more {
			return decision, next
		}
		alarm.Reset(max(w.deadline-e.env.now(), 0))
	}
}

// awake finds out why a waiter woke up: it has a permit, or has to ask again, or the time of its
// reservation has come and maybe passed. More reports that it goes on waiting.
func (e *endpoint) awake(w *waiter, req *Request, gone bool) (decision Decision, next *waiter, more bool) {
	e.lock.Lock()
	defer e.unlock()
	now := e.env.now()
	if !gone {
		e.admitWaiters(now)
	}
	called := false
	select {
	case <-w.ready:
		called = true
	default:
		if !gone && now < w.deadline {
			return Decision{}, nil, true
		}
	}
	e.inside--
	e.env.inside.Add(-1)
	switch {
	case gone && w.permit != nil:
		e.finish(now, w.permit, nil)
		e.admitWaiters(now)
	case gone:
		e.leave(w)
		e.admitWaiters(now)
	case w.permit != nil:
		return Decision{Permit: w.permit}, nil, false
	case e.dropped:
	case called && !e.hasHost(req.Host): // the endpoint has another URL by now
	case called:
		decision, next = e.decide(now, req)
		return decision, next, false
	default: // no slot became free in time
		e.leave(w)
		if w.returned {
			return e.reserveAgain(now, req), nil, false
		}
		at, reason := e.earliest(now)
		return e.reserve(now, at, reason, req), nil, false
	}
	return e.deferred(now+minDeferral, webhook.ReasonInFlight), nil, false
}
