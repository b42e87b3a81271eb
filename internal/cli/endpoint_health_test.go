package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// An endpoint's health is printed as a summary and a table.
func TestEndpointsHealth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint()
	require.Equal(t, [][]string{
		{"Active; no failure on record; nothing waits."}, nil, {"code", "endpoint_idle"}, {"state", "active"}, {"circuit", "closed"},
		{"rate", "10000 requests per second"}, {"timeout", "15s"},
		{"latency", "-"}, {"delivered, 15 min", "-"}, {"retries per first attempt", "-"}, {"in a row", "0 delivered, 0 failed"}, {"in flight", "0"},
		{"waiting", "0 (0 to be sent again, 0 for a turn)"}, {"scheduled", "0"}, {"held", "0"},
	}, rows(t, b.ok("endpoints", "health", id)))

	endpoint, err := webhook.ParseEndpointID(id)
	require.NoError(t, err)
	since := time.Now().UTC()
	require.NoError(t, b.store.EndpointHealth.WriteObservations(t.Context(), "a worker", map[webhook.EndpointID]webhook.Observation{endpoint: {
		Circuit: webhook.CircuitOpen, Since: since, NextProbe: since.Add(time.Hour), Why: "14 of 20 requests failed, the last with http_503",
		BlockedUntil: since.Add(30 * time.Minute), BlockReason: webhook.ReasonRetryAfter, DeferReason: webhook.ReasonCircuitOpen,
		Latency: 41 * time.Millisecond, Delivered: 6, Failed: 14, First: 10, Retries: 10, FailureStreak: 14,
	}}))
	_, deliveries := b.send("order.paid")
	b.attempted(deliveries[0], 1, 503, webhook.StateRetrying)
	shown := b.ok("endpoints", "health", id)
	require.Regexp(t, `^Circuit open since .* UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; next probe in 60 min; `+
		`1 waiting to be sent again in .*; the oldest since .* UTC\.\n\n`, shown)
	for _, row := range [][]string{
		{"circuit", "open (14 of 20 requests failed, the last with 503 Service Unavailable)"}, {"circuit since", since.Format(time.DateTime)},
		{"next probe", since.Add(time.Hour).Format(time.DateTime)}, {"deferred until", since.Add(30*time.Minute).Format(time.DateTime) + " (retry_after)"},
		{"rate", "0 requests per second"}, {"latency", "41 ms"}, {"delivered, 15 min", "30.0 %"}, {"retries per first attempt", "1.00"},
		{"in a row", "0 delivered, 14 failed"}, {"waiting", "1 (1 to be sent again, 0 for a turn)"},
	} {
		require.Contains(t, rows(t, shown), row)
	}
	require.Contains(t, shown, "\nnext attempt ")
	require.Contains(t, shown, "\noldest waiting since ")
	got := b.json("endpoints", "health", id)
	require.Equal(t, "open", got["circuit"].(map[string]any)["state"])
	require.InDelta(t, 1, got["waiting"], 0)

	b.ok("endpoints", "update", id, "--timeout=auto")
	require.Contains(t, rows(t, b.ok("endpoints", "health", id)), []string{"timeout", "-"})
	b.ok("endpoints", "pause", id)
	require.Contains(t, b.ok("endpoints", "health", id), "Paused by hand: nothing is sent; 1 waiting until it is resumed; ")
	require.Contains(t, b.fails("endpoints", "health", webhook.NewEndpointID().String()), "no such endpoint of tenant acme")
}

// A test request is sent at once, and the exit code says whether the receiver accepted it.
func TestEndpointsTest(t *testing.T) {
	t.Parallel()
	b := setup(t, "--allow-http", "--allowed-cidrs=127.0.0.0/8", "--extra-ports=any")
	receiver := receivertest.New(t)
	id, ok := b.json("endpoints", "create", receiver.URL()+"/hook?token=canary")["id"].(string)
	require.True(t, ok)
	secret := strings.TrimSpace(b.ok("endpoints", "secret", id))

	shown := b.ok("endpoints", "test", id)
	require.Regexp(t, `^200 delivered, \d+ ms\n\n`, shown)
	require.Contains(t, rows(t, shown), []string{"run", "-"})
	require.NotContains(t, shown, "canary")
	b.ok("endpoints", "pause", id)
	receiver.Script("/hook", receivertest.Step{Status: 503, Body: "busy"}, receivertest.Step{Drop: true})
	r := b.run("endpoints", "test", id, "--type=order.paid", `--payload={"order": 17}`)
	require.Equal(t, 1, r.code)
	require.Contains(t, rows(t, r.stdout), []string{"response_body", "busy"})
	require.Regexp(t, `^everpost: the receiver did not accept: 503 Service Unavailable, \d+ ms\n$`, r.stderr)
	r = b.run("endpoints", "test", id, "--json")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, `"status":null`)
	require.Regexp(t, `^everpost: the receiver did not accept: [a-z ]+, ended after \d+ ms: .+\n$`, r.stderr)
	require.NotContains(t, r.stderr, "canary")

	got := receiver.Requests()
	require.Len(t, got, 3)
	for _, request := range got {
		require.NoError(t, request.Verify(secret))
	}
	require.Equal(t, []string{`{"test":true}`, `{"order": 17}`}, []string{string(got[0].Body), string(got[1].Body)})
	require.Equal(t, []string{"everpost.test", "order.paid"}, []string{got[0].Header.Get("everpost-event-type"), got[1].Header.Get("everpost-event-type")})
	require.Empty(t, b.json("deliveries", "list")["data"], "it is not recorded")

	require.Contains(t, b.fails("endpoints", "test", id, "--type=No Type"), "everpost: type: must be a letter or digit")
	require.Contains(t, b.fails("endpoints", "test", id, "--payload=canary"), "everpost: --payload: is not JSON")
	require.Contains(t, b.fails("endpoints", "test", webhook.NewEndpointID().String()), "no such endpoint of tenant acme")
	require.Len(t, receiver.Requests(), 3)
}
