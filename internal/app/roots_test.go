package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/egress"
)

// Receivers of an authority in EVERPOST_CA_FILE are trusted, in addition to those of the system.
func TestOwnAuthority(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	receiver.Config.ErrorLog = nil
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, []byte(authority), 0o600))
	guard := newGuard(config.Config{AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ExtraPorts: config.Ports{Any: true}}, "", nil)
	send := func(path string) string {
		roots, err := (&config.Config{CAFile: path}).RootCAs()
		require.NoError(t, err)
		client := egress.New(egress.Config{Guard: guard, RootCAs: roots})
		t.Cleanup(client.Close)
		return client.Send(t.Context(), egress.Request{URL: receiver.URL}).Err
	}
	require.Regexp(t, "^tls_invalid: ", send(""))
	require.Empty(t, send(path))
}
