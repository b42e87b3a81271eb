package webhook

import (
	"time"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/retry"
)

// Defaults and limits of an endpoint.
const (
	DefaultTimeout     = 15 * time.Second
	MaxTimeout         = 30 * time.Second
	MinTimeout         = time.Second
	DefaultMaxInFlight = 10
	MaxMaxInFlight     = 1000
	DefaultRateLimit   = 10_000 // requests per second
	MaxRateLimit       = 10_000
	MaxHeaders         = 20
	MaxHeaderBytes     = 4 << 10 // name and value of one header field
	MaxEventTypes      = 100
	MaxURLBytes        = 2048
)

// EndpointState is the state of an endpoint. Only an active endpoint receives requests.
type EndpointState uint8

// The states of an endpoint.
const (
	EndpointActive EndpointState = iota
	EndpointPaused
	EndpointDisabled
)

// String is the state's name in the API.
func (s EndpointState) String() string {
	switch s {
	case EndpointActive:
		return "active"
	case EndpointPaused:
		return "paused"
	case EndpointDisabled:
		return "disabled"
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (s EndpointState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// CircuitBreaker is the configuration of an endpoint's circuit breaker.
type CircuitBreaker struct {
	Enabled      bool
	Window       time.Duration // over which failures are counted
	MinRequests  int           // with fewer requests the ratio is not evaluated
	FailureRatio float64       // in (0, 1]
	Cooldown     time.Duration // from the opening to the first probe
}

// DefaultCircuitBreaker opens after half of at least 20 requests within 60 s failed, for 30 s.
func DefaultCircuitBreaker() CircuitBreaker {
	return CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 20, FailureRatio: 0.5, Cooldown: 30 * time.Second}
}

// AutoDisable is the rule that disables an endpoint whose deliveries all fail.
type AutoDisable struct {
	Enabled         bool
	Exhausted24h    int // exhausted deliveries within 24 h without a success
	PermanentStreak int // consecutive permanent failures
}

// DefaultAutoDisable is ten exhausted deliveries within 24 h, or 100 consecutive permanent failures.
func DefaultAutoDisable() AutoDisable {
	return AutoDisable{Enabled: true, Exhausted24h: 10, PermanentStreak: 100}
}

// Endpoint is a URL of a tenant with its delivery settings.
type Endpoint struct {
	ID             EndpointID
	TenantID       string
	URL            string
	EventTypes     []string       // filters; ["*"] matches every event type
	Filter         *filter.Filter // of what its event types match; nil for none
	Ordering       Ordering
	Description    string
	State          EndpointState
	StateReason    string    // why a person or Everpost changed the state; "" if an active endpoint was resumed without a reason
	StateSince     time.Time // when the state was changed last; zero if it never was
	StateBy        string    // who changed it, for people: see Actor.Who
	Headers        map[string]string
	Auth           Auth
	Certificate    ClientCertificate
	Timeout        time.Duration // of one request, from DNS to the last byte
	AutoTimeout    bool          // adapt the timeout to the latency; Timeout is used until enough responses are known
	MaxInFlight    int
	RateLimit      float64         // requests per second
	RetryPolicy    retry.Policy    // the endpoint's own; zero if it has none, see PolicyInForce
	Inherited      InheritedPolicy // used when RetryPolicy is zero
	CircuitBreaker CircuitBreaker
	AutoDisable    AutoDisable
	AutoReplay     bool
	// SuccessStatuses are the redirects that count as delivered, of RedirectStatuses. They are not followed either.
	SuccessStatuses []int
	Signature       string // SignatureV1, SignatureV1a or SignatureHex
	PayloadFormat   PayloadFormat
	TraceContext    bool   // send traceparent, if there are traces
	PublicKey       string // whpk_… of the newest secret; "" if that is an HMAC key
	Metadata        map[string]string
	// Internal: the endpoint of a notification channel. It is hidden from the tenant's endpoints, and its URL is a secret: without its
	// credentials, URL is only the scheme and the host.
	Internal  bool
	Version   int64 // increases with every change; connections and caches are bound to it
	CreatedAt time.Time
	UpdatedAt time.Time
}

// RedirectStatuses are the statuses that SuccessStatuses may hold.
func RedirectStatuses() []int { return []int{301, 302, 303, 307, 308} }

// PolicySource is where an endpoint's retry policy comes from.
type PolicySource uint8

// The sources. Without a policy of the endpoint or its tenant, the installation's applies.
const (
	PolicyOfInstallation PolicySource = iota
	PolicyOfTenant
	PolicyOfEndpoint
)

// String is the source's name in the API.
func (s PolicySource) String() string {
	switch s {
	case PolicyOfEndpoint:
		return "endpoint"
	case PolicyOfTenant:
		return "tenant"
	case PolicyOfInstallation:
		return "installation"
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (s PolicySource) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// InheritedPolicy is the retry policy of an endpoint without its own. The store sets it.
// The zero value stands for retry.Default, the installation's policy.
type InheritedPolicy struct {
	Policy retry.Policy
	Source PolicySource
}

// PolicyInForce returns the retry policy of the endpoint's deliveries and its source: the
// endpoint's own policy, else its tenant's, else the installation's.
func (e *Endpoint) PolicyInForce() (retry.Policy, PolicySource) {
	switch {
	case !e.RetryPolicy.IsZero():
		return e.RetryPolicy, PolicyOfEndpoint
	case !e.Inherited.Policy.IsZero():
		return e.Inherited.Policy, e.Inherited.Source
	}
	return retry.Default(), PolicyOfInstallation
}

// Wants reports whether one of the endpoint's filters matches an event type.
func (e *Endpoint) Wants(eventType string) bool {
	for _, filter := range e.EventTypes {
		if FilterMatches(filter, eventType) {
			return true
		}
	}
	return false
}

// DeletedEndpoint is what is known of an endpoint that was deleted.
type DeletedEndpoint struct {
	ID         EndpointID
	URL        string
	EventTypes []string
	DeletedAt  time.Time
}

// Target is an endpoint with its signing secrets, newest first. It is never stored.
type Target struct {
	Endpoint

	Secrets []string // whsec_… or whsk_…
}
