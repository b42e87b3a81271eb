package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	created := rows(t, b.ok("endpoints", "create", "https://example.com/hook?token=canary", "--event-type=order.*", "--event-type=user.created"))
	values := map[string]string{}
	for _, row := range created {
		values[row[0]] = row[1]
	}
	id, secret := values["id"], values["secret"]
	require.True(t, strings.HasPrefix(secret, "whsec_"))
	require.Equal(t, "order.*, user.created", values["event_types"])
	require.Equal(t, secret+"\n", b.ok("endpoints", "secret", id))
	require.Equal(t, map[string]any{"secret": secret}, b.json("endpoints", "secret", id))

	table := rows(t, b.ok("endpoints", "list"))
	require.Equal(t, [][]string{
		{"ID", "STATE", "CONDITION", "WAITING", "LAST SUCCESS", "URL", "EVENT TYPES"},
		{id, "active", "healthy", "0", "-", "https://example.com/hook", "order.*, user.created"},
	}, table)
	require.NotContains(t, b.ok("endpoints", "get", id), secret)
	require.Equal(t, "deleted "+id+"\n", b.ok("endpoints", "delete", id))
	require.Contains(t, b.fails("endpoints", "get", id), "no such endpoint of tenant acme")
	other := b.endpoint()
	require.Empty(t, b.ok("endpoints", "delete", other, "--json"))
}

// Every setting reaches the API on creation and on update. Header values are printed with
// --json only.
func TestEndpointSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	flags := []string{
		"--event-type=a,b.*", `--filter={"payload":{"total":{"$gte":100}}}`,
		"--description=ours", "--header=X-Token: canary, and more", "--header=X-Empty:", "--timeout=7s", "--max-in-flight=3",
		"--rate-limit-per-second=2.5", "--retry-policy=fast", "--payload-format=envelope", "--ordering=number", "--trace-context", "--auto-replay",
		"--success-status=302", "--success-status=307",
		"--metadata=team=a;b,c", "--metadata=x=y",
		"--data", `{"circuit_breaker":{"enabled":false},"auto_disable":false,"description":"a flag goes before it"}`,
	}
	want := map[string]any{
		"event_types": []any{"a", "b.*"}, "description": "ours", "timeout": "7s",
		"filter":        map[string]any{"payload": map[string]any{"total": map[string]any{"$gte": 100.0}}},
		"headers":       map[string]any{"X-Token": "[redacted]", "X-Empty": "[redacted]"},
		"max_in_flight": 3.0, "rate_limit_per_second": 2.5, "payload_format": "envelope", "ordering": map[string]any{"by": "number"},
		"trace_context": true, "auto_replay": true,
		"success_statuses": []any{302.0, 307.0},
		"metadata":         map[string]any{"team": "a;b,c", "x": "y"}, "auto_disable": false,
	}
	id := b.endpoint(flags...)
	plain := b.endpoint()
	b.ok(append([]string{"endpoints", "update", plain, "--endpoint-url=https://example.com/other"}, flags...)...)
	for _, one := range []string{id, plain} {
		got := b.json("endpoints", "get", one)
		for name, value := range want {
			require.Equal(t, value, got[name], name)
		}
		require.Equal(t, "fast", got["retry_policy"].(map[string]any)["preset"])
		require.Equal(t, false, got["circuit_breaker"].(map[string]any)["enabled"])
	}
	require.Equal(t, "https://example.com/other", b.json("endpoints", "get", plain)["url"])
	shown := b.ok("endpoints", "get", id)
	require.NotContains(t, shown, "canary")
	require.Contains(t, rows(t, shown), []string{"headers", "X-Empty=… X-Token=…"})

	// An update of one setting leaves the others; null restores a default.
	b.ok("endpoints", "update", id, `--retry-policy={"preset":"fast","max_attempts":2}`, "--no-auto-replay", "--description=")
	got := b.json("endpoints", "get", id)
	require.InDelta(t, 2, got["retry_policy"].(map[string]any)["max_attempts"], 0)
	require.Equal(t, false, got["auto_replay"])
	require.Empty(t, got["description"])
	require.Equal(t, "7s", got["timeout"])
	require.Equal(t, "endpoint", got["retry_policy_source"])
	b.ok("endpoints", "update", id, "--retry-policy=null")
	got = b.json("endpoints", "get", id)
	require.Equal(t, "installation", got["retry_policy_source"])
	require.Equal(t, "default", got["retry_policy"].(map[string]any)["preset"])
	b.ok("endpoints", "update", id, "--timeout=auto")
	require.Equal(t, "auto", b.json("endpoints", "get", id)["timeout"])
	require.Contains(t, rows(t, b.ok("endpoints", "get", id)), []string{"timeout", "auto"})
	file := filepath.Join(t.TempDir(), "settings.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"timeout":null}`), 0o600))
	b.ok("endpoints", "update", id, "--data=@"+file)
	require.Equal(t, "15s", b.json("endpoints", "get", id)["timeout"])
}

// Stored credentials are not kept when the URL moves to another host.
func TestEndpointURLChangeDropsCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint("--header=X-Token: canary")
	line := b.fails("endpoints", "update", id, "--endpoint-url=https://elsewhere.example")
	require.Contains(t, line, "everpost: headers: is set and does not follow the URL")
	require.NotContains(t, line, "canary")
	line = b.fails("endpoints", "update", id, "--endpoint-url=https://elsewhere.example", "--header=X-Token: [redacted]")
	require.Contains(t, line, "everpost: headers.X-Token: ")
	b.ok("endpoints", "update", id, "--endpoint-url=https://elsewhere.example", "--header=X-Token: mine")
	b.ok("endpoints", "update", id, "--endpoint-url=https://third.example", `--data={"headers":null}`)
	require.Equal(t, map[string]any{}, b.json("endpoints", "get", id)["headers"])
}

func TestBadEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint()
	for _, c := range []struct {
		flag, want string
	}{
		{"--endpoint-url=http://example.com", "everpost: url: only https is allowed"},
		{"--timeout=1h", "everpost: timeout: "},
		{"--payload-format=canon", `everpost: payload_format: must be "raw" or "envelope"; got "canon"`},
		{"--timeout=soon", `everpost: timeout: must be "auto", or a duration from "1s" to "30s"; got "soon"`},
		{"--retry-policy=slow", "everpost: retry_policy"},
		{`--retry-policy={"base":`, "everpost: --retry-policy: is not JSON"},
		{`--retry-policy={"base":"-1s"}`, "everpost: retry_policy.base: "},
		{"--header=canary", "everpost: --header: must be of the form 'Name: value'"},
		{"--header=: canary", "everpost: --header: must be of the form 'Name: value'"},
		{"--header=webhook-id: x", "everpost: headers.webhook-id: "},
		{"--data=[]", "everpost: --data: must be a JSON object"},
		{"--data=null", "everpost: --data: must be a JSON object"},
		{"--data=canary", "everpost: --data: is not JSON"},
		{`--data={"colour":1}`, "everpost: colour: "},
		{"--data={}", "everpost: endpoints update: say what is to change"},
	} {
		line := b.fails("endpoints", "update", id, c.flag)
		require.Contains(t, line, c.want, c.flag)
		require.NotContains(t, line, "canary", c.flag)
	}
	require.Contains(t, b.fails("endpoints", "update", id, "--header=A: 1", "--header=A: 2"), "--header: A is given more than once")
	require.Contains(t, b.fails("endpoints", "update", id), "say what is to change")
	require.Contains(t, b.fails("endpoints", "create", "ftp://example.com"), "everpost: url: ")
	require.Contains(t, b.fails("endpoints", "get", webhook.NewEventID().String()), "is not an id of the form ep_…")
}
