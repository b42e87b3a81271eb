package api

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const consoleLinks = "/v1/tenants/acme/console-links"

// token makes a portal token of acme with the key, under a name for do.
func (b *bundle) token(t *testing.T, name, key, body string) answer {
	t.Helper()
	a := b.ok(t, http.StatusCreated, key, "POST", consoleLinks, body)
	b.keys[name] = a.json["token"].(string)
	return a
}

func TestCreatePortalToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.token(t, "token", "admin", `{"kind":"token","scope":"manage"}`)
	l := b.links[0]
	require.Regexp(t, `^evp_[0-9a-hjkmnp-tv-z]{85}$`, b.keys["token"])
	require.Contains(t, b.keys["token"], strings.TrimPrefix(l.ID.String(), "lnk_"), "the audit log names what a leaked token was")
	require.Equal(t, sha256.Sum256([]byte(b.keys["token"])), l.SHA256)
	require.Equal(t, []any{l.ID.String(), nil, "manage", []any{"secrets", "filters", "replay"}, "2026-01-31T10:30:00.123456Z"},
		[]any{a.json["id"], a.json["url"], a.json["scope"], a.json["capabilities"], a.json["expires_at"]})
	require.Equal(t, webhook.PortalOptions{Secrets: true, Filters: true, Replay: true}, l.Portal)

	b.token(t, "token", "operator", `{"kind":"token","scope":"view","capabilities":["replay"],"expires_in":"5m"}`)
	require.Equal(t, []any{testNow().Add(5 * time.Minute), webhook.AccessView, webhook.PortalOptions{Replay: true}},
		[]any{b.links[1].ExpiresAt, b.links[1].Access, b.links[1].Portal})
	a = b.ok(t, http.StatusCreated, "admin", "POST", consoleLinks, `{"kind":"link","scope":"view"}`)
	require.Contains(t, a.json["url"], "/portal/links/")
	require.Nil(t, a.json["token"])

	b.refused(t, "admin", "POST", consoleLinks, `{"kind":"token","scope":"view","expires_in":"61m"}`,
		"expires_in", `must be a duration from "60s" to "3600s"`)
	b.refused(t, "admin", "POST", consoleLinks, `{"kind":"key","scope":"view"}`, "kind", `must be "link" or "token"`)
	const ofLinks = "is for links: a token opens no page of Everpost"
	b.refused(t, "admin", "POST", consoleLinks,
		`{"kind":"token","scope":"view","embed":true,"lang":"de","theme":"dark","return_url":"https://a.example","refresh_url":"https://a.example"}`,
		"return_url", ofLinks, "refresh_url", ofLinks, "lang", ofLinks, "theme", ofLinks, "embed", ofLinks)
	b.ok(t, http.StatusForbidden, "ingest", "POST", consoleLinks, `{"kind":"token","scope":"view"}`)
	b.ok(t, http.StatusNotFound, "foreign", "POST", consoleLinks, `{"kind":"token","scope":"view"}`)

	for i := range b.memory.keys {
		b.memory.keys[i].ExpiresAt = testNow().Add(10 * time.Minute)
	}
	b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
	require.Equal(t, testNow().Add(10*time.Minute), b.links[len(b.links)-1].ExpiresAt, "it ends with its key")
}

// Every route, with a portal token: what a portal's session may do, and nothing else.
func TestPortalTokenHasThePortalsRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	endpoint := b.endpoints[0].ID.String()
	b.token(t, "manage", "admin", `{"kind":"token","scope":"manage"}`)
	b.token(t, "view", "operator", `{"kind":"token","scope":"view"}`)
	made, refused := len(b.links), 0
	for _, r := range routes() {
		if r.scope == scopeNone {
			continue
		}
		path := pathOf(r, "acme", endpoint, event, delivery)
		as := func(name string) int {
			return b.ask(r.method, path, "{}", "Authorization", "Bearer "+b.keys[name]).Code
		}
		if r.ofPortal() == notOfPortals {
			require.Equal(t, http.StatusForbidden, as("manage"), r.id)
			require.Equal(t, http.StatusForbidden, as("view"), r.id)
			refused++
			continue
		}
		require.Equal(t, r.ofPortal() == toLook, as("view") != http.StatusForbidden, r.id)
		if r.id != "deleteEndpoint" {
			require.NotContains(t, []int{http.StatusForbidden, http.StatusUnauthorized}, as("manage"), r.id)
		}
		if !strings.Contains(r.path, "{tenant}") {
			require.Contains(t, []string{"listEventTypes", "getEventType"}, r.id, "what all tenants may read")
			continue
		}
		require.Equal(t, http.StatusNotFound, b.do(t, "manage", r.method, pathOf(r, "other", endpoint, event, delivery), "{}").StatusCode, r.id)
	}
	require.GreaterOrEqual(t, refused, 30)
	require.Len(t, b.links, made, "a token makes no other")
	for _, path := range []string{consoleLinks, "/v1/console-links", "/v1/tenants/acme/keys"} {
		b.ok(t, http.StatusForbidden, "manage", "POST", path, `{"scope":"view","kind":"token"}`)
	}
}

// What a token may do beside its scope, and how the audit log calls it.
func TestPortalTokenHasItsCapabilities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoint(t)
	b.token(t, "plain", "admin", `{"kind":"token","scope":"manage","capabilities":[]}`)
	b.token(t, "secrets", "admin", `{"kind":"token","scope":"view","capabilities":["secrets"]}`)
	b.ok(t, http.StatusForbidden, "plain", "GET", path+"/secret", "")
	b.ok(t, http.StatusForbidden, "secrets", "POST", path+"/pause", ``)
	b.ok(t, http.StatusOK, "secrets", "GET", path+"/secret", "")
	b.ok(t, http.StatusOK, "plain", "PATCH", path, `{"description":"mine"}`)
	b.ok(t, http.StatusForbidden, "plain", "POST", path+"/rotate-secret", ``)
	a := b.token(t, "all", "admin", `{"kind":"token","scope":"manage"}`)
	b.ok(t, http.StatusOK, "all", "POST", path+"/rotate-secret", ``)
	by := b.actors[len(b.actors)-1]
	require.True(t, by.KeyID.IsZero())
	require.Equal(t, "console link "+a.json["id"].(string), by.Name)
}

func TestPortalTokenEnds(t *testing.T) {
	t.Parallel()
	const path = "/v1/tenants/acme/endpoints"
	for name, end := range map[string]func(b *bundle, now *time.Time){
		"expired": func(_ *bundle, now *time.Time) { *now = now.Add(time.Hour) },
		"revoked": func(b *bundle, _ *time.Time) {
			b.memory.keys = slices.DeleteFunc(b.memory.keys, func(k webhook.Key) bool { return k.Scope == webhook.ScopeAdmin && k.TenantID == "acme" })
		},
		"tenant deleted": func(b *bundle, _ *time.Time) { delete(b.tenants, "acme") },
	} {
		now := testNow()
		clock := func() time.Time { return now }
		b := setup(t, func(c *Config) { c.Now = clock })
		b.now = clock
		b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
		b.ok(t, http.StatusOK, "token", "GET", path, "")
		end(b, &now)
		a := b.ok(t, http.StatusUnauthorized, "token", "GET", path, "")
		require.Contains(t, a.json["detail"], "the portal token is not valid, has expired", name)
		require.Equal(t, challenge+`, error="invalid_token"`, a.Header.Get("WWW-Authenticate"))
	}
}

// What is no token is not looked up, and no other credential is a token.
func TestWhatIsNoPortalToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/endpoints"
	made := b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
	link := b.ok(t, http.StatusCreated, "admin", "POST", consoleLinks, `{"scope":"view"}`).json["url"].(string)
	text := b.keys["token"]
	for name, given := range map[string]string{
		"id": made.json["id"].(string), "truncated": text[:len(text)-1], "changed": text[:40] + "0" + text[41:] + "", "longer": text + "0",
		"as a key": "evk_" + text[4:], "of a link": link[strings.LastIndex(link, "/")+1:], "prefix": "evp_", "key as a token": "evp_" + b.keys["admin"][4:],
	} {
		if given == text { // the character was there before
			continue
		}
		b.keys[name] = given
		a := b.ok(t, http.StatusUnauthorized, name, "GET", path, "")
		require.Contains(t, a.json["detail"], "the given ", name)
		require.NotContains(t, a.text, text[10:30], name)
	}
	require.Zero(t, b.tokenReads)
	invented, _ := newPortalToken(webhook.NewLinkID())
	b.keys["invented"] = invented
	for range 3 {
		b.ok(t, http.StatusUnauthorized, "invented", "GET", path, "")
	}
	require.Equal(t, 1, b.tokenReads)

	_, err := b.server.Authenticate(t.Context(), text)
	require.Equal(t, webhook.CodeUnauthenticated, webhook.CodeOf(err), "it logs in nowhere")
	preset := "evp_ is how the operator's phrase begins"
	b = setup(t, func(c *Config) { c.OperatorKey = preset })
	b.keys["preset"] = preset
	b.ok(t, http.StatusOK, "preset", "GET", "/v1/tenants", "")

	b = setup(t, func(c *Config) { c.ConsoleLinks = nil })
	b.ok(t, http.StatusConflict, "admin", "POST", consoleLinks, `{"kind":"token","scope":"view"}`)
	b.keys["token"] = text
	b.ok(t, http.StatusUnauthorized, "token", "GET", path, "")
}

// A session without a link would be the tenant's admin, and one of a key is no portal's.
func TestOnlyPortalsSessionsAreTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/endpoints"
	b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
	stored := b.links[0]
	b.links[0].ID = webhook.LinkID{}
	b.ok(t, http.StatusUnauthorized, "token", "GET", path, "")
	b.links[0] = stored
	b.links[0].Access = webhook.AccessKey
	b.ok(t, http.StatusUnauthorized, "token", "GET", path, "")
	b.links[0] = stored
	b.ok(t, http.StatusOK, "token", "GET", path, "")
}

// A customer's page does not use up the limit of the product's own requests.
func TestPortalTokensCountAsPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/events"
	b.token(t, "token", "admin", `{"kind":"token","scope":"view"}`)
	b.ok(t, http.StatusOK, "operator", "PATCH", "/v1/tenants/acme", `{"limits":{"requests_per_second":0.01,"burst":1}}`)
	for range pagesBurst {
		b.ok(t, http.StatusOK, "token", "GET", path, "")
	}
	b.ok(t, http.StatusTooManyRequests, "token", "GET", path, "")
	b.ok(t, http.StatusOK, "ingest", "GET", path, "")
}
