package api

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) GroupDeadLetters(_ context.Context, tenant string, f webhook.DeliveryFilter) (webhook.DeadLetterGroups, error) {
	defer m.lock()()
	found := webhook.DeadLetterGroups{}
	for _, d := range m.deliveries {
		if d.TenantID == tenant && d.State == webhook.StateDeadLettered && (f.Reason == "" || f.Reason == d.Reason) {
			found.Counted++
			found.Groups = append(found.Groups, webhook.DeadLetterGroup{
				EndpointID: d.EndpointID, Reason: d.Reason, Count: 1, Oldest: d.CreatedAt, Newest: d.CreatedAt, Example: d.DeliveryID,
			})
		}
	}
	return found, m.broken
}

func TestGroupDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/dead-letters/groups"
	require.JSONEq(t, `{"groups":[],"counted":0,"more":false}`, b.ok(t, http.StatusOK, "ingest", "GET", path, "").text)
	ep := b.endpoint(t)
	_, id := b.posted(t)
	b.deliveries[0].State, b.deliveries[0].Reason = webhook.StateDeadLettered, "max_attempts"
	a := b.ok(t, http.StatusOK, "ingest", "GET", path+"?reason=max_attempts", "")
	group := a.json["groups"].([]any)[0].(map[string]any)
	require.Equal(t, []any{ep, "max_attempts", nil, 1., id}, []any{group["endpoint_id"], group["reason"], group["status"], group["count"], group["example_id"]})
	require.InDelta(t, 1, a.json["counted"], 0)
	require.JSONEq(t, `{"groups":[],"counted":0,"more":false}`, b.ok(t, http.StatusOK, "ingest", "GET", path+"?reason=http_400", "").text)
	b.ok(t, http.StatusBadRequest, "ingest", "GET", path+"?limit=5", "")
	b.ok(t, http.StatusBadRequest, "ingest", "GET", path+"?status=5", "")
}
