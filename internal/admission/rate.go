package admission

import (
	"math"
	"time"
)

const (
	// burst is how much earlier than its exact time a request may go (the limit of
	// GCRA, ITU-T I.371 Annex A), so that a high rate needs no timer per request: in
	// any stretch t of time at most rate × (t + burst) + 1 requests go by rate alone.
	burst = 10 * time.Millisecond

	// unknownLatency stands for the latency of an endpoint that has not answered yet.
	// With it, 50 who come at once still wait less than shortPatience for ten places.
	unknownLatency = 50 * time.Millisecond
	// smoothing is the weight of a new latency, that of RFC 6298 section 2.
	smoothing = 8
	// agesSeen is how many requests in flight count with their age, the oldest first:
	// the 17th would change the estimate by little more than a hundredth.
	agesSeen = 16
	// spare is the part of the places' time (one in so many) that is left free by
	// reservations, for those who are late and those who take longer: without it they
	// would find all places taken again and again.
	spare = 20
	// rateMemory is the time constant of the smoothed rate.
	rateMemory = time.Minute

	// After a recovery the rate rises evenly from rampFirst to rampLast times the
	// earlier one within rampTime, then doubles every rampDouble until it is the
	// configured one.
	rampTime   = time.Minute
	rampFirst  = 0.1
	rampLast   = 1.5
	rampDouble = 15 * time.Second
	rampFloor  = 1.0 // requests per second: no slope is flatter
	// catchUp bounds those who are late to their turns on a slope and arrive together with
	// those who are not, as after a standstill: all together go at most at so many times
	// rampLast, which is less than twice the earlier rate, or the slope's when that is more.
	catchUp = 1.25
)

// interval is the time between two requests at a rate, rounded up.
func interval(rate float64) time.Duration {
	return max(1, time.Duration(math.Ceil(float64(time.Second)/rate)))
}

// ramp is the slope after a recovery.
type ramp struct {
	on   bool
	from time.Duration
	over time.Duration
	base float64 // the rate before the trouble, per second
}

// rate is the most that is allowed at a time.
func (r *ramp) rate(at time.Duration) float64 {
	t := float64(max(0, at-r.from)) / float64(r.over)
	if t < 1 {
		return max(rampFloor, r.base*(rampFirst+(rampLast-rampFirst)*t))
	}
	late := float64(at-r.from-r.over) / float64(rampDouble)
	return max(rampFloor, r.base*rampLast) * math.Exp2(min(late, 64))
}

// pace is the least time between two requests, whoever's turn it is: never more than
// somebody who is late can wait.
func (r *ramp) pace(at time.Duration) time.Duration {
	return min(interval(max(r.base*rampLast, r.rate(at))*catchUp), shortPatience)
}

// tempo is how far apart requests are to be, as known at one moment.
type tempo struct {
	rate   time.Duration // by the configured rate
	places time.Duration // by the latency and the places, with a little to spare
	reason Reason        // why places are not nearer to each other
	ramp   *ramp
}

func (t tempo) gap(at time.Duration) time.Duration {
	gap := max(t.rate, t.places)
	if t.ramp.on {
		gap = max(gap, interval(t.ramp.rate(at)))
	}
	return gap
}

// after is the first time, not before at, that keeps the distance to an earlier one.
func (t tempo) after(at, before time.Duration) time.Duration { return max(at, before+t.gap(before)) }

// tempo returns the present one.
func (e *endpoint) tempo(now time.Duration) tempo {
	turnover, reason := e.turnover(now), ReasonInFlight
	if share := e.host.share(now, e); share > turnover {
		turnover, reason = share, ReasonHost
	}
	return tempo{rate: e.every, places: turnover + turnover/spare, reason: reason, ramp: &e.ramp}
}

// turnover is how often a place becomes free when all are taken.
func (e *endpoint) turnover(now time.Duration) time.Duration {
	return e.smoothed(now) / time.Duration(e.limits.MaxInFlight)
}

// smoothed is the latency as far as it is known: that of ended requests, and the age
// of those that take longer already.
func (e *endpoint) smoothed(now time.Duration) time.Duration {
	latency, known := e.latency, e.known
	for p, n := e.oldest, 0; p != nil && n < agesSeen; p, n = p.next, n+1 {
		age := now - p.start
		if age <= latency {
			break
		}
		if known {
			latency += (age - latency) / smoothing
		} else {
			latency, known = age, true
		}
	}
	if !e.known {
		latency = max(latency, unknownLatency)
	}
	return latency
}

// measured takes the latency of an ended request into account.
func (e *endpoint) measured(latency time.Duration) {
	latency = max(latency, 0)
	if e.known {
		e.latency += (latency - e.latency) / smoothing
	} else {
		e.latency, e.known = latency, true
	}
}

// nextFree is when the next place is likely to become free. A request that is
// overdue is expected to take as long again, twice over, and to end by its timeout.
func (e *endpoint) nextFree(now time.Duration) time.Duration {
	if e.oldest == nil {
		return now
	}
	start := e.oldest.start
	if e.known && start+e.latency > now {
		return start + e.latency
	}
	next := now + 2*(now-start-e.latency)
	if end := start + e.oldest.timeout; end > now {
		next = min(next, end)
	} else { // which should not be
		next = now + 2*(now-end)
	}
	return max(next, now+1)
}

// charge counts a request whose turn was at at.
func (e *endpoint) charge(at, now time.Duration) {
	gap := e.every
	if e.ramp.on {
		rate := e.ramp.rate(now)
		gap = max(gap, interval(rate))
		e.ramp.on = rate < e.limits.Rate
		e.paced = max(e.paced, now) + e.ramp.pace(now)
		e.wake(now)
	}
	e.next = max(e.next, at) + gap

	e.sent = e.sent*math.Exp(-float64(now-e.sentAt)/float64(rateMemory)) + 1/rateMemory.Seconds()
	e.sentAt = now
}

// conforms says whether the rate allows a request now.
func (e *endpoint) conforms(now time.Duration) bool { return e.next-burst <= now && e.paces(now) }

// paces says whether somebody whose turn is past may go now.
func (e *endpoint) paces(now time.Duration) bool { return e.paced-burst <= now }

// recentRate is the smoothed rate of requests per second.
func (e *endpoint) recentRate(now time.Duration) float64 {
	seen := max(now-e.born, time.Second)
	share := 1 - math.Exp(-float64(seen)/float64(rateMemory)) // of the memory that is filled
	return e.sent * math.Exp(-float64(now-e.sentAt)/float64(rateMemory)) / share
}

// rememberRate keeps the rate of before a trouble, unless the slope after an earlier
// one is still being climbed.
func (e *endpoint) rememberRate(now time.Duration) {
	if !e.ramp.on {
		e.earlier = e.recentRate(now)
	}
}

// slope begins one at from.
func (e *endpoint) slope(from, over time.Duration) {
	e.ramp = ramp{on: true, from: from, over: over, base: e.earlier}
}

// effectiveRate is how many requests per second may go now.
func (e *endpoint) effectiveRate(now time.Duration) float64 {
	if until, _ := e.barred(now); until > now {
		return 0
	}
	return float64(time.Second) / float64(e.tempo(now).gap(now))
}
