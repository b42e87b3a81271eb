package admission

import (
	"math"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// shortPatience is how far away a turn may be to be awaited inside Acquire, and
	// longPatience how far at a quick endpoint.
	shortPatience, longPatience = 250 * time.Millisecond, 600 * time.Millisecond
	// quickLatency is the most that a quick endpoint takes to answer, and quickTurnover how
	// often, at least, one of its places becomes free and its rate allows a request.
	quickLatency, quickTurnover = 50 * time.Millisecond, 5 * time.Millisecond
	// waitMargin is how much later than its turn a waiter may be let in: a place may
	// become free a little later than predicted.
	waitMargin = 100 * time.Millisecond
	// minDeferral is the least time after which somebody is told to come back: durable
	// timers are no finer.
	minDeferral = 1200 * time.Millisecond
	// horizon is how far ahead reservations go. Who was not held before leaves the last
	// minute of it to those who were.
	horizon      = 5 * time.Minute
	horizonFirst = 4 * time.Minute
	// soon is how near the next turn is of somebody who came at its own and found all
	// places taken. It may take turns twice as close as others, but no nearer: where
	// much has gone wrong, that is no herd.
	soon = 10 * time.Second
	// lateness is how late somebody may come to a reservation; then it is lost.
	lateness = time.Second

	// unknownWaiters is how many newcomers wait inside Acquire for an endpoint that has not
	// answered yet: the width of a shared workflow is 50. maxWaiters is that for one that
	// is known, 2,000 per second for as long as shortPatience, and quickWaiters for a quick
	// one, 3,400 per second for as long as longPatience, while there are no more than that
	// inside for all endpoints together. Of those who come back, maxWaiters more may wait
	// than ever of newcomers: they were told to.
	unknownWaiters      = 64
	maxWaiters          = 512
	quickWaiters        = 2048
	maxReturningWaiters = quickWaiters + maxWaiters
	// maxReserved is how many reservations one endpoint may have.
	maxReserved = 10_000
	// unknownReserved is that for an endpoint that has not answered yet: it may hang.
	unknownReserved = 100
	// pioneers may always have one, however far away it is: so an endpoint is tried
	// again without anybody being released.
	pioneers = 4

	// slowTurnover is from when on a place is kept for somebody who is late. Where
	// places become free faster, it gets one while it waits, and to keep one for each
	// would leave most of them empty.
	slowTurnover = shortPatience

	never = time.Duration(math.MaxInt64)
)

// endpoint is what the gate knows of one endpoint. Times are since the gate was
// made. Its shard's lock guards it.
type endpoint struct {
	id     webhook.EndpointID
	shard  *shard
	limits Limits
	every  time.Duration // between two requests at the configured rate

	// Requests in flight, in the order of their start.
	inFlight       int
	oldest, newest *Permit

	waiters []*waiter // by their turn; each has a slot in the line too
	inside  int       // those in Acquire who will look again, turned away or not
	line    timeline

	host   *host // nil where there is no cap
	queued bool  // it takes its turn there
	missed int   // turns, since it had a place there
	rival  int   // 1 + its index among the host's rivals; 0: it is none of them

	next    time.Duration // when the rate allows the next request, exactly
	paced   time.Duration // on a slope: before when nobody goes, whoever's turn it was
	waking  bool          // a timer is set for paced
	latency time.Duration // smoothed, of ended requests
	known   bool          // there was one
	ramp    ramp
	sent    float64 // smoothed rate per second, as of sentAt
	sentAt  time.Duration
	born    time.Duration
	earlier float64 // the rate before the last trouble

	barredUntil  time.Duration // what the receiver asked for
	barredReason Reason
	circuit      circuit
	troubles     int // in a row
	lastTrouble  retry.Reason
	recent       recent
	answers      *answers // nil unless the timeout follows them

	touched        time.Duration
	younger, older *endpoint // in the order of use
}

// waiter is somebody inside Acquire.
type waiter struct {
	delivery webhook.DeliveryID
	retries  int
	at       time.Duration // its turn
	deadline time.Duration
	returned bool          // it was told to come
	ready    chan struct{} // closed when there is a pass, or when it is turned away
	permit   *Permit
}

// apply makes limits those of the endpoint.
func (e *endpoint) apply(now time.Duration, limits Limits) {
	if e.every != 0 && limits == e.limits {
		return
	}
	before := e.limits
	first := e.every == 0
	e.limits, e.every = limits, interval(limits.Rate)
	if !limits.AutoTimeout {
		e.answers = nil
	} else if e.answers == nil {
		e.answers = &answers{}
	}
	if first {
		return
	}
	e.next = min(e.next, now+burst+e.every)
	if limits.Rate < before.Rate {
		e.turnAway(never) // what is reserved was for a faster rate; each gets another
	}
	if limits.Breaker != before.Breaker {
		switch {
		case !limits.Breaker.Enabled && e.circuit.state != CircuitClosed:
			e.recover(now)
		case e.circuit.state == CircuitClosed:
			e.circuit.breaker = nil // counts from the beginning; one that is open stays so
		}
	}
	e.pump(now)
}

// expire drops what is reserved for those who did not come.
func (e *endpoint) expire(now time.Duration) { e.line.expire(now - lateness) }

// hasPlace says whether a place is free for somebody whose turn is at at, counting
// those kept for others whose turn came before and who may still come.
func (e *endpoint) hasPlace(now, at time.Duration) bool {
	return e.inFlight < e.limits.MaxInFlight && e.inFlight+e.expected(now, at) < e.limits.MaxInFlight
}

// expected is how many are late, but not too late, for a turn before the given one.
func (e *endpoint) expected(now, before time.Duration) int {
	if len(e.line.slots) == 0 || e.turnover(now) <= slowTurnover {
		return 0
	}
	n := 0
	for _, s := range e.line.slots[e.line.index(now-lateness):] {
		if s.at > now || s.at >= before {
			break
		}
		if !s.inside {
			n++
		}
	}
	return n
}

// waits says whether the delivery is inside Acquire.
func (e *endpoint) waits(delivery webhook.DeliveryID) bool {
	s := e.line.of(delivery)
	return s != nil && s.inside
}

// quick says whether the endpoint, by the requests that have ended, answers at once and takes
// many.
func (e *endpoint) quick() bool {
	return e.known && e.latency <= min(quickLatency, quickTurnover*time.Duration(e.limits.MaxInFlight)) &&
		e.every <= quickTurnover && e.host.usualShare(e) <= quickTurnover &&
		!e.ramp.on && e.recent.failureStreak == 0
}

// patience is how far away a turn may be to be awaited inside Acquire. At an endpoint that is
// quick a turn is far away when this process was busy for a moment, and comes sooner than
// predicted when it is not: a durable timer would take longer.
func (e *endpoint) patience() time.Duration {
	if e.quick() {
		return longPatience
	}
	return shortPatience
}

// barred returns until when nobody goes, and why; the past when somebody may.
func (e *endpoint) barred(now time.Duration) (time.Duration, Reason) {
	switch {
	case e.barredUntil > now:
		return e.barredUntil, e.barredReason
	case e.circuit.state != CircuitClosed:
		return max(e.afterProbe(now), now+1), ReasonCircuitOpen
	}
	return 0, ReasonNone
}

// bar lets nobody go before until, and rise slowly then if over is not zero.
func (e *endpoint) bar(now, until, over time.Duration, reason Reason) {
	until = min(until, now+maxBar)
	if until <= e.barredUntil || until <= now {
		return
	}
	if over > 0 {
		e.rememberRate(now)
	}
	end := until
	if over > lateness && e.barredUntil <= now { // what is reserved within the slope is for a faster rate
		end = addTime(until, over)
	}
	e.barredUntil, e.barredReason = until, reason
	e.turnAway(end)
	if over > 0 {
		e.slope(until, over)
	}
}

// turnAway sends the waiters back to the beginning, and drops what is reserved for
// a time before before.
func (e *endpoint) turnAway(before time.Duration) {
	for _, w := range e.waiters {
		e.line.remove(w.delivery)
		close(w.ready)
	}
	e.waiters = nil
	e.line.expire(before)
}

// idle says whether nothing would be missed if the endpoint were forgotten.
func (e *endpoint) idle(now time.Duration) bool {
	e.expire(now)
	return e.inFlight == 0 && e.inside == 0 && len(e.line.slots) == 0
}

// settled says whether there is no trouble to remember either, and nothing that the
// timeout follows.
func (e *endpoint) settled(now time.Duration) bool {
	return now >= e.barredUntil && e.answers.count(now) == 0 && (e.circuit.state == CircuitClosed || now > e.circuit.until+idleAfter)
}
