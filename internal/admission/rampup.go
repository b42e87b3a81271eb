package admission

import (
	"math"
	"time"
)

const (
	// After an outage the rate rises evenly from rampFirst to rampLast times the earlier rate
	// within rampTime, then doubles every rampDouble until it is the configured rate.
	rampTime   = time.Minute
	rampFirst  = 0.1
	rampLast   = 1.5
	rampDouble = 15 * time.Second
	rampFloor  = 1.0 // requests per second, at least
	// catchUp bounds deliveries that are late for their reservations, as after a stall of this
	// process, and arrive together with those that are not: all together are admitted at no
	// more than catchUp × rampLast times the earlier rate, which is less than twice that rate,
	// or catchUp times the ramp-up's rate when that is more.
	catchUp = 1.25
)

// rampUp is how the rate rises after an outage.
type rampUp struct {
	active bool
	from   time.Duration
	over   time.Duration
	base   float64 // the rate before the outage, per second
}

// rate is the highest rate that is allowed at a time.
func (r *rampUp) rate(at time.Duration) float64 {
	t := float64(max(0, at-r.from)) / float64(r.over)
	if t < 1 {
		return max(rampFloor, r.base*(rampFirst+(rampLast-rampFirst)*t))
	}
	beyond := float64(at-r.from-r.over) / float64(rampDouble)
	return max(rampFloor, r.base*rampLast) * math.Exp2(min(beyond, 64))
}

// leastInterval is the least time between two requests, also of late ones. It is never more
// than a late delivery can wait for.
func (r *rampUp) leastInterval(at time.Duration) time.Duration {
	return min(intervalOf(max(r.base*rampLast, r.rate(at))*catchUp), shortPatience)
}

// intervalOf is the time between two requests at a rate, rounded up.
func intervalOf(rate float64) time.Duration {
	return max(1, time.Duration(math.Ceil(float64(time.Second)/rate)))
}
