package client

import "context"

// TenantAttention counts what needs attention at a tenant. It is at most 5 s old.
type TenantAttention struct {
	Endpoints   int `json:"endpoints"`    // that need attention
	Waiting     int `json:"waiting"`      // open deliveries, counted up to 1,000
	DeadLetters int `json:"dead_letters"` // counted up to 1,000; what was sent again or discarded is none
	// DeadLettersLastHour are those that were given up within the last hour, whenever they were created; counted up to 1,000.
	DeadLettersLastHour int `json:"dead_letters_last_hour"`
}

// TroubledEndpoint is an endpoint that needs attention, and what became of its deliveries that have not arrived, each counted up to 100; nil if that
// could not be read.
type TroubledEndpoint struct {
	EndpointCondition

	Waiting *int `json:"waiting"`  // they are sent again, or for the first time
	Held    *int `json:"held"`     // until the endpoint is resumed, or takes more
	GivenUp *int `json:"given_up"` // dead letters
}

// TroubledTenant is a tenant that needs attention.
type TroubledTenant struct {
	TenantAttention

	TenantID string `json:"tenant_id"`
	Name     string `json:"name"`
}

// Attention is what needs attention over all tenants.
type Attention struct {
	Tenants   []TroubledTenant   `json:"tenants"`   // with endpoints that need attention, or dead letters of the last hour
	Endpoints []TroubledEndpoint `json:"endpoints"` // that need attention, the worst first
	More      bool               `json:"more"`      // there are more than are shown
}

// Attention reads what needs attention over all tenants. It needs an operator's key.
func (c *Client) Attention(ctx context.Context) (Attention, error) {
	return get[Attention](ctx, scope{c, []string{"attention"}}, nil)
}

// Attention counts what needs attention at the tenant.
func (t TenantCalls) Attention(ctx context.Context) (TenantAttention, error) {
	return get[TenantAttention](ctx, t.at("attention"), nil)
}
