package admission

import (
	"math"
	"time"
)

// What several parts rely on.
const (
	// shortPatience is how near a reservation must be for its delivery to wait inside Acquire,
	// and longPatience how near at a quick endpoint.
	shortPatience, longPatience = 250 * time.Millisecond, 600 * time.Millisecond
	// minDeferral is the least time for which a delivery is deferred: durable timers are no
	// finer.
	minDeferral = 1200 * time.Millisecond
	// lateness is how late a delivery may come for its reservation; then it is lost.
	lateness = time.Second
	// A delivery that finds no slot at its reservation gets another one within secondChance, at
	// half the usual distance to others: where many come in vain, they do not come together.
	secondChance = 10 * time.Second
	// smoothing is the weight of a new measurement, that of RFC 6298 section 2.
	smoothing = 8
	// idleAfter is how long an idle endpoint is kept.
	idleAfter = 5 * time.Minute

	never = time.Duration(math.MaxInt64)
)

// addTime is at+d without overflow.
func addTime(at, d time.Duration) time.Duration { return at + min(d, never-at) }
