package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// A page in a browser that has its own name resolve to the admin listener gets nothing, and one of
// another site gets no profile.
func TestAdminKeepsPagesOut(t *testing.T) {
	t.Parallel()
	o := options(t, "postgres://localhost/x")
	o.Config.AdminHosts = config.Hosts{Names: []string{"api"}}
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	defer a.Stop()
	a.adminListen = at("127.0.0.1:8081")
	ask := func(host, path string, header ...string) int {
		r := httptest.NewRequest(http.MethodGet, "http://x"+path, http.NoBody)
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		admin{a}.handler().ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{"/healthz", "/metrics", "/debug/pprof/goroutine", settingsPath} {
		for host, want := range map[string]int{
			"127.0.0.1:8081": http.StatusOK, "10.1.2.3:8081": http.StatusOK, "localhost:8081": http.StatusOK, "api:8081": http.StatusOK, "": http.StatusOK,
			"evil.example": http.StatusForbidden, "worker:8081": http.StatusForbidden,
		} {
			require.Equal(t, want, ask(host, path), "%s%s", host, path)
		}
	}
	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://127.0.0.1:8080"}} {
		for _, path := range []string{settingsPath, "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/trace", "/debug/pprof/symbol", "/debug/pprof/heap"} {
			require.Equal(t, http.StatusForbidden, ask("127.0.0.1:8081", path, from...), "%s %s", path, from)
		}
		require.Equal(t, http.StatusOK, ask("127.0.0.1:8081", "/healthz", from...), "a link leads there")
	}
	require.Equal(t, http.StatusOK, ask("127.0.0.1:8081", "/debug/pprof/", "Sec-Fetch-Site", "none"))
}

// at is a listener that is bound to an address.
func at(address string) net.Listener {
	return boundTo{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
}

type boundTo struct {
	net.Listener

	addr net.Addr
}

func (l boundTo) Addr() net.Addr { return l.addr }

// Where others reach the admin listener, profiles need an operator's key, and a process that cannot check one serves none.
func TestProfilesBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, api := range []bool{true, false} {
		o := options(t, "postgres://localhost/x")
		o.API = api
		a, err := New(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(a.Stop)
		for address, want := range map[string]int{
			"127.0.0.1:8081": http.StatusOK, "[::1]:8081": http.StatusOK,
			"0.0.0.0:8081":  map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusForbidden}[api], // keys cannot be checked before the start
			"[::]:8081":     map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusForbidden}[api],
			"10.1.2.3:8081": map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusForbidden}[api],
		} {
			a.adminListen = at(address)
			for path, status := range map[string]int{"/debug/pprof/goroutine": want, settingsPath: want, "/healthz": http.StatusOK, "/metrics": http.StatusOK} {
				w := httptest.NewRecorder()
				admin{a}.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, http.NoBody))
				require.Equal(t, status, w.Code, "%s at %s", path, address)
			}
		}
	}
}

// Whatever opens the database sees to it that it is not spoken to in the clear by accident.
func TestDatabaseElsewhere(t *testing.T) {
	t.Parallel()
	const address, want = "postgres://u:canary@db.example/x", "EVERPOST_DATABASE_URL: PostgreSQL at db.example, port 5432, is not on this machine"
	_, newErr := New(t.Context(), options(t, address))
	_, keysErr := OpenKeys(t.Context(), config.Config{DatabaseURL: address}, nil)
	_, rewrapErr := OpenRewraps(t.Context(), address, config.KEKs{KEK: kek}, nil)
	for _, err := range []error{newErr, keysErr, rewrapErr, Migrate(t.Context(), config.Config{DatabaseURL: address}, nil)} {
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "canary")
	}
	require.NoError(t, CheckDatabase(address+"?sslmode=disable"))
	require.EqualError(t, CheckDatabase("host=localhost password=canary"),
		"EVERPOST_DATABASE_URL: must be a URL of the form postgres://user:password@host:5432/database")
}

// A key that can be guessed encrypts nothing, and is read with until it is replaced.
func TestWeakKEK(t *testing.T) {
	t.Parallel()
	const weak = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	_, err := loadVault(config.KEKs{KEK: weak})
	require.ErrorContains(t, err, "EVERPOST_KEK: parse key-encryption key: it is not random: ")
	require.ErrorContains(t, err, "'openssl rand -base64 32' makes another")
	require.NotContains(t, err.Error(), weak)
	keys, err := loadVault(config.KEKs{KEK: kek, KEKOld: []string{weak}})
	require.NoError(t, err)
	keys.Close()
}
