package webhook

import (
	"time"

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
	MaxHeaderBytes     = 4 << 10 // name and value of one header
	MaxEventTypes      = 100
)

// EndpointState says whether an endpoint is being sent to.
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

// CircuitBreaker is when an endpoint in trouble is given a rest.
type CircuitBreaker struct {
	Enabled      bool
	Window       time.Duration // over which failures are counted
	MinRequests  int           // below this many the ratio says nothing
	FailureRatio float64       // in (0, 1]
	Cooldown     time.Duration // from opening to the first probe
}

// DefaultCircuitBreaker is 20 requests in 60 s of which half fail, and 30 s of rest.
func DefaultCircuitBreaker() CircuitBreaker {
	return CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 20, FailureRatio: 0.5, Cooldown: 30 * time.Second}
}

// AutoDisable is when an endpoint that only fails is switched off.
type AutoDisable struct {
	Enabled         bool
	Exhausted24h    int // deliveries given up within 24 h without a success
	PermanentStreak int // permanent failures in a row
}

// DefaultAutoDisable is ten given up within 24 h, or 100 permanent failures in a row.
func DefaultAutoDisable() AutoDisable {
	return AutoDisable{Enabled: true, Exhausted24h: 10, PermanentStreak: 100}
}

// Endpoint is a URL of a tenant and how it wants to be treated.
type Endpoint struct {
	ID             EndpointID
	TenantID       string
	URL            string
	EventTypes     []string // filters; ["*"] is everything
	Description    string
	State          EndpointState
	StateReason    string // "" while active
	Headers        map[string]string
	Auth           Auth
	Certificate    ClientCertificate
	Timeout        time.Duration // one request, from DNS to the last byte
	AutoTimeout    bool          // it follows the receiver's answers; Timeout is the default then, for as long as few are known
	MaxInFlight    int
	RateLimit      float64         // requests per second
	RetryPolicy    retry.Policy    // its own; zero: it has none, see PolicyInForce
	Inherited      InheritedPolicy // what is in force then
	CircuitBreaker CircuitBreaker
	AutoDisable    AutoDisable
	AutoReplay     bool
	Signature      string // a scheme: SignatureV1, SignatureV1a or SignatureHex
	PayloadFormat  PayloadFormat
	PublicKey      string // whpk_…: of the newest secret, "" when that is an HMAC key
	Metadata       map[string]string
	Version        int64 // grows with every change: kept connections and caches are bound to it
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// PolicySource says whose retry policy an endpoint follows.
type PolicySource uint8

// The sources. A policy that nobody has set is the installation's.
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

// InheritedPolicy is the retry policy of an endpoint that has none of its own. The store
// sets it; the zero value is retry.Default, of the installation.
type InheritedPolicy struct {
	Policy retry.Policy
	Source PolicySource
}

// PolicyInForce is the retry policy that the endpoint's deliveries follow, and whose it
// is: the endpoint's own, else its tenant's, else the installation's.
func (e *Endpoint) PolicyInForce() (retry.Policy, PolicySource) {
	switch {
	case !e.RetryPolicy.IsZero():
		return e.RetryPolicy, PolicyOfEndpoint
	case !e.Inherited.Policy.IsZero():
		return e.Inherited.Policy, e.Inherited.Source
	}
	return retry.Default(), PolicyOfInstallation
}

// Wants reports whether the endpoint asked for an event type.
func (e *Endpoint) Wants(eventType string) bool {
	for _, filter := range e.EventTypes {
		if FilterMatches(filter, eventType) {
			return true
		}
	}
	return false
}

// Target is an endpoint with what a request to it needs: its signing secrets,
// newest first. It lives in memory only.
type Target struct {
	Endpoint

	Secrets []string // whsec_… or whsk_…
}
