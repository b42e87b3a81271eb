package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The operator's key of the data directory is only read for this machine.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "10.0.0.1": false, "0.0.0.0": false,
		"everpost.example": false, "localhost.example": false, "127.0.0.1.example": false, "::2": false, "": false,
	} {
		require.Equal(t, want, onThisMachine(host), host)
	}
}
