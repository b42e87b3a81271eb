package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/signature"
)

// deliver makes an attempt and returns the receiver's status.
func deliver(t *testing.T, d *demonstration, id, attempt string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, demoPath, strings.NewReader("{}"))
	r.Header.Set(signature.HeaderID, id)
	r.Header.Set("everpost-attempt", attempt)
	w := httptest.NewRecorder()
	d.receive(w, r)
	return w.Code
}

func always(exists bool) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return exists, nil }
}

// The receiver records requests during the report only: without a bound it would use up
// memory.
func TestDemonstrationRecordsDuringTheReportOnly(t *testing.T) {
	t.Parallel()
	d, err := openDemonstration(t.Context(), t.TempDir(), "auto", always(false), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer d.stop()
	require.True(t, d.fresh)
	for _, reporting := range []bool{false, true, false} {
		if reporting {
			secret, err := signature.GenerateHMAC(strings.NewReader(strings.Repeat("r", 64)))
			require.NoError(t, err)
			d.setReporting(true, secret)
		} else {
			d.setReporting(false, signature.Secret{})
		}
		require.Equal(t, http.StatusServiceUnavailable, deliver(t, d, "evt_1", "1"))
		require.Equal(t, http.StatusOK, deliver(t, d, "evt_1", "2"))
		if !reporting {
			require.Empty(t, d.arrivals)
			continue
		}
		require.Len(t, d.arrivals["evt_1"], 2)
		require.Error(t, d.arrivals["evt_1"][0].verified, "it was not signed")
	}
}

// On later starts the receiver listens while the demonstration's tenant exists.
func TestDemonstrationRestartsWithItsTenant(t *testing.T) {
	t.Parallel()
	for _, exists := range []bool{true, false} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "demo.addr"), []byte("127.0.0.1:0\n"), 0o600))
		d, err := openDemonstration(t.Context(), dir, "auto", always(exists), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.False(t, d.fresh)
		require.Equal(t, exists, d.server != nil)
		require.Equal(t, exists, d.exemption().Addr.IsValid())
		d.stop()
	}
	_, err := openDemonstration(t.Context(), t.TempDir(), "off", nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err, "without an earlier start the tenant is not looked up")
}
