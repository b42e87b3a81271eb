package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// Looking at the page that a link opens does not use it up; its button does, once.
func TestLinkOpensOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.link(t, "acme", `{"scope":"view"}`)
	for range 3 { // previews
		b.browser(t).get(t, http.StatusOK, path)
	}
	u := b.browser(t)
	u.get(t, http.StatusOK, path)
	w, _ := u.post(t, http.StatusSeeOther, path)
	require.Equal(t, "/portal/", w.Header.Get("Location"))
	u.get(t, http.StatusOK, "/portal/endpoints")

	second := b.browser(t)
	second.get(t, http.StatusOK, path)
	_, text := second.post(t, http.StatusGone, path)
	require.Contains(t, text, "has already been used")
	third := b.browser(t)
	third.get(t, http.StatusOK, "/portal/links/nonsense")
	third.post(t, http.StatusGone, "/portal/links/nonsense")
}

func TestLinksAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, says := range map[string]string{
		`{}`: "scope: is required", `{"scope":"all"}`: `must be "view" or "manage"`, `{"scope":"view","expires_in":"2h"}`: "expires_in",
		`{"scope":"view","return_url":"javascript:alert(1)"}`:  "must be an http or https URL",
		`{"scope":"view","refresh_url":"javascript:alert(1)"}`: "must be an http or https URL",
		`{"scope":"view","capabilities":["all"]}`:              `must be "secrets", "filters" or "replay"`,
		`{"scope":"view","lang":"klingon language"}`:           "must be a language tag",
		`{"scope":"view","theme":"pink"}`:                      `must be "auto", "light" or "dark"`, `{"scope":"view","embed":"yes"}`: "must be true or false",
	} {
		answer := b.api(t, http.StatusBadRequest, "POST", "/v1/tenants/acme/console-links", body)
		require.Contains(t, answer["detail"], says, body)
	}
	b.api(t, http.StatusNotFound, "POST", "/v1/tenants/nobody/console-links", `{"scope":"view"}`)

	off := setup(t, func(c *config.Config) { c.ConsoleSwitch = "off" })
	off.api(t, http.StatusConflict, "POST", "/v1/tenants/acme/console-links", `{"scope":"view"}`)
	off.api(t, http.StatusNotFound, "GET", "/console/login", "")
}

// What a portal changes is in the audit log under the link, and the link under the key that made it.
func TestAuditLogNamesTheLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	made := b.api(t, http.StatusCreated, "POST", "/v1/tenants/acme/console-links", `{"scope":"manage"}`)
	link, err := url.Parse(made["url"].(string))
	require.NoError(t, err)
	u := b.browser(t)
	u.get(t, http.StatusOK, link.Path)
	u.post(t, http.StatusSeeOther, link.Path)
	u.get(t, http.StatusOK, "/portal/endpoints/"+id+"/pause")
	u.post(t, http.StatusSeeOther, "/portal/endpoints/"+id+"/pause")
	_, text := u.post(t, http.StatusOK, "/portal/endpoints/"+id+"/secret")
	require.Contains(t, text, "whsec_")

	for _, action := range []string{"endpoint.pause", "endpoint.read_secret"} {
		text, err := json.Marshal(b.api(t, http.StatusOK, "GET", "/v1/audit?tenant=acme&action="+action, "")["data"])
		require.NoError(t, err)
		require.Contains(t, string(text), `"actor":"console link `+made["id"].(string)+`"`)
		require.Contains(t, string(text), `"key_id":null`)
		require.Contains(t, string(text), `"source_address":"127.0.0.1"`)
	}
	for _, action := range []string{"console_link.create", "console.log_in"} {
		text, err := json.Marshal(b.api(t, http.StatusOK, "GET", "/v1/audit?tenant=acme&action="+action, "")["data"])
		require.NoError(t, err)
		require.Contains(t, string(text), made["id"].(string), action)
		require.NotContains(t, string(text), strings.TrimPrefix(link.Path, "/portal/links/"), "the token is a secret")
	}
}

func TestPortalInAFrame(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config.Config) { c.ConsoleFrameAncestors = []string{"https://app.example"} })
	path := b.link(t, "acme", `{"scope":"view"}`)
	u := b.browser(t)
	u.jar = nil
	w, text := u.do(t, http.MethodGet, path, nil)
	require.Contains(t, w.Header.Get("Content-Security-Policy"), "frame-ancestors https://app.example")
	require.Empty(t, w.Header.Get("X-Frame-Options"))
	form := w.Cookies()[0]
	require.True(t, form.Secure && form.Partitioned && form.SameSite == http.SameSiteNoneMode, form)
	u.with["Cookie"] = form.Name + "=" + form.Value
	w, _ = u.do(t, http.MethodPost, path, url.Values{"csrf": csrfOf.FindStringSubmatch(text)[1:]})
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	for _, c := range w.Cookies() {
		if c.Name == "everpost_portal" {
			require.True(t, c.HttpOnly && c.Secure && c.Partitioned && c.SameSite == http.SameSiteNoneMode, c)
			u.with["Cookie"] = c.Name + "=" + c.Value
		}
	}
	w, _ = u.do(t, http.MethodGet, "/portal/endpoints", nil)
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Contains(t, w.Header.Get("Content-Security-Policy"), "frame-ancestors https://app.example")

	// A session with a key is never shown in a frame, nor is the log-in page.
	key := b.loggedIn(t, "acme admin")
	for _, v := range []*browser{key, b.browser(t)} {
		w, _ := v.do(t, http.MethodGet, "/console/login", nil)
		require.Contains(t, w.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.Equal(t, "DENY", w.Header.Get("X-Frame-Options"))
	}
}
