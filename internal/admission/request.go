package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Reason says why somebody could not go at once.
type Reason uint8

// The reasons.
const (
	ReasonNone          Reason = iota // it could
	ReasonInFlight                    // all places are taken, or the receiver is too slow for more
	ReasonHost                        // all places of its host are taken, or its share of them
	ReasonRate                        // the endpoint's rate, or the slope after its recovery
	ReasonCircuitOpen                 // the receiver is given a rest
	ReasonRetryAfter                  // it answered 429 with Retry-After
	ReasonRateLimitHint               // it said that nothing remains of its rate limit
	ReasonBacklog                     // what is reserved already fills the next minutes
)

// String is the reason as a metric label and in the API.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return ""
	case ReasonInFlight:
		return "in_flight"
	case ReasonHost:
		return "host_in_flight"
	case ReasonRate:
		return "rate"
	case ReasonCircuitOpen:
		return "circuit_open"
	case ReasonRetryAfter:
		return "retry_after"
	case ReasonRateLimitHint:
		return "rate_limit_hint"
	case ReasonBacklog:
		return "backlog"
	}
	return "unknown"
}

// Decision answers a Request. It is exactly one of three: a permit (Permit is set), a wait
// (Until is set), or a hold (neither is set).
type Decision struct {
	Permit *Permit   // to send now; it has to be ended
	Until  time.Time // of a wait: when to ask again
	Reason Reason    // of a wait or a hold
}

// Deferred reports whether the delivery has to ask again at Until.
func (d Decision) Deferred() bool { return d.Permit == nil && !d.Until.IsZero() }

// Held reports whether too many are before the delivery: it waits until it is released, see
// Controller.Releasable.
func (d Decision) Held() bool { return d.Permit == nil && d.Until.IsZero() }

// Limits are what an endpoint allows. They rule from the Acquire that brings them.
type Limits struct {
	MaxInFlight int                    // requests at a time; defaults to webhook.DefaultMaxInFlight
	Rate        float64                // requests per second; defaults to webhook.DefaultRateLimit
	Timeout     time.Duration          // after which a request ends by itself; defaults to webhook.DefaultTimeout
	AutoTimeout bool                   // Timeout does not count: see Permit.Timeout
	Breaker     webhook.CircuitBreaker // off unless enabled; absent settings are the defaults
}

// LimitsOf are the limits that an endpoint's settings say.
func LimitsOf(ep *webhook.Endpoint) Limits {
	return Limits{MaxInFlight: ep.MaxInFlight, Rate: ep.RateLimit, Timeout: ep.Timeout, AutoTimeout: ep.AutoTimeout, Breaker: ep.CircuitBreaker}
}

// withDefaults fills in what is absent.
func (l Limits) withDefaults() Limits {
	if l.MaxInFlight <= 0 {
		l.MaxInFlight = webhook.DefaultMaxInFlight
	}
	if !(l.Rate > 0) { // NaN too
		l.Rate = webhook.DefaultRateLimit
	}
	if l.Timeout <= 0 {
		l.Timeout = webhook.DefaultTimeout
	}
	if !l.Breaker.Enabled {
		l.Breaker = webhook.CircuitBreaker{}
		return l
	}
	initial := webhook.DefaultCircuitBreaker()
	if l.Breaker.Window <= 0 {
		l.Breaker.Window = initial.Window
	}
	if l.Breaker.MinRequests <= 0 {
		l.Breaker.MinRequests = initial.MinRequests
	}
	if !(l.Breaker.FailureRatio > 0) {
		l.Breaker.FailureRatio = initial.FailureRatio
	}
	if l.Breaker.Cooldown <= 0 {
		l.Breaker.Cooldown = initial.Cooldown
	}
	return l
}

// Request is somebody who wants to send.
type Request struct {
	Endpoint webhook.EndpointID
	Delivery webhook.DeliveryID // reservations are kept by it
	Limits   Limits
	Host     string // where the request goes, see Controller.HostOf; "" where hosts are not capped
	Retries  int    // attempts that were made before: they lengthen an automatic timeout
	Probe    bool   // a person has asked for it: where the circuit is open it is the probe, if none is under way

	// Released says that the delivery was held and has been released. The last minute
	// before the horizon is kept for those: while there is a backlog, who comes later
	// waits behind it.
	Released bool
}
