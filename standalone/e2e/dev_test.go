package e2e_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With --dev an endpoint on this machine needs no further setting, and a line says what is allowed.
func TestDev(t *testing.T) {
	t.Parallel()
	in := ownHome(t)
	for _, name := range []string{"EVERPOST_ALLOW_HTTP", "EVERPOST_ALLOWED_CIDRS", "EVERPOST_EXTRA_PORTS"} {
		delete(in.env, name)
	}
	in.env["EVERPOST_DEV"] = "true"
	require.NoError(t, in.start(contextFor(t, startPatience)))
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	_, d := b.postOne("order.paid", `{}`)
	b.waitState(d.ID, "delivered")
	require.Equal(t, 1, strings.Count(in.tail(0), "for trying out (EVERPOST_DEV): every tenant may have endpoints on this machine, over http and on any port"))
	b.ask(http.StatusBadRequest, http.MethodPost, "/endpoints", fieldsOf{"url": "http://10.0.0.1/hook"}, nil) // and no more
}

func TestDevAndItsOpposite(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	for name, value := range map[string]string{"EVERPOST_EGRESS_PROXY": "http://proxy.example:3128", "EVERPOST_ALLOW_HTTP": "false"} {
		f, err := runToEnd(contextFor(t, patience), settings{"EVERPOST_DATA_DIR": data, name: value}, "standalone", "--dev")
		require.NoError(t, err)
		requireUsage(t, f, "EVERPOST_DEV: is set together with "+name)
		require.NoDirExists(t, data, "nothing was started")
	}
}

// Listeners without authentication refuse web pages of other host names (DNS rebinding). Temporal's speaks gRPC only, which no page can.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	in := shared(t)
	for _, field := range []string{"admin", "ui"} {
		for host, want := range map[string]int{"": http.StatusOK, "evil.example": http.StatusForbidden} {
			path := map[string]string{"admin": "/metrics", "ui": "/api/v1/settings"}[field]
			request, err := http.NewRequestWithContext(contextFor(t, patience), http.MethodGet, in.addr[field]+path, http.NoBody)
			require.NoError(t, err)
			request.Host = host
			response, err := http.DefaultClient.Do(request) // not the one that holds answers against the API's contract
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, want, response.StatusCode, "%s as %q", field, host)
		}
	}
	request, err := http.NewRequestWithContext(contextFor(t, patience), http.MethodGet, "http://"+in.addr["temporal"]+"/api/v1/namespaces", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	require.Error(t, err, "it answers HTTP")
}
