package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func TestLogInLeadsBackToThePage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	w, _ := u.do(t, http.MethodGet, "/console/t/acme/deliveries?state=held", nil)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	require.Equal(t, "/console/login?to=%2Fconsole%2Ft%2Facme%2Fdeliveries%3Fstate%3Dheld", w.Header.Get("Location"))
	require.Contains(t, u.get(t, http.StatusOK, w.Header.Get("Location")), `value="/console/t/acme/deliveries?state=held"`)
	require.Equal(t, "/console/t/acme/deliveries?state=held", u.logIn(t, "acme admin", "/console/t/acme/deliveries?state=held"))
	u.get(t, http.StatusOK, "/console/t/acme/deliveries?state=held")

	for _, elsewhere := range []string{
		"//evil.example/console", "https://evil.example/console/", "/v1/tenants", `/console/\evil`, "/console//evil.example", "javascript:alert(1)",
		"/console/login?to=/console/", "/consolexyz", "/console/links/abc",
		"/console/%6Cogin?to=/console/", "/console/%6cinks/abc", "/%63onsole/login", "/console/%2Flogin",
	} {
		require.Equal(t, "/console/", b.browser(t).logIn(t, "acme admin", elsewhere), elsewhere)
	}
}

// A form whose session has ended leads to the log-in page, and from there to the page that it was on.
func TestFormOfAnEndedSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for target, page := range map[string]string{
		"/console/t/acme/endpoints/ep_x/pause":   "/console/t/acme/endpoints/ep_x/pause",
		"/console/t/acme/deliveries/dlv_x/retry": "/console/t/acme/deliveries/dlv_x",
		"/console/logout":                        "/console/",
	} {
		w, _ := b.browser(t).do(t, http.MethodPost, target, nil)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
		require.Equal(t, "/console/login?"+url.Values{"to": {page}}.Encode(), w.Header.Get("Location"))
	}
}

func TestLogInIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	u.get(t, http.StatusOK, "/console/login")
	_, text := u.post(t, http.StatusUnauthorized, "/console/login", "key", "evk_nonsense")
	require.Contains(t, text, "not an API key")
	_, text = u.post(t, http.StatusForbidden, "/console/login", "key", b.keys["acme ingest"])
	require.Contains(t, text, "its scope is ingest")
	u.last = ""
	_, text = u.post(t, http.StatusForbidden, "/console/login", "key", operatorKey)
	require.Contains(t, text, "open for too long")

	for range 20 {
		w, _ := u.do(t, http.MethodGet, "/console/login", nil)
		require.Equal(t, http.StatusOK, w.StatusCode)
		w, _ = u.do(t, http.MethodPost, "/console/login", url.Values{"csrf": csrfOf.FindStringSubmatch(u.last)[1:], "key": {"evk_x"}})
		if w.StatusCode == http.StatusTooManyRequests {
			require.Equal(t, "60", w.Header.Get("Retry-After"))
			return
		}
	}
	require.Fail(t, "attempts are not limited")
}

func TestCookies(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config.Config) { c.ConsoleURL = "https://hooks.example" })
	u := b.browser(t)
	u.jar = nil // a browser would not send Secure cookies over http
	w, text := u.do(t, http.MethodGet, "/console/login", nil)
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Len(t, w.Cookies(), 1)
	c := w.Cookies()[0]
	require.True(t, c.HttpOnly && c.Secure && c.SameSite == http.SameSiteStrictMode && !c.Partitioned && c.Path == "/console", c)

	u.with["Cookie"] = c.Name + "=" + c.Value
	w, _ = u.do(t, http.MethodPost, "/console/login", map[string][]string{"csrf": csrfOf.FindStringSubmatch(text)[1:], "key": {operatorKey}})
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	for _, c := range w.Cookies() {
		require.True(t, c.HttpOnly && c.Secure && c.SameSite == http.SameSiteStrictMode && c.Path == "/console", c)
		require.NotContains(t, c.Value, operatorKey)
	}
}

// A browser that follows a link from another site does not send the cookie. It is led to the log-in page from
// here, which finds the session.
func TestLinkFromAnotherSiteFindsTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	u.with["Sec-Fetch-Site"] = "cross-site"
	w, _ := u.do(t, http.MethodGet, "/console/t/acme/events", nil)
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Equal(t, "0; url=/console/login?to=%2Fconsole%2Ft%2Facme%2Fevents", w.Header.Get("Refresh"))

	u = b.loggedIn(t, "acme admin")
	w, _ = u.do(t, http.MethodGet, "/console/login?to=%2Fconsole%2Ft%2Facme%2Fevents", nil)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	require.Equal(t, "/console/t/acme/events", w.Header.Get("Location"))
}

func TestSessionEndsWithItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	portal := b.portal(t, "acme", "manage") // made with the operator's key, which lives on
	u.get(t, http.StatusOK, "/console/t/acme/")
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/keys/"+b.ids["acme admin"], "")
	require.Eventually(t, func() bool {
		w, _ := u.do(t, http.MethodGet, "/console/t/acme/", nil)
		return w.StatusCode == http.StatusSeeOther && strings.HasPrefix(w.Header.Get("Location"), "/console/login")
	}, eventually, poll)
	portal.get(t, http.StatusOK, "/portal/endpoints")
}

func TestLogOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	u.get(t, http.StatusOK, "/console/tenants")
	stolen := *u
	stolen.with = map[string]string{"Cookie": cookieHeader(t, u)}
	stolen.jar = nil
	require.Equal(t, http.StatusOK, statusOf(t, &stolen, "/console/tenants"))
	u.post(t, http.StatusSeeOther, "/console/logout")
	require.Equal(t, http.StatusSeeOther, statusOf(t, &stolen, "/console/tenants"), "the session is gone, not only the cookie")
}

func statusOf(t *testing.T, u *browser, path string) int {
	t.Helper()
	w, _ := u.do(t, http.MethodGet, path, nil)
	return w.StatusCode
}

func cookieHeader(t *testing.T, u *browser) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.b.url+"/console/", http.NoBody)
	require.NoError(t, err)
	for _, c := range u.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	return r.Header.Get("Cookie")
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	path := "/console/t/acme/endpoints/" + id + "/pause"
	u.get(t, http.StatusOK, path)
	for _, with := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", "Origin": b.url},
		{"Origin": "https://evil.example"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "null"}, // browsers without Sec-Fetch-Site, as over http
	} {
		u.with = with
		u.post(t, http.StatusForbidden, path)
	}
	for _, with := range []map[string]string{{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": b.url}, {}} {
		u.with = with
		u.post(t, http.StatusForbidden, path, "csrf", "AAAA")
		u.post(t, http.StatusForbidden, path, "csrf", "")
	}
	require.Equal(t, "active", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["state"])
	u.with = map[string]string{"Origin": b.url}
	u.post(t, http.StatusSeeOther, path)
	require.Equal(t, "paused", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["state"])
}

// Behind a proxy that changes the host, the console's own address counts as its own, and no other.
func TestFormsOfTheConsoleBehindAProxy(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config.Config) { c.ConsoleURL = "http://hooks.example" })
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	path := "/console/t/acme/endpoints/" + id + "/pause"
	u.get(t, http.StatusOK, path)
	u.with = map[string]string{"Origin": "http://hooks.example.evil.example"}
	u.post(t, http.StatusForbidden, path)
	u.with = map[string]string{"Origin": "http://hooks.example"}
	u.post(t, http.StatusForbidden, path, "csrf", "AAAA")
	u.post(t, http.StatusSeeOther, path)
}

func TestTenantSeesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	foreign := b.endpoint(t, "other", "")
	event, delivery := b.event(t, "other", `{"type":"order.paid","payload":1}`)
	u := b.loggedIn(t, "acme admin")
	u.get(t, http.StatusOK, "/console/t/acme/")
	for _, path := range []string{
		"/console/t/other/", "/console/t/other/endpoints", "/console/t/other/endpoints/" + foreign, "/console/t/nobody/", "/console/t/%00/",
		"/console/t/acme/endpoints/" + foreign, "/console/t/acme/endpoints/" + foreign + "/edit", "/console/t/acme/events/" + event,
		"/console/t/acme/events/" + event + "/payload", "/console/t/acme/events/new?from=" + event,
		"/console/t/acme/deliveries/" + delivery, "/console/t/acme/deliveries/" + delivery + "/cancel", "/console/t/acme/endpoints/nonsense",
		"/console/tenants", "/console/audit", "/console/doctor",
	} {
		text := u.get(t, http.StatusNotFound, path)
		require.NotContains(t, text, "receiver.example", path)
	}
	u.get(t, http.StatusOK, "/console/t/acme/events/new")
	u.post(t, http.StatusNotFound, "/console/t/acme/deliveries/"+delivery+"/cancel")
	u.post(t, http.StatusNotFound, "/console/t/other/endpoints/"+foreign+"/pause")
	require.Equal(t, "active", b.api(t, http.StatusOK, "GET", "/v1/tenants/other/endpoints/"+foreign, "")["state"])
}
