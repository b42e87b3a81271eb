package admission

import (
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// maxBar is the longest that a receiver's answer bars its endpoint.
const maxBar = time.Hour

// Permit is the right to send one request. It ends exactly once, with Done or Cancel;
// what is said after that is ignored.
type Permit struct {
	endpoint   *endpoint
	host       *host // whose place it has; nil where there is no cap
	start      time.Duration
	timeout    time.Duration
	epoch      uint32
	ended      bool
	prev, next *Permit // in flight, by start
}

// Result is what became of a request.
type Result struct {
	Latency        time.Duration
	Number         int          // of the attempt; from 2 on it is a retry
	Reason         retry.Reason // of the attempt
	Delivered      bool
	Answered       bool // a status was read
	BreakerFailure bool // the receiver is in trouble: all that the circuit breaker counts
	TimedOut       bool // there was a connection, and no whole answer in time

	// DeferFor is how long nobody is to come, 0 when that was not asked for. At most an
	// hour counts.
	DeferFor time.Duration
	// PaceFor is how long it takes until the receiver's rate limit, of which nothing
	// remains, is reset; as DeferFor.
	PaceFor time.Duration
}

// ResultOf is the result that an attempt's outcome says.
//
// Retry-After defers the endpoint only with a 429: another status says when this
// delivery is welcome, not that the others are not.
func ResultOf(outcome retry.Outcome, number int, latency time.Duration) Result {
	r := Result{
		Latency: latency, Number: number, Reason: outcome.Reason,
		Delivered:      outcome.Decision == retry.Delivered,
		Answered:       outcome.Status != 0,
		BreakerFailure: outcome.Trouble,
		TimedOut:       timedOut(outcome.Reason),
		PaceFor:        outcome.PaceFor,
	}
	if outcome.Status == http.StatusTooManyRequests {
		r.DeferFor = outcome.RetryAfter
	}
	return r
}

// verdict is what the circuit breaker is told. A resolver that fails or a token server
// that refuses says nothing about how the receiver is: it neither opens a circuit nor
// closes one.
func (r *Result) verdict() error {
	switch {
	case r.BreakerFailure:
		return errTrouble
	case r.Answered || r.Delivered:
		return nil
	}
	return errUnheard
}

// Done ends a pass whose request was made.
func (p *Permit) Done(r Result) {
	p.end(func(e *endpoint, p *Permit, now time.Duration) { e.learn(now, p, &r) })
}

// learn takes in what an ended request tells about its receiver.
func (e *endpoint) learn(now time.Duration, p *Permit, r *Result) {
	if r.Latency <= 0 {
		r.Latency = now - p.start
	}
	e.measured(r.Latency)
	if e.answers != nil {
		e.answers.learn(now, p, r)
	}
	if r.BreakerFailure {
		if e.troubles == 0 {
			e.rememberRate(now)
		}
		e.troubles++
		e.lastTrouble = r.Reason
	} else {
		e.troubles = 0
	}
	e.recent.count(now, r)
	e.judge(now, p, r.verdict())
	if r.DeferFor > 0 {
		until := addTime(now, r.DeferFor)
		e.bar(now, until, min(rampTime, max(until-now, time.Second)), ReasonRetryAfter)
	}
	if r.PaceFor > 0 {
		e.bar(now, addTime(now, r.PaceFor), 0, ReasonRateLimitHint)
	}
}

// Cancel ends a pass with which nothing was sent, or nothing was learnt of the
// receiver because of a failure of our own.
func (p *Permit) Cancel() { p.end(unsent) }

func unsent(e *endpoint, p *Permit, now time.Duration) { e.judge(now, p, errUnheard) }

func (p *Permit) end(follow func(*endpoint, *Permit, time.Duration)) {
	s := p.endpoint.shard
	s.mu.Lock()
	defer s.unlock()
	if !p.ended {
		now := s.gate.now()
		p.endpoint.finish(p, now, follow)
		s.used(p.endpoint, now)
	}
}

// finish takes a request out of flight, does what follows, and lets the next ones go.
func (e *endpoint) finish(p *Permit, now time.Duration, follow func(*endpoint, *Permit, time.Duration)) {
	p.ended = true
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		e.oldest = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		e.newest = p.prev
	}
	p.prev, p.next = nil, nil
	e.inFlight--
	follow(e, p, now)
	p.host.leave(now, now-p.start)
	e.pump(now)
}

// addTime is at+d without overflow.
func addTime(at, d time.Duration) time.Duration { return at + min(d, never-at) }
