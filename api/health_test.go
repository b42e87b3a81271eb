package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) Health(_ context.Context, tenant string, id webhook.EndpointID) (webhook.Health, error) {
	defer m.lock()()
	e, err := m.endpoint(tenant, id)
	return webhook.Health{
		Endpoint: *e, Observed: webhook.Aggregate(m.seen), Known: len(m.seen) > 0, Stale: m.stale, Backlog: m.backlog, LastFailure: m.lastFailure,
	}, err
}

func TestEndpointHealth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t)
	path := "/v1/tenants/acme/endpoints/" + id + "/health"
	nothing := map[string]any{
		"endpoint_id": id, "summary": "Active; no failure on record; nothing waits.", "stale": false, "state": "active", "state_reason": nil,
		"circuit":       map[string]any{"state": "closed", "since": nil, "next_probe_at": nil, "why": nil},
		"next_probe_at": nil, "deferred_until": nil, "deferred_for": nil, "rate_per_second": 10_000.0, "timeout": "15s", "latency_ms": nil, "success_rate": nil,
		"retry_ratio": nil, "success_streak": 0.0, "failure_streak": 0.0, "in_flight": 0.0, "waiting": 0.0, "retrying": 0.0, "deferred": 0.0,
		"scheduled": 0.0, "held": 0.0, "more": false, "next_attempt_at": nil, "oldest_waiting_at": nil,
		"explanation": map[string]any{
			"code": "endpoint_idle", "brief": nil, "cause": nil, "next": nil, "remedy": nil, "operator": nil, "actions": []any{}, "workflow": nil, "until": nil,
		},
	}
	require.Equal(t, nothing, b.ok(t, http.StatusOK, "admin", "GET", path, "").json)
	b.stale = true
	require.Equal(t, true, b.ok(t, http.StatusOK, "admin", "GET", path, "").json["stale"])
	b.stale = false

	now := testNow()
	b.seen = []webhook.Observation{{
		Circuit: webhook.CircuitOpen, Since: now.Add(-7 * time.Minute), NextProbe: now.Add(21 * time.Second),
		Why:          "14 of 20 requests failed, the last with http_503",
		BlockedUntil: now.Add(time.Minute), BlockReason: webhook.ReasonRetryAfter, Latency: 120 * time.Millisecond, Rate: 1.23456, InFlight: 2,
		Delivered: 2, Failed: 1, First: 2, Retries: 1, FailureStreak: 4, SuccessStreak: 5,
	}}
	b.backlog = webhook.Backlog{
		Retrying: 2, Deferred: 210, Scheduled: 3, Held: 10_000, MoreHeld: true, NextAt: now.Add(time.Second), Oldest: now.Add(-8 * time.Minute),
	}
	require.Equal(t, map[string]any{
		"endpoint_id": id, "stale": false, "state": "active", "state_reason": nil,
		"summary": "Circuit open since 09:23 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; next probe in 21 s; 2 in flight; " +
			"212 waiting (210 for a turn, 2 to be sent again); 3 scheduled; more than 10000 held, the oldest go first; the oldest since 09:22 UTC.",
		"circuit": map[string]any{
			"state": "open", "since": "2026-01-31T09:23:00.123456Z", "next_probe_at": "2026-01-31T09:30:21.123456Z",
			"why": "14 of 20 requests failed, the last with http_503",
		},
		"next_probe_at": "2026-01-31T09:30:21.123456Z", "deferred_until": "2026-01-31T09:31:00.123456Z", "deferred_for": "retry_after",
		"rate_per_second": 1.2346, "timeout": "15s", "latency_ms": 120.0, "success_rate": 0.6667, "retry_ratio": 0.5,
		"success_streak": 5.0, "failure_streak": 4.0, "in_flight": 2.0, "waiting": 212.0, "retrying": 2.0, "deferred": 210.0,
		"scheduled": 3.0, "held": 10_000.0, "more": true,
		"next_attempt_at": "2026-01-31T09:30:01.123456Z", "oldest_waiting_at": "2026-01-31T09:22:00.123456Z",
		"explanation": map[string]any{
			"code": "endpoint_circuit_open", "brief": "503 Service Unavailable: overloaded or in maintenance",
			"cause": "Most requests failed, so the endpoint gets none for a while.",
			"next": "One request is sent as a probe; if it succeeds, the circuit closes and the rate rises again. " +
				"Of the held deliveries the oldest go first.",
			"remedy": "When the receiver is well again, close the circuit to have it tried at once.", "operator": nil,
			"actions": []any{map[string]any{
				"act": "close_circuit", "id": id, "method": "POST", "path": "/v1/tenants/acme/endpoints/" + id + "/close-circuit", "body": nil,
			}},
			"workflow": nil, "until": "2026-01-31T09:30:21.123456Z",
		},
	}, b.ok(t, http.StatusOK, "admin", "GET", path, "").json)

	// The cause names the last failure on record.
	b.lastFailure = &webhook.LastFailure{Reason: "http_503", At: now.Add(-time.Minute)}
	require.Equal(t, "Most requests failed, so the endpoint gets none for a while. "+
		"The last failure on record, at 09:29:00 UTC, 60 s ago: the attempt got 503 Service Unavailable.",
		b.ok(t, http.StatusOK, "admin", "GET", path, "").json["explanation"].(map[string]any)["cause"])

	// An automatic timeout is shown if a process has reported one.
	b.endpoints[0].AutoTimeout = true
	require.Nil(t, b.ok(t, http.StatusOK, "admin", "GET", path, "").json["timeout"])
	b.seen[0].Timeout = 7 * time.Second
	require.Equal(t, "7s", b.ok(t, http.StatusOK, "admin", "GET", path, "").json["timeout"])

	// A pause that is over is not shown.
	b.seen[0].BlockedUntil = now
	a := b.ok(t, http.StatusOK, "operator", "GET", path, "")
	require.Nil(t, a.json["deferred_until"])
	require.Nil(t, a.json["deferred_for"])
	b.endpoints[0].State, b.endpoints[0].StateReason = webhook.EndpointPaused, "paused by hand"
	a = b.ok(t, http.StatusOK, "operator", "GET", path, "")
	require.Equal(t, []any{"paused", "paused by hand", 0.0}, []any{a.json["state"], a.json["state_reason"], a.json["rate_per_second"]})
}
