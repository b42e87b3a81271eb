package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// minProbe is how long a probe is expected to take at least.
	minProbe = 100 * time.Millisecond
	// slowLatency is the smoothed latency above which a receiver is slow.
	slowLatency = time.Second
)

// receiver is what an endpoint allows, and what its answers have shown. Its times are since the controller was made.
type receiver struct {
	limits  Limits
	slots   concurrency
	rate    rateLimit
	breaker breaker

	blockedUntil time.Duration // by what it asked for
	blockedFor   string
	failures     int // that the breaker counts, in a row
	recent       recent
	autoTimeout  *autoTimeout // nil unless the timeout follows the latencies
}

// configure sets the limits.
func (r *receiver) configure(now time.Duration, limits Limits) {
	r.limits = limits
	r.slots.limit = limits.MaxInFlight
	r.rate.set(now, limits.Rate)
	if !limits.AutoTimeout {
		r.autoTimeout = nil
	} else if r.autoTimeout == nil {
		r.autoTimeout = &autoTimeout{}
	}
	r.breaker.configure(now, limits.Breaker)
}

// observe takes the result of a request into account, but for the circuit.
func (r *receiver) observe(now time.Duration, f *activeRequest, result *Result) {
	if result.Latency <= 0 {
		result.Latency = now - f.start
	}
	r.slots.measure(min(result.Latency, f.timeout))
	if r.autoTimeout != nil {
		r.autoTimeout.learn(now, f.timeout, result)
	}
	if !result.BreakerFailure {
		r.failures = 0
	} else {
		if r.failures == 0 {
			r.rate.remember(now)
		}
		r.failures++
	}
	r.recent.count(now, result)
}

// endCooldown lets the next request be the probe.
func (r *receiver) endCooldown(now time.Duration) {
	if r.breaker.endCooldown(now) {
		r.rate.skipRampUp(now)
	}
}

// probeTime is how long a probe is expected to take.
func (r *receiver) probeTime(now time.Duration) time.Duration {
	return min(max(r.slots.smoothed(now)*3/2, minProbe), r.timeout(now, 0))
}

// probeDue reports whether a request may be admitted as the probe, but for the host's slots.
func (r *receiver) probeDue(now time.Duration) bool {
	return r.breaker.probeDue(now) && !r.slots.full() && r.rate.conforms(now)
}

// timeout is how long a request may take that is admitted now.
func (r *receiver) timeout(now time.Duration, retries int) time.Duration {
	if r.autoTimeout == nil {
		return r.limits.Timeout
	}
	return r.autoTimeout.timeout(now, retries)
}

// shut reports whether no request is admitted, but for a probe.
func (r *receiver) shut(now time.Duration) bool {
	return r.blockedUntil > now || r.breaker.state != webhook.CircuitClosed
}

// unresponsive reports whether the circuit is not closed, or requests take long.
func (r *receiver) unresponsive(now time.Duration) bool {
	return r.breaker.state != webhook.CircuitClosed || r.slots.smoothed(now) > slowLatency
}

// rampingUp reports whether it is the ramp-up after an outage that bounds the rate.
func (r *receiver) rampingUp(now time.Duration) bool {
	return !r.shut(now) && r.rate.ramp.active && r.rate.ramp.rate(now) < r.limits.Rate
}

// forgettable reports whether it has no state that still matters.
func (r *receiver) forgettable(now time.Duration) bool {
	return now >= r.blockedUntil && r.autoTimeout.empty(now) && r.recent.redirects == nil && !r.recent.failed(now) &&
		(r.breaker.state == webhook.CircuitClosed || now > r.breaker.until+idleAfter)
}
