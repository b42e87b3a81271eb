package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotificationsCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := func(args ...string) result {
		return call{args: append(append([]string{"notifications"}, args...), "--url="+b.url, "--key="+operatorKey)}.run(t)
	}
	r := run("set", "--tenant=acme", "--portal-url=https://app.example/hooks",
		`--data={"channels":[{"kind":"slack","target":"https://hooks.example.com/canary","on":["disabled","dead_letters"]}]}`)
	require.Zero(t, r.code, r.stderr)
	require.NotContains(t, r.stdout, "canary")
	r = run("show", "--tenant=acme")
	require.Zero(t, r.code, r.stderr)
	for _, part := range []string{
		"LAST ERROR", "nch_", "slack", "[redacted]", "disabled,dead_letters", "all", "active", "messages link to https://app.example/hooks",
	} {
		require.Contains(t, r.stdout, part)
	}
	r = run("show", "--tenant=acme", "--json")
	require.Contains(t, r.stdout, `"endpoint_ids":[]`)

	r = run("set", "--tenant=acme")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "say who is to be told")
	r = run("set", "--tenant=acme", "--email=ops@example.com")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, "this installation sends no mail")
	r = run("set", "--installation", `--data={"channels":[]}`)
	require.Zero(t, r.code, r.stderr)
	r = run("show")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "--tenant: is required")
}
