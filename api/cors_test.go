package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const listedOrigin = "https://app.example.com"

func shared(c *Config) { c.PortalOrigins = []string{"https://first.example", listedOrigin} }

// ask sends a request without the check against the document, which has no headers of CORS. Pairs are names and values of headers.
func (b *bundle) ask(method, path, body string, pairs ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)
	return w
}

func requireNoCORS(t *testing.T, w *httptest.ResponseRecorder, what string) {
	t.Helper()
	for name := range w.Header() {
		require.False(t, strings.HasPrefix(name, "Access-Control-"), "%s has %s", what, name)
	}
}

// Every route: a preflight permits those of portals to listed origins, and nothing else.
func TestPreflight(t *testing.T) {
	t.Parallel()
	b := setup(t, shared)
	permitted := 0
	for _, r := range routes() {
		path := pathOf(r, "acme", "ep_x", "evt_x", "dlv_x")
		preflight := func(origin, method string) *httptest.ResponseRecorder {
			return b.ask(http.MethodOptions, path, "", "Origin", origin,
				"Access-Control-Request-Method", method, "Access-Control-Request-Headers", "authorization,content-type")
		}
		for _, other := range []string{
			"https://elsewhere.example", "http://app.example.com", "https://app.example.com:8443", "https://app.example.com.evil.example",
			"https://APP.example.com", "null", "https://a.app.example.com", "*",
		} {
			w := preflight(other, r.method)
			require.Equal(t, http.StatusNoContent, w.Code)
			requireNoCORS(t, w, r.id+" from "+other)
		}
		w := preflight(listedOrigin, r.method)
		require.Equal(t, http.StatusNoContent, w.Code, r.id)
		if r.ofPortal() == notOfPortals {
			requireNoCORS(t, w, r.id)
			continue
		}
		permitted++
		require.Equal(t, listedOrigin, w.Header().Get("Access-Control-Allow-Origin"), r.id)
		require.Contains(t, strings.Split(w.Header().Get("Access-Control-Allow-Methods"), ","), r.method, r.id)
		require.Equal(t, "Authorization,Content-Type,Idempotency-Key,X-Request-Id", w.Header().Get("Access-Control-Allow-Headers"))
		require.Equal(t, "3600", w.Header().Get("Access-Control-Max-Age"))
		require.Contains(t, w.Header().Values("Vary"), "Origin")
		require.NotContains(t, w.Header(), "Access-Control-Allow-Credentials")
		require.NotEmpty(t, w.Header().Get("Allow"))
	}
	require.Equal(t, 34, permitted)

	// A method that the path has for others: browsers send POST whatever Allow-Methods says.
	w := b.ask(http.MethodOptions, "/v1/tenants/acme/events", "", "Origin", listedOrigin, "Access-Control-Request-Method", "POST")
	requireNoCORS(t, w, "postEvent")
	w = b.ask(http.MethodOptions, "/v1/tenants/acme/events", "", "Origin", listedOrigin, "Access-Control-Request-Method", "GET")
	require.Equal(t, "GET", w.Header().Get("Access-Control-Allow-Methods"))
	requireNoCORS(t, b.ask(http.MethodOptions, "/elsewhere", "", "Origin", listedOrigin, "Access-Control-Request-Method", "GET"), "no route")
}

// The answers of the operations of portals can be read by listed origins, refusals too, and no others.
func TestAnswersAcrossOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t, shared)
	b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
	const path = "/v1/tenants/acme/endpoints"
	bearer := "Bearer " + b.keys["token"]
	for status, w := range map[int]*httptest.ResponseRecorder{
		http.StatusOK:           b.ask(http.MethodGet, path, "", "Origin", listedOrigin, "Authorization", bearer),
		http.StatusUnauthorized: b.ask(http.MethodGet, path, "", "Origin", listedOrigin),
		http.StatusForbidden:    b.ask(http.MethodPost, path, "", "Origin", listedOrigin, "Authorization", bearer),
		http.StatusNotFound:     b.ask(http.MethodGet, "/v1/tenants/other/endpoints", "", "Origin", listedOrigin, "Authorization", bearer),
	} {
		require.Equal(t, status, w.Code)
		require.Equal(t, listedOrigin, w.Header().Get("Access-Control-Allow-Origin"), status)
		require.Equal(t, "X-Request-Id,Retry-After,Idempotent-Replayed,WWW-Authenticate", w.Header().Get("Access-Control-Expose-Headers"))
		require.Equal(t, []string{"Origin"}, w.Header().Values("Vary"))
		require.NotContains(t, w.Header(), "Access-Control-Allow-Credentials")
	}
	w := b.ask(http.MethodGet, path, "", "Origin", "https://elsewhere.example", "Authorization", bearer)
	require.Equal(t, http.StatusOK, w.Code, "browsers keep the answer from the page; a token needs no origin")
	requireNoCORS(t, w, "an origin that is not listed")
	require.Equal(t, []string{"Origin"}, w.Header().Values("Vary"), "caches keep the answers apart")
	require.Equal(t, []string{"Origin"}, b.ask(http.MethodGet, path, "", "Authorization", bearer).Header().Values("Vary"))

	w = b.ask(http.MethodGet, "/v1/tenants/acme", "", "Origin", listedOrigin, "Authorization", "Bearer "+b.keys["admin"])
	require.Equal(t, http.StatusOK, w.Code)
	requireNoCORS(t, w, "an operation that is not of portals")
}

// The API knows no cookies: a browser that has sessions of the console and the portal is nobody to it.
func TestCookiesAreNoCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t, shared)
	b.token(t, "token", "admin", `{"kind":"token","scope":"manage"}`)
	for _, r := range routes() {
		if r.scope == scopeNone {
			continue
		}
		for _, text := range []string{b.keys["token"], b.keys["operator"]} {
			cookies := "everpost_session=" + text + "; everpost_portal=" + text + "; everpost_ui=" + text
			w := b.ask(r.method, pathOf(r, "acme", "ep_x", "evt_x", "dlv_x"), "", "Origin", listedOrigin, "Cookie", cookies)
			require.Equal(t, http.StatusUnauthorized, w.Code, r.id)
		}
	}
	require.Zero(t, b.tokenReads)
}
