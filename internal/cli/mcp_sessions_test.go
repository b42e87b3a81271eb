package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// One key gets ten sessions, and leaves the others to other keys.
func TestMCPSessionsOfAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	address := serveMCP(t, b.mcpCommand(""))
	greedy := b.key("acme", webhook.ScopeIngest)
	var first agent
	for i := range 10 {
		a, err := connectHTTP(t, address, greedy, nil)
		require.NoError(t, err)
		if i == 0 {
			first = a
		}
	}
	_, err := connectHTTP(t, address, greedy, nil)
	require.ErrorContains(t, err, "Service Unavailable")
	_, err = connectHTTP(t, address, b.key("acme", webhook.ScopeIngest), nil)
	require.NoError(t, err)
	require.NoError(t, first.session.Close())
	_, err = connectHTTP(t, address, greedy, nil)
	require.NoError(t, err, "one has ended")
}
