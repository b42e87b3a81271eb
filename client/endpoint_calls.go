package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// EndpointFields are the settings of an endpoint. A nil field is left out: of a new endpoint it is the default, in a change it stays as it is.
type EndpointFields struct {
	URL             string               `json:"url,omitzero"`         // required for a new endpoint
	EventTypes      []string             `json:"event_types,omitzero"` // types and patterns; default ["*"]
	Filter          json.RawMessage      `json:"filter,omitzero"`      // an object; null for none, the default
	Ordering        *Ordering            `json:"ordering,omitzero"`    // default {"by": "none"}
	Description     *string              `json:"description,omitzero"`
	Headers         map[string]string    `json:"headers,omitzero"`
	Auth            *AuthInput           `json:"auth,omitzero"`
	Certificate     *CertificateInput    `json:"client_certificate,omitzero"`
	Timeout         string               `json:"timeout,omitzero"`               // "1s" to "30s", or "auto"; default "15s"
	MaxInFlight     int                  `json:"max_in_flight,omitzero"`         // default 10
	RateLimit       float64              `json:"rate_limit_per_second,omitzero"` // default 10,000
	RetryPolicy     *RetryPolicy         `json:"retry_policy,omitzero"`          // default: the tenant's
	CircuitBreaker  *CircuitBreakerInput `json:"circuit_breaker,omitzero"`
	AutoDisable     *AutoDisable         `json:"auto_disable,omitzero"`
	SuccessStatuses []int                `json:"success_statuses,omitzero"` // redirects that count as delivered; default none
	AutoReplay      *bool                `json:"auto_replay,omitzero"`      // default false
	Signature       string               `json:"signature,omitzero"`        // "v1", "v1a" or "hex"; default "v1"
	PayloadFormat   string               `json:"payload_format,omitzero"`   // "raw" or "envelope"; default "raw"
	TraceContext    *bool                `json:"trace_context,omitzero"`    // default false
	Metadata        map[string]string    `json:"metadata,omitzero"`
}

// EndpointInput is a new endpoint.
type EndpointInput struct {
	EndpointFields
	SecretInput
}

// SecretInput is the caller's own signing secret. Everpost makes one if it is empty.
type SecretInput struct {
	Secret         string `json:"secret,omitzero"`
	SecretEncoding string `json:"secret_encoding,omitzero"` // how Secret holds the key: "base64", "hex" or "text"; "" is base64 after "whsec_"
}

// AuthInput are credentials for the Authorization header, by Type: "basic" (Username, Password), "bearer" (Token) or "oauth2_client_credentials"
// (TokenURL, ClientID, ClientSecret, and Scopes and Audience if the token server wants them).
type AuthInput struct {
	Type         string   `json:"type"`
	Username     string   `json:"username,omitzero"`
	Password     string   `json:"password,omitzero"`
	Token        string   `json:"token,omitzero"`
	TokenURL     string   `json:"token_url,omitzero"`
	ClientID     string   `json:"client_id,omitzero"`
	ClientSecret string   `json:"client_secret,omitzero"`
	Scopes       []string `json:"scopes,omitzero"`
	Audience     string   `json:"audience,omitzero"`
}

// CertificateInput is a TLS client certificate with its key, both in PEM. With MaxTLS alone, the stored ones stay.
type CertificateInput struct {
	Certificate string `json:"certificate,omitzero"`
	Key         string `json:"key,omitzero"`
	MaxTLS      string `json:"max_tls,omitzero"` // "1.2"; "" for any version
}

// CircuitBreakerInput says when the circuit of an endpoint opens. A zero field is the default.
type CircuitBreakerInput struct {
	Enabled      *bool   `json:"enabled,omitzero"`       // default true
	Window       string  `json:"window,omitzero"`        // "1s" to "600s"; default "60s"
	MinRequests  int     `json:"min_requests,omitzero"`  // default 20
	FailureRatio float64 `json:"failure_ratio,omitzero"` // default 0.5
	Cooldown     string  `json:"cooldown,omitzero"`      // "1s" to "600s"; default "30s"
}

// RotateInput is how a secret is rotated. Grace is how long the older secrets also sign: "0s" to "168h"; "" is 24 hours.
type RotateInput struct {
	Grace string `json:"grace,omitzero"`
	SecretInput
}

// TestInput is a test request. Payload is as in an EventInput; nil is {"test":true}.
type TestInput struct {
	Type    string `json:"type,omitzero"` // "" is "everpost.test"
	Payload any    `json:"-"`
}

// Endpoints are the calls about endpoints.
type Endpoints struct{ scope }

// List lists endpoints.
func (e Endpoints) List() List[Endpoint] { return List[Endpoint]{e.scope, nil} }

// ConditionFilter selects endpoints by their condition. What is zero is not compared.
type ConditionFilter struct {
	State     EndpointState
	Condition string // as in ShortCondition
	Text      string // part of the URL, the description or the id
	Trouble   *bool  // whether it needs attention
}

// Conditions lists the conditions of endpoints.
func (e Endpoints) Conditions(f ConditionFilter) List[EndpointCondition] {
	query := parameters("state", string(f.State), "condition", f.Condition, "text", f.Text)
	if f.Trouble != nil {
		query.Set("trouble", "false")
		if *f.Trouble {
			query.Set("trouble", "true")
		}
	}
	at := e.at()
	at.path = append(at.path[:len(at.path)-1:len(at.path)-1], "endpoint-conditions")
	return List[EndpointCondition]{at, query}
}

// Create creates an endpoint. The answer has its secret.
func (e Endpoints) Create(ctx context.Context, in EndpointInput, o ...Option) (Endpoint, error) {
	return send[Endpoint](ctx, e.scope, http.MethodPost, in, o...)
}

// Get reads an endpoint.
func (e Endpoints) Get(ctx context.Context, id string) (Endpoint, error) {
	return get[Endpoint](ctx, e.at(id), nil)
}

// Update changes an endpoint. A URL with another scheme, host or port needs the stored headers, credentials and certificate once more.
func (e Endpoints) Update(ctx context.Context, id string, change EndpointFields) (Endpoint, error) {
	return send[Endpoint](ctx, e.at(id), http.MethodPatch, change)
}

// Reset sets fields of an endpoint, by their names in JSON, back to their defaults.
func (e Endpoints) Reset(ctx context.Context, id string, fields ...string) (Endpoint, error) {
	change := map[string]any{}
	for _, name := range fields {
		change[name] = nil
	}
	return send[Endpoint](ctx, e.at(id), http.MethodPatch, change)
}

// Delete deletes an endpoint and cancels its open deliveries. Its dead letters stay readable.
func (e Endpoints) Delete(ctx context.Context, id string) error { return e.at(id).remove(ctx, nil) }

// Attempts lists the attempts to an endpoint: those of the newest delivery first, and of each the newest first.
func (e Endpoints) Attempts(id string) List[DeliveryAttempt] {
	return List[DeliveryAttempt]{e.at(id, "attempts"), nil}
}

// Health reads the health of an endpoint.
func (e Endpoints) Health(ctx context.Context, id string) (EndpointHealth, error) {
	return get[EndpointHealth](ctx, e.at(id, "health"), nil)
}

// PauseInput is why an endpoint is paused. It may be empty.
type PauseInput struct {
	Reason string `json:"reason,omitzero"`
}

// Pause pauses an endpoint: its deliveries are held.
func (e Endpoints) Pause(ctx context.Context, id string, in PauseInput, o ...Option) (Endpoint, error) {
	return send[Endpoint](ctx, e.at(id, "pause"), http.MethodPost, in, o...)
}

// ResumeInput is how the held deliveries are released: 1 to 60,000 per minute; with 0 Everpost sets the pace, which begins at the rate before the
// pause, at least 600, and doubles each minute.
type ResumeInput struct {
	RatePerMinute int    `json:"rate_per_minute,omitzero"`
	Reason        string `json:"reason,omitzero"` // why it is resumed
}

// Resume resumes an endpoint and releases its held deliveries.
func (e Endpoints) Resume(ctx context.Context, id string, in ResumeInput, o ...Option) (ResumedEndpoint, error) {
	return send[ResumedEndpoint](ctx, e.at(id, "resume"), http.MethodPost, in, o...)
}

// CloseCircuit tries an endpoint whose circuit is open at once: its oldest waiting delivery is the probe. CodeConflict: it is not open.
func (e Endpoints) CloseCircuit(ctx context.Context, id string, o ...Option) (ProbedEndpoint, error) {
	return send[ProbedEndpoint](ctx, e.at(id, "close-circuit"), http.MethodPost, nil, o...)
}

// Test sends one signed request at once, also to a paused endpoint, and returns the attempt. It is not stored.
func (e Endpoints) Test(ctx context.Context, id string, in TestInput) (Attempt, error) {
	body, err := withPayload(in, in.Payload)
	if err != nil {
		return Attempt{}, err
	}
	return send[Attempt](ctx, e.at(id, "test"), http.MethodPost, body)
}

// Secret reads the signing secret of an endpoint.
func (e Endpoints) Secret(ctx context.Context, id string) (Secret, error) {
	return get[Secret](ctx, e.at(id, "secret"), nil)
}

// RotateSecret gives an endpoint a new secret.
func (e Endpoints) RotateSecret(ctx context.Context, id string, in RotateInput, o ...Option) (Rotated, error) {
	return send[Rotated](ctx, e.at(id, "rotate-secret"), http.MethodPost, in, o...)
}
