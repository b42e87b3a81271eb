package temporald

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/primitives"

	"github.com/everpost/everpost/internal/localpg"
)

// TestPortLostToAnother: between findPorts and the server's own binding anyone can take a port.
// The server calls that fatal.
func TestPortLostToAnother(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "temporald-test-") //nolint:usetesting // the directory above TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	pg, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.WithoutCancel(t.Context()))) })
	o, err := Options{DatabaseURL: pg.URL(localpg.Database), Shards: 1}.withDefaults()
	require.NoError(t, err)
	dbs, err := openDatabases(t.Context(), o.DatabaseURL)
	require.NoError(t, err)
	require.NoError(t, dbs.migrate(t.Context(), newLogger(o.Logger, o.LogLevel)))

	found, err := findPorts(net.TCPAddr{IP: loopback})
	require.NoError(t, err)
	thief, err := net.ListenTCP("tcp", &net.TCPAddr{IP: loopback, Port: found.internal[primitives.HistoryService]})
	require.NoError(t, err)
	defer func() { require.NoError(t, thief.Close()) }()
	_, err = startServices(o, dbs, found)
	require.ErrorContains(t, err, thief.Addr().String())
	require.True(t, isAddressInUse(err), err)
}

func TestDialAddress(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:7233": "127.0.0.1:7233",
		"localhost:7233": "127.0.0.1:7233",
		"0.0.0.0:7233":   "127.0.0.1:7233",
		"[::]:7233":      "[::1]:7233",
		"[::1]:7233":     "[::1]:7233",
		"10.1.2.3:7233":  "10.1.2.3:7233",
	} {
		addr, err := parseListen(listen)
		require.NoError(t, err, listen)
		require.Equal(t, want, ports{frontend: addr}.dial(), listen)
	}
}

func TestStoreKeepsWhatTheURLSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ url, main, visibility string }{
		"socket": {
			"postgres://everpost@/everpost?host=%2Frun%2Fpg&port=5432",
			"postgres://everpost@/everpost_temporal?application_name=everpost-temporal&host=%2Frun%2Fpg&port=5432",
			"postgres://everpost@/everpost_visibility?application_name=everpost-temporal&host=%2Frun%2Fpg&port=5432&synchronous_commit=off",
		},
		"network": {
			"postgres://u%40x:p%2Fw@db:5433/x?sslmode=verify-full&pool_max_conns=9",
			"postgres://u%40x:p%2Fw@db:5433/everpost_temporal?application_name=everpost-temporal&sslmode=verify-full",
			"postgres://u%40x:p%2Fw@db:5433/everpost_visibility?application_name=everpost-temporal&sslmode=verify-full&synchronous_commit=off",
		},
	} {
		u, err := parseURL(test.url)
		require.NoError(t, err, name)
		dbs := &databases{url: u}
		require.Equal(t, test.main, dbs.storeURL(MainDatabase), name)
		require.Equal(t, test.visibility, dbs.storeURL(VisibilityDatabase), name)
	}
}
