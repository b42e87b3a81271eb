package admission

import (
	"math"
	"time"
)

const (
	// burst is how much earlier than its exact time a request may be admitted (the limit of
	// GCRA, ITU-T I.371 Annex A), so that a high rate needs no timer per request: in any
	// stretch t of time at most rate × (t + burst) + 1 requests conform.
	burst = 10 * time.Millisecond
	// rateMemory is the time constant of the measured rate.
	rateMemory = time.Minute
)

// rateLimit is the rate limit of an endpoint: the configured rate by GCRA, and the ramp-up after
// an outage. It measures how many requests are sent, too.
type rateLimit struct {
	interval time.Duration // between two requests at the configured rate
	next     time.Duration // when the next request conforms, exactly
	ramp     rampUp
	nextLate time.Duration // during a ramp-up: when the next request may go, whatever its reservation

	admitted lastSecond // by when they were admitted
	begun    lastSecond // by when they really began: between the two lies a query, which may take long

	sent    float64 // measured rate per second, as of sentAt
	sentAt  time.Duration
	born    time.Duration
	earlier float64 // the rate before the last outage
}

// set changes the configured rate.
func (r *rateLimit) set(now time.Duration, rate float64) {
	r.interval = intervalOf(rate)
	r.next = min(r.next, now+burst+r.interval)
	r.admitted.set(rate)
	r.begun.set(rate)
}

// conforms reports whether the rate allows a request now.
func (r *rateLimit) conforms(now time.Duration) bool {
	return r.next-burst <= now && r.allowsLate(now)
}

// allowsLate reports whether the rate allows a request whose reservation is past: it was charged
// when the reservation was made. Only a ramp-up may still delay it, or others that are late, too: see lastSecond.
func (r *rateLimit) allowsLate(now time.Duration) bool { return r.lateFrom(now) <= now }

// lateFrom is when the rate allows a request whose reservation is past; now or earlier: at once.
func (r *rateLimit) lateFrom(now time.Duration) time.Duration {
	return max(r.nextLate-burst, r.admitted.next(now))
}

// charge counts a request that is admitted now and whose reservation was for at. The configured
// rate is given again, to find out when the ramp-up has reached it.
func (r *rateLimit) charge(now, at time.Duration, configured float64) {
	interval := r.interval
	if r.ramp.active {
		rate := r.ramp.rate(now)
		interval = max(interval, intervalOf(rate))
		r.ramp.active = rate < configured
		r.nextLate = max(r.nextLate, now) + r.ramp.leastInterval(now)
	}
	r.next = max(r.next, at) + interval
	r.admitted.add(now)

	r.sent = r.sent*math.Exp(-float64(now-r.sentAt)/float64(rateMemory)) + 1/rateMemory.Seconds()
	r.sentAt = now
}

// adopt counts a request that another controller has admitted, and that may begin now.
func (r *rateLimit) adopt(now time.Duration) {
	r.admitted.add(now)
	r.begun.add(r.begun.next(now))
}

// recent is how long ago the requests began that still count, unless they are too many to be told one by one.
func (r *rateLimit) recent(now time.Duration) []time.Duration {
	if r.begun.group > 1 {
		return nil
	}
	return r.begun.within(now)
}

// count counts requests of another controller, by how long before a time they began.
func (r *rateLimit) count(then time.Duration, ages []time.Duration) {
	for _, age := range ages {
		r.admitted.add(then - age)
		r.begun.add(max(r.begun.next(then-age), then-age))
	}
}

// leastInterval is the least time between two requests that are late: that of a ramp-up, or the configured one.
func (r *rateLimit) leastInterval(now time.Duration) time.Duration {
	if r.ramp.active {
		return r.ramp.leastInterval(now)
	}
	return r.interval
}

// measured is the rate of requests per second that were sent lately.
func (r *rateLimit) measured(now time.Duration) float64 {
	seen := max(now-r.born, time.Second)
	share := 1 - math.Exp(-float64(seen)/float64(rateMemory)) // of the memory that is filled
	return r.sent * math.Exp(-float64(now-r.sentAt)/float64(rateMemory)) / share
}

// remember keeps the rate before an outage, unless the ramp-up after an earlier one goes on.
func (r *rateLimit) remember(now time.Duration) {
	if !r.ramp.active {
		r.earlier = r.measured(now)
	}
}

// startRampUp lets the rate rise from a time on, over a time.
func (r *rateLimit) startRampUp(from, over time.Duration) {
	r.ramp = rampUp{active: true, from: from, over: over, base: r.earlier}
}

// skipRampUp lets the next request go as far as the ramp-up is concerned. The configured rate
// still holds.
func (r *rateLimit) skipRampUp(now time.Duration) {
	r.next, r.nextLate = min(r.next, r.sentAt+r.interval), min(r.nextLate, now)
}
