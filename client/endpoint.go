package client

import (
	"bytes"
	"encoding/json"
)

// EndpointState is whether an endpoint gets requests.
type EndpointState string

// The states of endpoints.
const (
	EndpointActive   EndpointState = "active"
	EndpointPaused   EndpointState = "paused"   // by hand; its deliveries are held
	EndpointDisabled EndpointState = "disabled" // by Everpost, because it only fails; its deliveries are held
)

// Endpoint is a receiver of a tenant's events.
type Endpoint struct {
	ID              string            `json:"id"`
	TenantID        string            `json:"tenant_id"`
	URL             string            `json:"url"`
	EventTypes      []string          `json:"event_types"`
	Filter          json.RawMessage   `json:"filter"` // null for none
	Ordering        Ordering          `json:"ordering"`
	State           EndpointState     `json:"state"`
	StateReason     *string           `json:"state_reason"`
	StateSince      Time              `json:"state_since"`              // when the state was changed last; null if it never was
	StateBy         *string           `json:"state_by"`                 // who changed it
	Secret          string            `json:"secret,omitempty"`         // in the answer to its creation only
	SecretRead      string            `json:"secret_read,omitempty"`    // how the caller's own secret was read, such as "base64, 24 bytes"
	SecretWarning   string            `json:"secret_warning,omitempty"` // that it may be meant in another encoding
	Signature       string            `json:"signature"`                // "v1", "v1a" or "hex"
	PublicKey       *string           `json:"public_key"`               // verifies signatures of the newest secret; nil unless Signature is "v1a"
	PayloadFormat   string            `json:"payload_format"`           // "raw" or "envelope"
	TraceContext    bool              `json:"trace_context"`
	Timeout         string            `json:"timeout"` // of one request: a duration, or "auto"
	MaxInFlight     int               `json:"max_in_flight"`
	RateLimit       float64           `json:"rate_limit_per_second"`
	RetryPolicy     RetryPolicy       `json:"retry_policy"`        // in force
	PolicySource    string            `json:"retry_policy_source"` // whose it is: "endpoint", "tenant" or "installation"
	CircuitBreaker  CircuitBreaker    `json:"circuit_breaker"`
	AutoDisable     AutoDisable       `json:"auto_disable"`
	SuccessStatuses []int             `json:"success_statuses"` // redirects that count as delivered
	AutoReplay      bool              `json:"auto_replay"`
	Headers         map[string]string `json:"headers"` // values are "[redacted]"
	Auth            *Auth             `json:"auth"`
	Certificate     *Certificate      `json:"client_certificate"`
	Description     string            `json:"description"`
	Metadata        map[string]string `json:"metadata"`
	Warnings        []FieldError      `json:"warnings,omitempty"`  // in answers to changes: of the filter, where the schemas of the event types lack a field
	Condition       *ShortCondition   `json:"condition,omitempty"` // absent in answers to changes, and while it cannot be read
	CreatedAt       Time              `json:"created_at"`
	UpdatedAt       Time              `json:"updated_at"`
}

// Ordering is what an endpoint's deliveries are numbered by: "none", the default, or "number". With "number" each request has the next number of
// its line, which is what the endpoint gets with one ordering key. Nothing waits for another.
type Ordering struct {
	By string `json:"by"`
}

// ProbedEndpoint is an endpoint whose circuit was closed by hand.
type ProbedEndpoint struct {
	Endpoint

	ProbeDeliveryID *string `json:"probe_delivery_id"` // sent now as the probe; nil if none waits, or the endpoint is not active
}

// ResumedEndpoint is an endpoint that was resumed.
type ResumedEndpoint struct {
	Endpoint

	Release Release `json:"release"` // of the held deliveries
}

// ShortCondition is how an endpoint is, beside the state that a person has set.
type ShortCondition struct {
	Code        string  `json:"code"`            // "healthy", "slow", "at_limit", "failing", "circuit_open", "paused" or "disabled"
	Cause       *string `json:"cause"`           // for people: why, in a few words
	Since       Time    `json:"since"`           // since when it fails, or its circuit is open; null if that is not known
	LastSuccess Time    `json:"last_success_at"` // null if none is known of the last 48 hours
	Waiting     int     `json:"waiting"`         // open deliveries, counted up to 100
	More        bool    `json:"more"`            // more are open than were counted
}

// CircuitBreaker says when the circuit of an endpoint opens.
type CircuitBreaker struct {
	Enabled      bool    `json:"enabled"`
	Window       string  `json:"window"` // a duration
	MinRequests  int     `json:"min_requests"`
	FailureRatio float64 `json:"failure_ratio"` // above 0, at most 1
	Cooldown     string  `json:"cooldown"`      // a duration
}

// AutoDisable says when an endpoint that only fails is disabled. In JSON it is false if it is not enabled.
type AutoDisable struct {
	Enabled         bool `json:"-"`
	Exhausted24h    int  `json:"exhausted_24h"`    // deliveries given up within 24 hours without a success
	PermanentStreak int  `json:"permanent_streak"` // permanent failures in a row
}

// autoDisable is AutoDisable as an object.
type autoDisable AutoDisable

// MarshalJSON implements json.Marshaler.
func (a AutoDisable) MarshalJSON() ([]byte, error) {
	if !a.Enabled {
		return []byte("false"), nil
	}
	return marshal(autoDisable(a))
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *AutoDisable) UnmarshalJSON(text []byte) error {
	*a = AutoDisable{}
	if a.Enabled = bytes.HasPrefix(text, []byte("{")); !a.Enabled {
		return nil
	}
	return unmarshal(text, (*autoDisable)(a))
}

// Auth is the part of an endpoint's credentials that is not secret.
type Auth struct {
	Type     string   `json:"type"` // "basic", "bearer" or "oauth2_client_credentials"
	Username string   `json:"username,omitempty"`
	TokenURL string   `json:"token_url,omitempty"`
	ClientID string   `json:"client_id,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	Audience string   `json:"audience,omitempty"`
}

// Certificate identifies the TLS client certificate of an endpoint.
type Certificate struct {
	Subject   string  `json:"subject"`
	SHA256    string  `json:"sha256"` // of the certificate in DER, in hex
	ExpiresAt Time    `json:"expires_at"`
	MaxTLS    *string `json:"max_tls"` // "1.2"; nil for any version
}

// Secret is the signing secret of an endpoint.
type Secret struct {
	Secret string `json:"secret"`
}

// Rotated is the new secret of an endpoint.
type Rotated struct {
	Secret        string  `json:"secret"`
	PublicKey     *string `json:"public_key"`               // nil unless the signature is "v1a"
	OldUntil      Time    `json:"old_secrets_until"`        // when the last of the older secrets ends; null if there is none
	SecretRead    string  `json:"secret_read,omitempty"`    // how the caller's own secret was read, such as "base64, 24 bytes"
	SecretWarning string  `json:"secret_warning,omitempty"` // that it may be meant in another encoding
}
