package client

import (
	"context"
	"net/http"
	"time"
)

// Tenant is a customer of the installation: what belongs to one is never shown to another.
type Tenant struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Contact     *string           `json:"contact"`
	Metadata    map[string]string `json:"metadata"`
	Limits      Limits            `json:"limits"`
	Retention   Retention         `json:"retention"`
	RetryPolicy *RetryPolicy      `json:"retry_policy"` // of endpoints without one; nil for the installation's
	State       string            `json:"state"`        // "active", or "deleting": then only ID and Deletion have a meaning
	Deletion    *Deletion         `json:"deletion"`     // nil unless the state is "deleting"
	CreatedAt   Time              `json:"created_at"`
	UpdatedAt   Time              `json:"updated_at"`
}

// Limits are a tenant's own limits; nil is the operator's default for all tenants.
type Limits struct {
	RequestsPerSecond *float64 `json:"requests_per_second"` // with the tenant's keys; a batch counts as one
	Burst             *int     `json:"burst"`               // requests that may come at once
	Endpoints         *int     `json:"endpoints"`
	PendingDeliveries *int     `json:"pending_deliveries"` // pending, retrying or held
	EndpointsPerEvent *int     `json:"endpoints_per_event"`
	RunningReplays    *int     `json:"running_replays"` // at a time; others are queued

	OtherRequestsPerSecond *float64 `json:"other_requests_per_second"` // those that post no events
	OtherBurst             *int     `json:"other_burst"`
}

// Retention is how long parts of a tenant's deliveries are kept after they have ended: durations; nil is as long as the installation.
type Retention struct {
	Payloads   *string `json:"payloads"`
	Attempts   *string `json:"attempts"`
	Deliveries *string `json:"deliveries"` // and events without others
}

// Deletion is the progress of the deletion of everything of a tenant.
type Deletion struct {
	Since Time    `json:"since"`
	Table *string `json:"table"`        // that rows were removed from last
	Rows  int64   `json:"rows_removed"` // without attempts
}

// Scope is what an API key may do.
type Scope string

// The scopes of a tenant's keys.
const (
	ScopeIngest Scope = "ingest" // post events, and read them and their deliveries
	ScopeAdmin  Scope = "admin"  // everything of the tenant
)

// Key is an API key of a tenant.
type Key struct {
	ID         string `json:"id"`
	Key        string `json:"key,omitempty"` // its text, in the answer to its creation only
	Scope      Scope  `json:"scope"`
	Name       string `json:"name"`
	CreatedAt  Time   `json:"created_at"`
	ExpiresAt  Time   `json:"expires_at"` // null: never
	LastUsedAt Time   `json:"last_used_at"`
}

// ConsoleLink is a one-time link to the console or a portal, or a portal token. Who has it may do what Scope says.
type ConsoleLink struct {
	ID        string `json:"id"`              // names it in the audit log
	URL       string `json:"url,omitempty"`   // of a link
	Token     string `json:"token,omitempty"` // of the kind "token", to be sent as an API key
	Scope     string `json:"scope"`           // "view", "manage", or "key": everything that the key may do that made it
	ExpiresAt Time   `json:"expires_at"`

	Capabilities []string `json:"capabilities,omitempty"` // of a portal link: "secrets", "filters", "replay"
}

// TenantInput are the settings of a tenant. A nil field is left out: in a Put it is the default, in an Update it stays as it is.
type TenantInput struct {
	Name        *string           `json:"name,omitzero"`
	Contact     *string           `json:"contact,omitzero"`
	Metadata    map[string]string `json:"metadata,omitzero"`
	Limits      *LimitsInput      `json:"limits,omitzero"`
	Retention   *RetentionInput   `json:"retention,omitzero"`
	RetryPolicy *RetryPolicy      `json:"retry_policy,omitzero"`
}

// LimitsInput are limits to be set, as in Limits.
type LimitsInput struct {
	RequestsPerSecond      float64 `json:"requests_per_second,omitzero"`
	Burst                  int     `json:"burst,omitzero"`
	Endpoints              int     `json:"endpoints,omitzero"`
	PendingDeliveries      int     `json:"pending_deliveries,omitzero"`
	EndpointsPerEvent      int     `json:"endpoints_per_event,omitzero"`
	RunningReplays         int     `json:"running_replays,omitzero"`
	OtherRequestsPerSecond float64 `json:"other_requests_per_second,omitzero"`
	OtherBurst             int     `json:"other_burst,omitzero"`
}

// RetentionInput is a retention to be set, as in Retention.
type RetentionInput struct {
	Payloads   string `json:"payloads,omitzero"`
	Attempts   string `json:"attempts,omitzero"`
	Deliveries string `json:"deliveries,omitzero"`
}

// KeyInput is a new key.
type KeyInput struct {
	Scope     Scope     `json:"scope"`
	Name      string    `json:"name,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // never if it is zero
}

// The kinds of ConsoleLinkInput.
const (
	LinkKind  = "link"  // a link to the portal's pages
	TokenKind = "token" // a portal token, with which a page of yours calls the API; the fields about pages are refused
)

// ConsoleLinkInput is a new link to a portal, or a new portal token.
type ConsoleLinkInput struct {
	Kind      string `json:"kind,omitzero"`       // LinkKind or TokenKind; "" is LinkKind
	Scope     string `json:"scope"`               // "view" or "manage"
	ExpiresIn string `json:"expires_in,omitzero"` // "1m" to "1h"; "" is 15 minutes for a link, and an hour for a token
	ReturnURL string `json:"return_url,omitzero"` // where the portal leads back to

	// Capabilities are what the link permits beside its scope: "secrets", "filters" and "replay". Nil: all with "manage", none with "view".
	Capabilities []string `json:"capabilities,omitzero"`
	Lang         string   `json:"lang,omitzero"`        // of the pages, such as "de"; "" is the browser's
	Theme        string   `json:"theme,omitzero"`       // "auto", "light" or "dark"; "" is "auto"
	Embed        bool     `json:"embed,omitzero"`       // pages without a header, for a frame
	RefreshURL   string   `json:"refresh_url,omitzero"` // where a new link is to be had when the session has ended
}

// Tenants lists tenants whose id begins with the prefix, "" for all. It needs an operator's key.
func (c *Client) Tenants(prefix string) List[Tenant] {
	return List[Tenant]{scope{c, []string{"tenants"}}, parameters("prefix", prefix)}
}

// Get reads the tenant.
func (t TenantCalls) Get(ctx context.Context) (Tenant, error) { return get[Tenant](ctx, t.scope, nil) }

// Put creates the tenant, or replaces its settings. It needs an operator's key.
func (t TenantCalls) Put(ctx context.Context, in TenantInput) (Tenant, error) {
	return send[Tenant](ctx, t.scope, http.MethodPut, in)
}

// Update changes the tenant. It needs an operator's key.
func (t TenantCalls) Update(ctx context.Context, change TenantInput) (Tenant, error) {
	return send[Tenant](ctx, t.scope, http.MethodPatch, change)
}

// Delete deletes the tenant. CodeConflict: it has endpoints. It needs an operator's key.
func (t TenantCalls) Delete(ctx context.Context) error { return t.remove(ctx, nil) }

// DeleteEverything begins to delete the tenant with everything that is stored of it; Get shows the progress. It needs an operator's key.
func (t TenantCalls) DeleteEverything(ctx context.Context) (Tenant, error) {
	return decoded[Tenant](t.c.Do(ctx, Request{Method: http.MethodDelete, Path: t.path, Query: parameters("everything", "true")}))
}

// ConsoleLink makes a one-time link to the tenant's portal, for the customer that the tenant stands for, or a portal token.
func (t TenantCalls) ConsoleLink(ctx context.Context, in ConsoleLinkInput, o ...Option) (ConsoleLink, error) {
	return send[ConsoleLink](ctx, t.at("console-links"), http.MethodPost, in, o...)
}

// LogInLink makes a one-time link that logs in to the console with the client's own key.
func (c *Client) LogInLink(ctx context.Context, o ...Option) (ConsoleLink, error) {
	return send[ConsoleLink](ctx, scope{c, []string{"console-links"}}, http.MethodPost, nil, o...)
}

// Keys are the calls about a tenant's keys.
type Keys struct{ scope }

// List lists keys.
func (k Keys) List() List[Key] { return List[Key]{k.scope, nil} }

// Create creates a key. The answer has its text, which is not shown again.
func (k Keys) Create(ctx context.Context, in KeyInput, o ...Option) (Key, error) {
	return send[Key](ctx, k.scope, http.MethodPost, in, o...)
}

// Revoke revokes a key, everywhere within two seconds.
func (k Keys) Revoke(ctx context.Context, id string) error { return k.at(id).remove(ctx, nil) }
