package admission

import (
	"slices"
	"time"
)

// earliest is when a newcomer may go, and what it waits for: now means at once.
func (e *endpoint) earliest(now time.Duration) (time.Duration, Reason) {
	if until, reason := e.barred(now); until > now {
		return until, reason
	}
	tempo := e.tempo(now)
	from, reason := max(now, e.next-burst), ReasonRate
	if !e.paces(now) { // on a slope, after all who wait
		from = max(from, e.paced-burst+time.Duration(len(e.waiters))*e.ramp.pace(now))
	}
	if !e.hasPlace(now, never) {
		from, reason = max(from, e.nextFree(now)), ReasonInFlight
		if e.inFlight < e.limits.MaxInFlight { // it is kept for somebody
			from = max(from, now+tempo.places)
		}
	} else if tempo.places >= tempo.gap(now) {
		reason = tempo.reason
	}
	if turn := e.host.turn(now, e); turn > from {
		from, reason = turn, ReasonHost
	}
	if n := len(e.waiters); n > 0 {
		from = max(from, e.waiters[n-1].at)
	}
	return e.line.free(from, tempo), reason
}

// mayWait is how many newcomers may wait inside Acquire. Where it is known that each will
// wait for a moment only, it is better than a timer for as many as come in that time.
func (e *endpoint) mayWait() int {
	switch {
	case !e.known:
		return unknownWaiters
	case e.quick() && e.shard.gate.inside.Load() < quickWaiters:
		return quickWaiters
	}
	return maxWaiters
}

// mayReserve is how many reservations there may be in all.
func (e *endpoint) mayReserve() int {
	switch {
	case e.relapsed():
		return pioneers
	case !e.known:
		return max(unknownReserved, 4*e.limits.MaxInFlight)
	}
	return maxReserved
}

// free says that a newcomer goes at once, and that nobody waits.
func (e *endpoint) free(now time.Duration) bool {
	return len(e.line.slots) == 0 && e.inFlight < e.limits.MaxInFlight && e.circuit.state == CircuitClosed &&
		e.barredUntil <= now && e.conforms(now) && e.host.open(e)
}

// decide answers somebody who wants to go: with a pass, a wait, or an admission
// that says when to come back.
func (e *endpoint) decide(now time.Duration, en *Request) (Decision, *waiter) {
	if e.free(now) {
		return Decision{Permit: e.admit(now, now, en.Retries)}, nil
	}
	e.expire(now)
	e.pump(now) // a place that was kept for somebody who did not come is the next one's
	mine, holds := e.line.when[en.Delivery]
	if holds && e.waits(en.Delivery) {
		return e.deferred(now+minDeferral, ReasonInFlight), nil // it is here already
	}
	if until, reason := e.barred(now); until > now {
		return e.decideBarred(now, until, reason, en)
	}
	if holds && mine <= now+e.patience() {
		if len(e.waiters) < maxReturningWaiters {
			return e.wait(now, mine, en, true)
		}
		e.line.remove(en.Delivery)
		holds = false
	}
	at, reason := e.earliest(now)
	if !e.host.open(e) {
		e.host.contend(e)
	}
	switch {
	case at <= now:
		e.line.remove(en.Delivery)
		return Decision{Permit: e.admit(now, now, en.Retries)}, nil
	case at <= now+e.patience() && len(e.waiters) < e.mayWait():
		e.line.remove(en.Delivery)
		e.line.add(at, en.Delivery)
		return e.wait(now, at, en, false)
	case holds: // it came early
		return e.deferred(mine, reason), nil
	}
	return e.book(now, at, reason, en), nil
}

// decideBarred answers somebody who comes while nobody goes, but for a probe.
func (e *endpoint) decideBarred(now, until time.Duration, reason Reason, en *Request) (Decision, *waiter) {
	if reason == ReasonCircuitOpen {
		if en.Probe {
			e.endRest(now)
		}
		if p := e.tryProbe(now, en.Retries); p != nil {
			e.line.remove(en.Delivery)
			return Decision{Permit: p}, nil
		}
	}
	mine, holds := e.line.when[en.Delivery]
	switch {
	case holds && mine >= max(until, now+minDeferral):
		return e.deferred(mine, reason), nil
	case holds && reason == ReasonCircuitOpen && mine <= now+shortPatience && !e.host.hasPlace(now, e) && e.probeDue(now):
		return e.wait(now, mine, en, true) // for the host's next place, as the probe
	}
	e.line.remove(en.Delivery)
	return e.book(now, until, reason, en), nil
}

// reach is how far ahead somebody may get a reservation. After a relapse trust has to
// grow first: were the circuit to open again, all who have one would come for nothing.
func (e *endpoint) reach(now time.Duration, released bool) time.Duration {
	reach := horizonFirst
	if released {
		reach = horizon
	}
	if c := &e.circuit; c.state == CircuitClosed && c.cooldown > e.limits.Breaker.Cooldown && now-c.closed < calm {
		reach = min(reach, rampTime/2+2*(now-c.closed))
	}
	return reach
}

// book reserves the first time that is free, not before from and worth a timer.
func (e *endpoint) book(now, from time.Duration, reason Reason, en *Request) Decision {
	n := len(e.line.slots)
	if n >= e.mayReserve() || n >= pioneers && e.line.total.Load() >= e.shard.gate.maxReserved {
		return Decision{Reason: ReasonBacklog}
	}
	last := now + e.reach(now, en.Released)
	at := e.line.free(max(from, now+minDeferral), e.tempo(now))
	if at > last && n >= pioneers {
		return Decision{Reason: ReasonBacklog}
	}
	e.line.add(at, en.Delivery)
	return e.deferred(at, reason)
}

// bookAgain reserves for somebody whose turn came while no place was free: before
// those who have not had theirs.
func (e *endpoint) bookAgain(now time.Duration, en *Request) Decision {
	from, reason := e.earliest(now)
	if until, _ := e.barred(now); until <= now && len(e.line.slots) < e.mayReserve() {
		tempo := e.tempo(now)
		tempo.places /= 2
		at, found := e.line.freeBefore(max(e.nextFree(now), e.host.turnOfMissed(now, e), e.next-burst, now+minDeferral), now+soon, tempo)
		if found {
			e.line.add(at, en.Delivery)
			if e.paces(now) && e.inFlight < e.limits.MaxInFlight && !e.host.hasPlace(now, e) { // it was the host's places that were taken
				e.host.miss(now, at, e)
			}
			return e.deferred(at, reason)
		}
	}
	return e.book(now, from, reason, en)
}

func (e *endpoint) deferred(at time.Duration, reason Reason) Decision {
	return Decision{Reason: reason, Until: e.shard.gate.base.Add(at)}
}

// wait puts somebody whose slot has that time into the line of those inside Acquire.
func (e *endpoint) wait(now, at time.Duration, en *Request, returned bool) (Decision, *waiter) {
	w := &waiter{
		delivery: en.Delivery, retries: en.Retries, at: at, deadline: max(now+e.patience(), at+waitMargin), returned: returned,
		ready: make(chan struct{}),
	}
	i := len(e.waiters)
	for i > 0 && e.waiters[i-1].at > at {
		i--
	}
	e.waiters = slices.Insert(e.waiters, i, w)
	e.line.of(w.delivery).inside = true
	e.pump(now)
	if w.permit != nil {
		return Decision{Permit: w.permit}, nil
	}
	e.wake(now)
	e.inside++
	e.shard.gate.inside.Add(1)
	return Decision{}, w
}

// pump lets in who is first in the line, as long as somebody may go.
func (e *endpoint) pump(now time.Duration) {
	if e.host == nil {
		for e.ready(now) {
			if !e.letIn(now) {
				return
			}
		}
		return
	}
	e.host.enqueue(now, e)
	e.host.pump(now)
	if e.queued {
		e.host.contend(e)
	}
}

// ready says whether the first in the line may go, as far as the endpoint is concerned.
func (e *endpoint) ready(now time.Duration) bool {
	if len(e.waiters) == 0 {
		return false
	}
	if e.circuit.state != CircuitClosed {
		return e.probeDue(now)
	}
	// Whose turn has come has paid for it. Before its turn somebody goes when the
	// places are faster than predicted, never faster than the rate.
	w := e.waiters[0]
	return e.paces(now) && (w.at <= now || e.conforms(now)) && e.hasPlace(now, w.at)
}

// wake has those who wait looked at again when it is only the pace that keeps them.
func (e *endpoint) wake(now time.Duration) {
	if e.waking || len(e.waiters) == 0 || e.paces(now) {
		return
	}
	e.waking = true
	time.AfterFunc(e.paced-burst-now, func() {
		e.shard.mu.Lock()
		defer e.shard.unlock()
		now := e.shard.gate.now()
		e.waking = false
		e.pump(now)
		e.wake(now)
	})
}

// letIn lets in who is first in the line; false when its circuit says no.
func (e *endpoint) letIn(now time.Duration) bool {
	w := e.waiters[0]
	if e.circuit.state != CircuitClosed {
		w.permit = e.tryProbe(now, w.retries)
		if w.permit == nil {
			return false
		}
		e.leave(w)
	} else {
		e.leave(w)
		w.permit = e.admit(now, min(w.at, now), w.retries)
	}
	close(w.ready)
	return true
}

// leave takes a waiter and its slot out of the line.
func (e *endpoint) leave(w *waiter) {
	if i := slices.Index(e.waiters, w); i >= 0 {
		e.waiters = slices.Delete(e.waiters, i, i+1)
		e.line.remove(w.delivery)
	}
	if len(e.waiters) == 0 {
		e.waiters = nil
	}
}

// admit makes a request one in flight. Its turn was at turn.
func (e *endpoint) admit(now, turn time.Duration, retries int) *Permit {
	p := &Permit{endpoint: e, host: e.host, start: now, timeout: e.timeout(now, retries), epoch: e.circuit.epoch, prev: e.newest}
	if e.newest != nil {
		e.newest.next = p
	} else {
		e.oldest = p
	}
	e.newest = p
	e.inFlight++
	e.host.take(now, e)
	e.charge(turn, now)
	return p
}
