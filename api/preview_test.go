package api

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) CountReplay(_ context.Context, r webhook.Replay) (*int64, error) {
	defer m.lock()()
	if _, ok := m.tenants[r.TenantID]; !ok {
		return nil, webhook.NotFound("tenant")
	}
	n := int64(0)
	for _, d := range m.deliveries {
		if d.TenantID == r.TenantID && d.State == webhook.StateDeadLettered && r.Source == webhook.ReplayDeadLetters {
			n++
		}
	}
	return &n, m.broken
}

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

func TestPreviewReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := replaysPath + "/preview"
	require.JSONEq(t, `{"total":0}`, b.ok(t, http.StatusOK, "admin", "POST", path, `{"source":"dead_letters"}`).text)
	b.endpoint(t)
	b.posted(t)
	b.deliveries[0].State, b.deliveries[0].Reason = webhook.StateDeadLettered, "max_attempts"
	require.JSONEq(t, `{"total":1}`, b.ok(t, http.StatusOK, "admin", "POST", path, `{"source":"dead_letters"}`).text)
	require.Empty(t, b.replays, "nothing is stored")
	events := `{"source":"events","endpoint_id":"` + b.endpoint(t) + `","since":"2026-01-01T00:00:00Z","status":400}`
	b.refused(t, "admin", "POST", path, events, "status", `is for the source "dead_letters" only`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, `{"source":"dead_letters"}`)
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
