package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"
)

func TestTemporalRequiresTLS(t *testing.T) {
	t.Parallel()
	for address, open := range map[string]bool{
		"": true, "localhost:7233": true, "127.0.0.1:7233": true, "[::1]:7233": true, "127.8.0.1": true,
		"temporal:7233": false, "temporal.example.com:7233": false, "10.0.0.1:7233": false, "[2001:db8::1]:7233": false, "localhost.example.com:7233": false,
	} {
		require.NoError(t, requireTemporalTLS(address, true), address)
		if open {
			require.NoError(t, requireTemporalTLS(address, false), address)
		} else {
			require.ErrorContains(t, requireTemporalTLS(address, false), "TEMPORAL_ADDRESS: the connection to "+address+" would not be encrypted")
		}
	}
}

// TEMPORAL_TLS=false permits a connection without TLS.
func TestTemporalTLSFalse(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "temporal:7233")
	o, err := envconfig.LoadDefaultClientOptions()
	require.NoError(t, err)
	require.False(t, o.ConnectionOptions.TLSDisabled)
	t.Setenv("TEMPORAL_TLS", "false")
	o, err = envconfig.LoadDefaultClientOptions()
	require.NoError(t, err)
	require.True(t, o.ConnectionOptions.TLSDisabled)
}
