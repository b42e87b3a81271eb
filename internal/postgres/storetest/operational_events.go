package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/webhook"
)

// OperationalBundle is a store with the tenants "acme", which has an endpoint, and "ops",
// which is the operator's.
type OperationalBundle struct {
	*Bundle
}

// SetupOperational is an OperationalBundle on a schema of its own.
func SetupOperational(t *testing.T) *OperationalBundle {
	t.Helper()
	b := &OperationalBundle{Setup(t)}
	ops, err := OpenStores(t.Context(), stores.Config{URL: b.Address, MaxConns: 4, Sealer: NewTestSealer(t), OperatorTenant: "ops"})
	require.NoError(t, err)
	t.Cleanup(ops.Close)
	b.Stores = ops
	for _, tenant := range []webhook.Tenant{{ID: "acme", Name: "Acme", Contact: "hooks@acme.example"}, {ID: "ops"}} {
		_, _, err = ops.PutTenant(t.Context(), TestActor(), tenant)
		require.NoError(t, err)
	}
	return b
}

// ListensTo makes an endpoint of a tenant with these filters.
func (b *OperationalBundle) ListensTo(t *testing.T, tenant string, filters ...string) webhook.Endpoint {
	t.Helper()
	e := b.Subscriber
	e.ID, e.TenantID, e.EventTypes = webhook.NewEndpointID(), tenant, filters
	e, err := b.CreateEndpoint(t.Context(), TestActor(), e, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	return e
}

// OperationalEvents are the payloads of the operational events of a tenant, of a type, oldest first.
func (b *OperationalBundle) OperationalEvents(t *testing.T, tenant, eventType string) []map[string]any {
	t.Helper()
	var told []map[string]any
	for _, text := range Query[[]byte](t, b.Stores, `select payload from events where tenant_id = $1 and type = $2 order by id`, tenant, eventType) {
		payload := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &payload))
		told = append(told, payload)
	}
	return told
}

// Starts are the deliveries of a tenant that wait for their start, by endpoint.
func (b *OperationalBundle) Starts(t *testing.T, tenant string) map[webhook.EndpointID]int {
	t.Helper()
	n := map[webhook.EndpointID]int{}
	for _, id := range Query[[16]byte](t, b.Stores, `select endpoint_id from outbox where tenant_id = $1 and starts_with(event_type, 'everpost.')`, tenant) {
		n[id]++
	}
	return n
}

// Opened is an operational event of an opened circuit.
func (b *OperationalBundle) Opened(tenant string) webhook.OperationalEvent {
	e := b.Subscriber
	e.TenantID = tenant
	return webhook.OperationalEvent{Type: webhook.EventCircuitOpened, TenantID: tenant, Endpoint: &e, At: time.Now(), Summary: "resting"}
}
