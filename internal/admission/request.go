package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Request asks for the permission to send one request to an endpoint.
type Request struct {
	Endpoint webhook.EndpointID
	Tenant   string             // of the endpoint; tenants share the reservations
	Delivery webhook.DeliveryID // reservations are kept by it
	Limits   Limits
	URL      string // of the endpoint, for the limit per host
	Host     string // defaults to that of URL, see Controller.HostOf
	Retries  int    // attempts made before; they lengthen an automatic timeout
	Forced   bool   // a person asked for it: if the circuit is open and no probe is under way, it is the probe

	// Since is from when on this controller admits the requests to the endpoint; zero if no other did before. The rate counts
	// as if a request had been sent then.
	Since time.Time

	// Released reports that the delivery was held and has been released. The last part before
	// the horizon is reserved for such deliveries, so that a backlog goes before deliveries
	// that come later.
	Released bool
}

// RequestFor returns the request to send a delivery's next attempt to an endpoint.
func RequestFor(ep *webhook.Endpoint, delivery webhook.DeliveryID) Request {
	return Request{Endpoint: ep.ID, Tenant: ep.TenantID, Delivery: delivery, Limits: LimitsOf(ep), URL: ep.URL}
}

// Limits are what an endpoint allows. They hold from the Request that brings them.
type Limits struct {
	MaxInFlight int                    // requests at a time; defaults to webhook.DefaultMaxInFlight
	Rate        float64                // requests per second; defaults to webhook.DefaultRateLimit
	Timeout     time.Duration          // of one request; defaults to webhook.DefaultTimeout
	AutoTimeout bool                   // Timeout is ignored: see Permit.Timeout
	Breaker     webhook.CircuitBreaker // off unless enabled; absent settings get the defaults
}

// LimitsOf returns the limits that an endpoint is configured with.
func LimitsOf(ep *webhook.Endpoint) Limits {
	return Limits{MaxInFlight: ep.MaxInFlight, Rate: ep.RateLimit, Timeout: ep.Timeout, AutoTimeout: ep.AutoTimeout, Breaker: ep.CircuitBreaker}
}

// LongestTimeout is how long a request may take at most.
func (l Limits) LongestTimeout() time.Duration {
	if l.AutoTimeout {
		return webhook.MaxTimeout
	}
	return l.withDefaults().Timeout
}

// withDefaults fills in what is absent or impossible.
func (l Limits) withDefaults() Limits {
	l.MaxInFlight = positive(l.MaxInFlight, webhook.DefaultMaxInFlight)
	l.Rate = positive(l.Rate, webhook.DefaultRateLimit)
	l.Timeout = positive(l.Timeout, webhook.DefaultTimeout)
	if !l.Breaker.Enabled {
		l.Breaker = webhook.CircuitBreaker{}
		return l
	}
	initial := webhook.DefaultCircuitBreaker()
	l.Breaker.Window = positive(l.Breaker.Window, initial.Window)
	l.Breaker.MinRequests = positive(l.Breaker.MinRequests, initial.MinRequests)
	l.Breaker.FailureRatio = positive(l.Breaker.FailureRatio, initial.FailureRatio)
	l.Breaker.Cooldown = positive(l.Breaker.Cooldown, initial.Cooldown)
	return l
}

// positive is the value, or another one if it is not positive, or NaN.
func positive[T int | float64 | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}
