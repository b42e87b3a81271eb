package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// product is a page of a product, at an origin of its own.
func product(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>Product</title>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// call is what a script of the page gets of a call to the API: its status, whether it can read the request's id, and the body; or "blocked".
func (w *window) call(url, token, method, body string) string {
	w.t.Helper()
	options := fmt.Sprintf(`{method: %q, headers: {Authorization: "Bearer %s"}}`, method, token)
	if body != "" {
		options = fmt.Sprintf(`{method: %q, headers: {Authorization: "Bearer %s", "Content-Type": "application/json", "Idempotency-Key": "k"}, body: %q}`,
			method, token, body)
	}
	return evaluate[string](w, fmt.Sprintf(
		`fetch(%q, %s).then(async r => r.status + " " + r.headers.has("X-Request-Id") + " " + await r.text()).catch(() => "blocked")`, url, options))
}

// TestPortalToken calls the API from the pages of two origins in a real browser, of which one is listed.
func TestPortalToken(t *testing.T) {
	t.Parallel()
	listed, other := product(t), product(t)
	in := ownInstance(t, settings{"EVERPOST_PORTAL_ORIGINS": "https://app.example.com," + listed})
	browser := startBrowser(t)
	b := newBundle(t, in, in.client(), fmt.Sprintf("customer-%d", tenants.Add(1)))
	b.endpoint(newReceiver(t), "/hook", fieldsOf{"description": "Shown by the product"})
	var made struct{ Token string }
	b.ask(http.StatusCreated, http.MethodPost, "/console-links", fieldsOf{"kind": "token", "scope": "manage"}, &made)
	require.NotEmpty(t, made.Token)
	endpoints := in.addr["api"] + "/v1/tenants/" + b.tenant + "/endpoints"

	w := browser.open(t, in)
	w.base = listed
	w.show("/", http.StatusOK)
	require.Regexp(t, `^200 true .*Shown by the product`, w.call(endpoints, made.Token, http.MethodGet, ""))
	require.Regexp(t, `^201 true .*whsec_`, w.call(endpoints, made.Token, http.MethodPost, `{"url":"`+newReceiver(t).URL()+`/other"}`))
	w.expect(http.StatusUnauthorized)
	require.Regexp(t, `^401 true `, w.call(endpoints, "evp_none", http.MethodGet, ""), "a page can read why it is refused")

	w.expectBlocked()
	require.Equal(t, "blocked", w.call(in.addr["api"]+"/v1/tenants/"+b.tenant, made.Token, http.MethodGet, ""), "an operation that is not of portals")
	w.base = other
	w.show("/", http.StatusOK)
	require.Equal(t, "blocked", w.call(endpoints, made.Token, http.MethodGet, ""))
}
