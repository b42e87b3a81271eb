package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// failingStreak is how many requests in a row must have failed for an endpoint to be unhealthy.
	failingStreak = 2
	// releaseAhead is for how long the released deliveries of a backlog last: a released delivery that
	// is not admitted soon costs a timer, and is released in vain when the receiver fails again.
	releaseAhead = 10 * time.Second
)

// Forecast is what a new delivery of an endpoint has to expect.
type Forecast struct {
	Wait      time.Duration // until it would be admitted
	Unhealthy bool          // the last two requests failed, the latency is above 1 s, or the circuit is not closed
}

// Forecast predicts the next admission. It is zero for an endpoint of which nothing is known. A
// request that delivers ends a row of failures, time does not.
func (c *Controller) Forecast(id webhook.EndpointID) (f Forecast) {
	c.look(id, func(e *endpoint, now time.Duration) {
		at, _ := e.earliest(now)
		f = Forecast{Wait: max(0, at-now), Unhealthy: e.recent.failureStreak >= failingStreak || e.unresponsive(now)}
	})
	return f
}

// UsualRate is how many requests per second an endpoint was sent before its last outage, or lately if that is more; 0 if
// nothing is known.
func (c *Controller) UsualRate(id webhook.EndpointID) (rate float64) {
	c.look(id, func(e *endpoint, now time.Duration) { rate = max(e.rate.earlier, e.rate.measured(now)) })
	return rate
}

// LikelySlow reports whether an attempt is likely to take long: the latency is above 1 s, it would be
// deferred, or the circuit is not closed.
func (c *Controller) LikelySlow(id webhook.EndpointID) (slow bool) {
	c.look(id, func(e *endpoint, now time.Duration) {
		at, _ := e.earliest(now)
		slow = e.unresponsive(now) || at > now+e.patience()
	})
	return slow
}

// Near reports whether a delivery is likely to be admitted when it asks now, at once or while it waits in Acquire, and the timeout that its
// permit would have. It is false for an endpoint of which nothing is known.
func (c *Controller) Near(r Request) (timeout time.Duration, near bool) {
	c.look(r.Endpoint, func(e *endpoint, now time.Duration) {
		at, _ := e.earliest(now)
		if own := e.reservations.of(r.Delivery); own != nil {
			until, _ := e.blocked(now)
			at = min(at, max(own.at, until))
		}
		timeout, near = e.timeout(now, r.Retries), at <= now+e.patience()
	})
	return timeout, near
}

// OwnLanes are all lanes: a Controller admits the requests to all endpoints.
func (*Controller) OwnLanes() []int {
	lanes := make([]int, webhook.Lanes)
	for i := range lanes {
		lanes[i] = i
	}
	return lanes
}

// Admits is true: a Controller admits the requests to all endpoints.
func (*Controller) Admits(webhook.EndpointID) bool { return true }

// Releasable is how many held deliveries of an endpoint are to be released now: as many as may be
// admitted within the next ten seconds, less those that have a reservation already, and always a
// few, so that a receiver that is back is found; never more than the tenant may reserve.
func (c *Controller) Releasable(id webhook.EndpointID) int {
	n, tenant := unknownReserved, ""
	c.look(id, func(e *endpoint, now time.Duration) {
		ahead := int(e.effectiveRate(now) * releaseAhead.Seconds())
		n, tenant = min(max(ahead, alwaysReserved), e.mayReserve())-len(e.reservations.all), e.reservations.tenant.Value()
	})
	return max(0, min(n, c.reserved.shares.Free(tenant)))
}
