package api

import (
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestAttention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	b.endpoints[0].State, b.endpoints[0].StateReason, b.endpoints[0].StateSince = webhook.EndpointDisabled, "it only fails", testNow()
	b.troubled = []webhook.TroubledTenant{
		{TenantID: "acme", Name: "Acme", Endpoints: 2, DeadLetters: 3},
		{TenantID: "quiet", Endpoints: 1}, // what is observed of its endpoint is nothing that needs attention
	}
	a := b.ok(t, http.StatusOK, "operator", "GET", "/v1/attention", "")
	tenants, endpoints := a.json["tenants"].([]any), a.json["endpoints"].([]any)
	require.Len(t, tenants, 1)
	require.Subset(t, tenants[0], map[string]any{"tenant_id": "acme", "name": "Acme", "endpoints": 1.0, "dead_letters_last_hour": 3.0})
	require.Len(t, endpoints, 1)
	require.Subset(t, endpoints[0], map[string]any{
		"cause": "it only fails", "waiting": 1.0, "held": 2.0, "given_up": 3.0,
		"endpoint_id": b.endpoints[0].ID.String(), "tenant_id": "acme", "condition": "disabled", "since": testNow().Format("2006-01-02T15:04:05.000000Z"),
	})
	require.Equal(t, false, a.json["more"])

	of := b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme/attention", "")
	require.Equal(t, map[string]any{"endpoints": 1.0, "waiting": 0.0, "dead_letters": 2.0, "dead_letters_last_hour": 3.0}, of.json)
	b.ok(t, http.StatusForbidden, "admin", "GET", "/v1/attention", "")
	b.ok(t, http.StatusNotFound, "admin", "GET", "/v1/tenants/other/attention", "")
	b.ok(t, http.StatusBadRequest, "operator", "GET", "/v1/attention?limit=1", "")
}

func TestAttentionIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range maxTroubled + 5 {
		b.troubled = append(b.troubled, webhook.TroubledTenant{TenantID: "t" + strconv.Itoa(i), DeadLetters: 1})
	}
	a := b.ok(t, http.StatusOK, "operator", "GET", "/v1/attention", "")
	require.Len(t, a.json["tenants"], maxTroubled)
	require.Equal(t, true, a.json["more"])
}

// Tenants that turn out to need nothing leave their places to others.
func TestAttentionLooksFurther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range maxTroubled + 5 {
		b.troubled = append(b.troubled, webhook.TroubledTenant{TenantID: "quiet" + strconv.Itoa(i)})
	}
	b.troubled = append(b.troubled, webhook.TroubledTenant{TenantID: "loud", DeadLetters: 1})
	a := b.ok(t, http.StatusOK, "operator", "GET", "/v1/attention", "")
	require.Len(t, a.json["tenants"], 1)
	require.Subset(t, a.json["tenants"].([]any)[0], map[string]any{"tenant_id": "loud"})
	require.Equal(t, false, a.json["more"])
}

// What cannot be counted is not shown as nothing.
func TestAttentionWithoutCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	b.endpoints[0].State = webhook.EndpointDisabled
	b.troubled, b.uncounted = []webhook.TroubledTenant{{TenantID: "acme", Endpoints: 1}}, errors.New("away")
	a := b.ok(t, http.StatusOK, "operator", "GET", "/v1/attention", "")
	endpoints := a.json["endpoints"].([]any)
	require.Len(t, endpoints, 1)
	require.Subset(t, endpoints[0], map[string]any{"waiting": nil, "held": nil, "given_up": nil})
}
