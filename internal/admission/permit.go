package admission

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Permit is the right to send one request. It ends once, with Done or Cancel; what is said after
// that is ignored.
type Permit struct {
	activeRequest

	endpoint *endpoint // nil if it is counted elsewhere
	host     *host     // whose slot it has; nil where there is no limit
	ended    bool

	other *otherPermit // nil for one of this controller
}

// otherPermit is a permit that is counted elsewhere.
type otherPermit struct {
	counted     *Permit // of a controller of this process; nil if another process counts it
	usableUntil time.Time
	end         func(*Result)
}

// NewPermit makes a permit that is counted elsewhere: by counted, or by another process if that is nil. A request must begin before
// usableUntil. end is called once, with the result of the request, or nil.
func NewPermit(counted *Permit, timeout time.Duration, usableUntil time.Time, end func(*Result)) *Permit {
	var once sync.Once
	return &Permit{
		activeRequest: activeRequest{timeout: timeout},
		other:         &otherPermit{counted, usableUntil, func(r *Result) { once.Do(func() { end(r) }) }},
	}
}

// Begin is to be called just before the request begins, once; see Again. It waits while the requests that have begun within a second are as many as the
// rate allows: several that were admitted one after another can be delayed together, by a slow query. False: the request may not
// begin, because ctx has ended, or because after a long stall of this process another one may have given the slot away.
func (p *Permit) Begin(ctx context.Context) bool {
	if p.other == nil {
		return p.endpoint.begin(ctx)
	}
	return (p.other.counted == nil || p.other.counted.Begin(ctx)) && time.Now().Before(p.other.usableUntil)
}

// Again asks to send one more request with the permit, in the slot that it has, because the one before has shown nothing of the
// receiver. It counts for the rate, as another Begin. False: the rate does not allow it now, or another process counts; the
// permit has to be ended all the same.
func (p *Permit) Again(ctx context.Context) bool {
	if p.other != nil {
		return p.other.counted != nil && p.other.counted.Again(ctx) && time.Now().Before(p.other.usableUntil)
	}
	return p.endpoint.admitAgain(p) && p.endpoint.begin(ctx)
}

func (e *endpoint) admitAgain(p *Permit) bool {
	e.lock.Lock()
	defer e.unlock()
	now := e.env.now()
	if p.ended || e.dropped || !e.rate.conforms(now) || e.shut(now) && e.breaker.probe != &p.activeRequest {
		return false
	}
	e.rate.charge(now, now, e.limits.Rate)
	return true
}

func (e *endpoint) begin(ctx context.Context) bool {
	e.lock.Lock()
	now := e.env.now()
	at := e.rate.begun.next(now)
	e.rate.begun.add(at)
	e.unlock()
	if at <= now {
		return true
	}
	timer := time.NewTimer(at - now)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Timeout is how long the request may take: the limits' Timeout; or, when that is automatic, three
// times the p99 of the latencies of the last 15 minutes, 5 to 30 s, and 15 s while fewer than 20
// are known. A retry has twice the time of the attempt before it, up to 30 s.
func (p *Permit) Timeout() time.Duration { return p.timeout }

// Decision answers a Request. It is exactly one of three: a permit (Permit is set), a wait
// (Until is set), or a hold (neither is set).
type Decision struct {
	Permit *Permit   // to send now; it has to be ended
	Until  time.Time // of a wait: when to ask again, by Config.Now
	Reason string    // of a wait or a hold: webhook.ReasonRate, for example

	Wait time.Duration // of a wait: from the decision to Until
}

// Deferred reports whether the delivery has to ask again at Until.
func (d Decision) Deferred() bool { return d.Permit == nil && !d.Until.IsZero() }

// Held reports whether too many deliveries are before this one: it waits until it is
// released, see Controller.Releasable.
func (d Decision) Held() bool { return d.Permit == nil && d.Until.IsZero() }

// admitAtOnce gives a permit for a new delivery; nil if it has to wait.
func (e *endpoint) admitAtOnce(now time.Duration, req *Request) *Permit {
	if !e.admissible(now) {
		return nil
	}
	return e.admit(now, now, req.Retries)
}

// admit puts a request in flight, whose reservation was for at; nil when the endpoint or its host
// has no free slot. The permits of Acquire and TryAcquire come from here. While the circuit is not
// closed the request is the probe.
func (e *endpoint) admit(now, at time.Duration, retries int) *Permit {
	p := &Permit{endpoint: e, host: e.host, activeRequest: activeRequest{start: now, timeout: e.timeout(now, retries), epoch: e.breaker.epoch}}
	if e.host.full() || !e.slots.add(&p.activeRequest) || !e.host.add(now, &e.hostEntry) {
		return nil
	}
	if before := e.breaker.state; before != webhook.CircuitClosed {
		e.breaker.beginProbe(&p.activeRequest)
		e.followCircuit(now, before)
	}
	e.rate.charge(now, at, e.limits.Rate)
	return p
}

// finish ends a request and updates the endpoint with its result, if there is one.
func (e *endpoint) finish(now time.Duration, p *Permit, r *Result) {
	p.ended = true
	e.slots.remove(&p.activeRequest)
	if r != nil {
		e.learn(now, &p.activeRequest, r)
	} else {
		e.report(now, &p.activeRequest, signalNone, "")
	}
	if p.host != nil {
		p.host.remove(now, now-p.start)
		e.env.forgetHost(p.host)
	}
}
