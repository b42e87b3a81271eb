package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestAttention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	show := func() string {
		shown := call{args: []string{"attention", "--url=" + b.url, "--key=" + operatorKey}}.run(t)
		require.Zero(t, shown.code, shown.stderr)
		return shown.stdout
	}
	id := b.endpoint()
	b.ok("endpoints", "pause", id, "--reason=it moves")
	out := show()
	require.Regexp(t, `acme +`+id+` +paused +0 +0 +0 +paused by hand \(it moves\)`, out)
	require.Regexp(t, `acme +1 +0 +0 +0`, out)
	refused := call{args: []string{"attention", "--url=" + b.url, "--key=" + b.key("acme", webhook.ScopeAdmin)}}.run(t)
	require.NotZero(t, refused.code)
}
