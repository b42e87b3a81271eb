package admission

import "time"

// Permit is the right to send one request. It ends once, with Done or Cancel; what is said after
// that is ignored.
type Permit struct {
	flight

	endpoint *endpoint
	host     *host // whose slot it has; nil where there is no limit
	epoch    uint32
	ended    bool
}

// admitAtOnce gives a permit for a new delivery; nil if it has to wait.
func (e *endpoint) admitAtOnce(now time.Duration, req *Request) *Permit {
	if !e.admissible(now) {
		return nil
	}
	return e.admit(now, now, req.Retries)
}

// admit puts a request in flight, whose reservation was for at; nil when the endpoint or its host
// has no free slot. Every permit comes from here. While the circuit is not closed the request is
// the probe.
func (e *endpoint) admit(now, at time.Duration, retries int) *Permit {
	p := &Permit{endpoint: e, host: e.host, epoch: e.breaker.epoch}
	p.start, p.timeout = now, e.timeout(now, retries)
	if e.host.full() || !e.slots.add(&p.flight) || !e.host.add(now, &e.turn) {
		return nil
	}
	if before := e.breaker.state; before != CircuitClosed {
		e.breaker.beginProbe(&p.flight)
		e.followCircuit(now, before)
	}
	e.rate.charge(now, at, e.limits.Rate)
	e.admitLater(now)
	return p
}

// Timeout is how long the request may take: the limits' Timeout; or, when that is automatic, three
// times the p99 of the latencies of the last 15 minutes, 5 to 30 s, and 15 s while fewer than 20
// are known. A retry has twice the time of the attempt before it, up to 30 s.
func (p *Permit) Timeout() time.Duration { return p.timeout }

// Done ends a permit whose request was made.
func (p *Permit) Done(r Result) { p.end(&r) }

// Cancel ends a permit with which nothing was sent, or nothing was learnt of the receiver because
// of a failure of our own.
func (p *Permit) Cancel() { p.end(nil) }

func (p *Permit) end(r *Result) {
	e := p.endpoint
	e.lock.Lock()
	defer e.unlock()
	if !p.ended {
		e.finish(e.env.now(), p, r)
	}
}

// finish takes a request out of flight, learns from its result, if there is one, and admits those
// that wait.
func (e *endpoint) finish(now time.Duration, p *Permit, r *Result) {
	p.ended = true
	e.slots.remove(&p.flight)
	if r != nil {
		e.learn(now, p, r)
	} else {
		e.report(now, p, signalNone, &Result{})
	}
	if p.host != nil {
		p.host.remove(now, now-p.start)
		e.env.forgetHost(p.host)
	}
	e.admitWaiters(now)
}
