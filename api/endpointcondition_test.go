package api

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Endpoints that are read have their condition, for a whole page in two reads. One that cannot be read is left out.
func TestEndpointsHaveTheirCondition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/endpoints"
	id := b.endpoint(t)
	b.endpoint(t)
	b.seen = []webhook.Observation{{
		FailureStreak: 4, FailingSince: testNow().Add(-time.Minute), LastFailedAt: testNow(), LastFailure: "tls_invalid",
		LastError: "tls_invalid: the certificate expired at 2026-01-21T00:00:00Z",
	}}
	b.backlog.Retrying = 3
	want := map[string]any{
		"code": "failing", "cause": "TLS failed: the certificate expired on 21 Jan 00:00 UTC", "since": "2026-01-31T09:29:00.123456Z",
		"last_success_at": "2026-01-31T08:30:00.123456Z", "waiting": 3.0, "more": false,
	}
	list := b.ok(t, http.StatusOK, "admin", "GET", path, "").json["data"].([]any)
	require.Len(t, list, 2)
	for _, e := range list {
		require.Equal(t, want, e.(map[string]any)["condition"])
	}
	require.Equal(t, 1, b.waits)
	require.Equal(t, 1, b.observations)
	require.Equal(t, want, b.ok(t, http.StatusOK, "admin", "GET", path+"/"+id, "").json["condition"])
	require.NotContains(t, b.ok(t, http.StatusOK, "admin", "PATCH", path+"/"+id, `{"description":"x"}`).json, "condition")

	b.unexplained = errors.New("away")
	require.NotContains(t, b.ok(t, http.StatusOK, "admin", "GET", path+"/"+id, "").json, "condition")
}

// The list that follows a change has it, even if the one before is still kept.
func TestConditionsOfWhatHasJustChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/endpoint-conditions"
	for _, text := range []string{"", "?text=ep_"} {
		before := len(b.ok(t, http.StatusOK, "admin", "GET", path+text, "").json["data"].([]any))
		id := b.endpoint(t)
		require.Len(t, b.ok(t, http.StatusOK, "admin", "GET", path+text, "").json["data"], before+1)
		b.ok(t, http.StatusOK, "admin", "PATCH", "/v1/tenants/acme/endpoints/"+id, `{"description":"changed"}`)
		first := b.ok(t, http.StatusOK, "admin", "GET", path+text, "").json["data"].([]any)[0]
		require.Equal(t, "changed", first.(map[string]any)["description"])
	}
}

// A search for a part of a URL over many tenants observes no endpoints without it.
func TestConditionsWithATextReadNoOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t)
	b.endpoint(t)
	const path = "/v1/tenants/acme/endpoint-conditions"
	require.Empty(t, b.ok(t, http.StatusOK, "operator", "GET", path+"?text=nowhere", "").json["data"])
	require.Zero(t, b.observations)
	require.Len(t, b.ok(t, http.StatusOK, "operator", "GET", path+"?text="+id, "").json["data"], 1)
	require.Len(t, b.ok(t, http.StatusOK, "operator", "GET", path, "").json["data"], 2)
	require.Len(t, b.ok(t, http.StatusOK, "operator", "GET", path+"?text="+id, "").json["data"], 1)
	require.Equal(t, 2, b.observations, "the second search finds the list of all")
}
