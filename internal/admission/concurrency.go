package admission

import (
	"slices"
	"time"
)

const (
	// unknownLatency stands for the latency of an endpoint that has not answered yet. With it,
	// 50 deliveries that come at once still wait less than shortPatience for ten slots.
	unknownLatency = 50 * time.Millisecond
	// agesSeen is how many requests in flight count with their age, the oldest first: the 17th
	// would change the estimate by little more than a hundredth.
	agesSeen = 16
	// smoothingDown is smoothing for a latency below the estimate: a receiver that has hung and is quick
	// again gets what waits for it sooner. An estimate that is too low costs a few deferrals.
	smoothingDown = smoothing / 2
)

// activeRequest is a request that is under way.
type activeRequest struct {
	start, timeout time.Duration
	epoch          uint32 // of the circuit breaker
	lost           bool   // see Permit.Lose
}

// concurrency bounds the requests of an endpoint that are in flight, and estimates from them
// how often a slot becomes free.
type concurrency struct {
	limit    int
	inFlight []*activeRequest // in the order of their start

	latency time.Duration // smoothed, of ended requests
	known   bool          // there was one
}

// full reports whether all slots are taken.
func (c *concurrency) full() bool { return len(c.inFlight) >= c.limit }

// add takes a slot for a request, or reports that none is free. This is where max_in_flight is
// enforced: Acquire and TryAcquire give no permit without it. Adopt counts a request that runs already.
func (c *concurrency) add(f *activeRequest) bool {
	if c.full() {
		return false
	}
	c.inFlight = append(c.inFlight, f)
	return true
}

// adopt takes a slot for a request that is under way already, whether one is free or not.
func (c *concurrency) adopt(f *activeRequest) {
	i := len(c.inFlight)
	for i > 0 && c.inFlight[i-1].start > f.start {
		i--
	}
	c.inFlight = slices.Insert(c.inFlight, i, f)
}

// remove gives the slot of a request back.
func (c *concurrency) remove(f *activeRequest) {
	i := slices.Index(c.inFlight, f)
	c.inFlight = slices.Delete(c.inFlight, i, i+1)
}

// measure takes the latency of an ended request into account.
func (c *concurrency) measure(latency time.Duration) {
	latency = max(latency, 0)
	switch {
	case !c.known:
		c.latency, c.known = latency, true
	case latency < c.latency:
		c.latency += (latency - c.latency) / smoothingDown
	default:
		c.latency += (latency - c.latency) / smoothing
	}
}

// smoothed is the estimated latency: that of ended requests, and the age of requests in flight
// that take longer already. None counts for more than its timeout: a process that stood still, or
// one that does not answer, says nothing of the endpoint.
func (c *concurrency) smoothed(now time.Duration) time.Duration {
	latency, known := c.latency, c.known
	for _, f := range c.inFlight[:min(len(c.inFlight), agesSeen)] {
		age := now - f.start
		if age <= latency {
			break
		}
		if age = min(age, f.timeout); f.lost || age <= latency {
			continue
		}
		if known {
			latency += (age - latency) / smoothing
		} else {
			latency, known = age, true
		}
	}
	if !c.known {
		latency = max(latency, unknownLatency)
	}
	return latency
}

// interval is the mean time between two slots that become free when all are taken.
func (c *concurrency) interval(now time.Duration) time.Duration {
	return c.smoothed(now) / time.Duration(c.limit)
}

// nextFree is when the next slot is likely to become free. A request that is overdue is expected
// to take as long again, twice over, and to end by its timeout.
func (c *concurrency) nextFree(now time.Duration) time.Duration {
	if len(c.inFlight) == 0 {
		return now
	}
	oldest := c.inFlight[0]
	start := oldest.start
	if c.known && start+c.latency > now {
		return start + c.latency
	}
	next := now + 2*(now-start-c.latency)
	if end := start + oldest.timeout; end > now {
		next = min(next, end)
	} else { // which should not be
		next = now + 2*(now-end)
	}
	return max(next, now+1)
}
