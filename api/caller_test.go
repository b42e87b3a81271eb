package api

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// as makes a request as a caller inside the process.
func (b *bundle) as(t *testing.T, caller Caller, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	w := httptest.NewRecorder()
	b.server.As(caller).ServeHTTP(w, r)
	return w
}

func portalOf(tenant string, readOnly bool) Caller {
	return Caller{
		Key: webhook.Key{TenantID: tenant, Scope: webhook.ScopeAdmin}, Link: webhook.NewLinkID(), ReadOnly: readOnly,
		Portal: webhook.PortalOptions{Secrets: !readOnly, Filters: !readOnly, Replay: !readOnly},
	}
}

// pathOf is a path of a route with ids of the right kinds.
func pathOf(r route, tenant, endpoint, event, delivery string) string {
	path := strings.Replace(r.path, "{tenant}", tenant, 1)
	for resource, id := range map[string]string{
		"keys": webhook.NewKeyID().String(), "endpoints": endpoint, "events": event, "deliveries": delivery, "dead-letters": delivery,
		"replays": webhook.NewReplayID().String(),
	} {
		path = strings.Replace(path, resource+"/{id}", resource+"/"+id, 1)
	}
	return path
}

// Every route, as a portal: those that are listed here are open to it, and all others refused, new ones too.
func TestPortalHasItsRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	endpoint := b.endpoints[0].ID.String()
	open := []string{
		"listEndpoints", "listEndpointConditions", "getEndpoint", "getEndpointHealth", "listEndpointAttempts", "getTenantStats",
		"listEvents", "getEvent", "getEventPayload", "listEventAttempts", "listDeliveries", "getDelivery", "listAttempts",
		"listDeadLetters", "groupDeadLetters", "listReplays", "getReplay", "createEndpoint", "updateEndpoint", "deleteEndpoint",
		"listEventTypes", "getEventType", "pauseEndpoint", "resumeEndpoint", "testEndpoint", "getEndpointSecret", "rotateEndpointSecret",
		"retryDelivery", "replayDelivery", "replayDeadLetter", "previewReplay", "createReplay", "listEventMatches", "testFilter",
	}
	refused := 0
	for _, r := range routes() {
		if r.scope == scopeNone {
			continue
		}
		own := slices.Contains(open, r.id)
		status := b.as(t, portalOf("acme", false), r.method, pathOf(r, "acme", endpoint, event, delivery), "{}").Code
		if !own {
			require.Equal(t, http.StatusForbidden, status, r.id)
			refused++
			continue
		}
		require.NotEqual(t, http.StatusForbidden, status, r.id)
		if strings.Contains(r.path, "{tenant}") {
			require.Equal(t, http.StatusNotFound, b.as(t, portalOf("other", false), r.method, pathOf(r, "acme", endpoint, event, delivery), "{}").Code, r.id)
		}
	}
	require.GreaterOrEqual(t, refused, 10)
}

func TestReadOnlyCallerChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	endpoint := b.endpoints[0].ID.String()
	actors := len(b.actors)
	for _, r := range routes() {
		if r.scope == scopeNone || r.method == http.MethodGet && r.id != "getEndpointSecret" {
			continue
		}
		w := b.as(t, portalOf("acme", true), r.method, pathOf(r, "acme", endpoint, event, delivery), "{}")
		require.Equal(t, http.StatusForbidden, w.Code, "%s: %s", r.id, w.Body)
	}
	require.Len(t, b.actors, actors)
	require.Equal(t, http.StatusOK, b.as(t, portalOf("acme", true), "GET", "/v1/tenants/acme/endpoints/"+endpoint, "").Code)
	require.Equal(t, http.StatusOK, b.as(t, portalOf("acme", true), "GET", "/v1/tenants/acme/deliveries/"+delivery, "").Code)
}

// Each capability permits its operations and no others, and without "secrets" no answer has one.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	endpoint := b.endpoints[0].ID.String()
	of := map[string]string{
		"getEndpointSecret": "s", "rotateEndpointSecret": "ms", "retryDelivery": "r", "replayDelivery": "r", "replayDeadLetter": "r", "previewReplay": "r",
		"createReplay": "r", "testFilter": "f", "createEndpoint": "m", "updateEndpoint": "m", "deleteEndpoint": "m",
		"pauseEndpoint": "m", "resumeEndpoint": "m", "testEndpoint": "m",
	}
	for _, granted := range []string{"", "m", "s", "r", "f", "ms", "mr", "mf", "sr", "fr", "msfr"} {
		caller := portalOf("acme", !strings.Contains(granted, "m"))
		caller.Portal = webhook.PortalOptions{
			Secrets: strings.Contains(granted, "s"), Filters: strings.Contains(granted, "f"), Replay: strings.Contains(granted, "r"),
		}
		for _, r := range routes() {
			needs, known := of[r.id]
			if !known || r.id == "deleteEndpoint" && granted == "msfr" {
				continue
			}
			permitted := true
			for _, one := range needs {
				permitted = permitted && strings.ContainsRune(granted, one)
			}
			refused := caller.permits(r) != nil
			require.Equal(t, permitted, !refused, "%s with %q", r.id, granted)
			if refused {
				require.Equal(t, http.StatusForbidden, b.as(t, caller, r.method, pathOf(r, "acme", endpoint, event, delivery), "{}").Code, r.id)
			}
		}
	}
	caller := portalOf("acme", false)
	const path, body = "/v1/tenants/acme/endpoints", `{"url":"https://one.example/hook"}`
	require.Contains(t, b.as(t, caller, "POST", path, body).Body.String(), "whsec_")
	caller.Portal.Secrets = false
	w := b.as(t, caller, "POST", path, body)
	require.Equal(t, http.StatusCreated, w.Code)
	require.NotContains(t, w.Body.String(), "whsec_")
}

func TestPortalActsAsItsLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	_ = event
	caller := portalOf("acme", false)
	require.Equal(t, http.StatusOK, b.as(t, caller, "POST", "/v1/tenants/acme/endpoints/"+b.endpoints[0].ID.String()+"/rotate-secret", "").Code)
	by := b.actors[len(b.actors)-1]
	require.True(t, by.KeyID.IsZero())
	require.Equal(t, "console link "+caller.Link.String(), by.Name)
	require.Contains(t, b.as(t, caller, "GET", "/v1/tenants/acme/deliveries/"+delivery, "").Body.String(), `"workflow_url":null`)
}

// Nothing in a request from outside makes its sender a caller.
func TestNoHeaderMakesACaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"Caller", "X-Caller", "X-Everpost-Caller", "X-Forwarded-User", "Cookie"} {
		b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants", "", header(name, "operator"))
	}
	// And a caller's own header does not change who it is.
	r := httptest.NewRequest(http.MethodGet, "/v1/tenants", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+b.keys["operator"])
	w := httptest.NewRecorder()
	b.server.As(portalOf("acme", false)).ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
}

func TestConfirmKnowsAuthenticatedKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := New(Config{Keys: b, OperatorKey: "a preset key, as people choose them"})
	ctx := t.Context()
	key, err := server.Authenticate(ctx, b.keys["admin"])
	require.NoError(t, err)
	same, err := server.Confirm(ctx, key.ID, server.KeyHash(key), true)
	require.NoError(t, err)
	require.Equal(t, key, same)
	_, err = server.Confirm(ctx, key.ID, sha256.Sum256(nil), true)
	require.Equal(t, webhook.CodeUnauthenticated, webhook.CodeOf(err))
	_, err = server.Authenticate(ctx, "nonsense")
	require.Equal(t, webhook.CodeUnauthenticated, webhook.CodeOf(err))

	preset, err := server.Authenticate(ctx, "a preset key, as people choose them")
	require.NoError(t, err)
	hash := server.KeyHash(preset)
	require.NotEqual(t, sha256.Sum256([]byte("a preset key, as people choose them")), hash, "it can be guessed, so it is hashed slowly")
	_, err = server.Confirm(ctx, preset.ID, hash, true)
	require.NoError(t, err)
	for name, other := range map[string]string{"another": "another key", "none": ""} {
		_, err = New(Config{Keys: b, OperatorKey: other}).Confirm(ctx, preset.ID, hash, true)
		require.Equal(t, webhook.CodeUnauthenticated, webhook.CodeOf(err), name)
	}
	_, err = New(Config{Keys: b}).Confirm(ctx, preset.ID, [32]byte{}, true)
	require.Equal(t, webhook.CodeUnauthenticated, webhook.CodeOf(err), "without a preset key there is none")
}

func TestCreateConsoleLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/console-links"
	a := b.ok(t, http.StatusCreated, "admin", "POST", path, `{"scope":"manage","expires_in":"1h","return_url":"https://app.example/x"}`,
		func(r *http.Request) { r.Host = "hooks.example" })
	u, err := url.Parse(a.json["url"].(string))
	require.NoError(t, err)
	require.Equal(t, "http://hooks.example", u.Scheme+"://"+u.Host)
	token, found := strings.CutPrefix(u.Path, "/portal/links/")
	require.True(t, found)
	l := b.links[0]
	require.Equal(t, sha256.Sum256([]byte(token)), l.SHA256)
	require.Equal(t, testNow().Add(time.Hour), l.ExpiresAt)
	require.Equal(t, []any{l.ID.String(), "manage", "acme", "https://app.example/x"}, []any{a.json["id"], a.json["scope"], l.TenantID, l.ReturnURL})

	require.Equal(t, webhook.PortalOptions{Secrets: true, Filters: true, Replay: true}, l.Portal, "all, with manage")
	require.Equal(t, []any{"secrets", "filters", "replay"}, a.json["capabilities"])

	a = b.ok(t, http.StatusCreated, "operator", "POST", path, `{"scope":"view"}`)
	require.Equal(t, testNow().Add(15*time.Minute), b.links[1].ExpiresAt)
	require.Zero(t, b.links[1].Portal)
	require.Nil(t, a.json["capabilities"])
	a = b.ok(t, http.StatusCreated, "admin", "POST", path,
		`{"scope":"manage","capabilities":["replay"],"lang":"de-AT","theme":"dark","embed":true,"refresh_url":"https://app.example/again"}`)
	require.Equal(t, webhook.PortalOptions{Replay: true, Lang: "de-AT", Theme: "dark", Embed: true, RefreshURL: "https://app.example/again"}, b.links[2].Portal)
	require.Contains(t, a.json["url"], "?embed=true&lang=de-AT&theme=dark", "the page of the link is shown before it is looked up")
	b.ok(t, http.StatusCreated, "admin", "POST", path, `{"scope":"manage","capabilities":[]}`)
	require.Zero(t, b.links[3].Portal)
	b.refused(t, "admin", "POST", path, `{"scope":"view","capabilities":["all"]}`, "capabilities[0]", `must be "secrets", "filters" or "replay"`)
	b.refused(t, "admin", "POST", path, `{"scope":"view","capabilities":["replay","replay"]}`, "capabilities[1]", "is there twice")
	b.refused(t, "admin", "POST", path, `{"scope":"view","lang":"x"}`, "lang", `must be a language tag such as "de" or "pt-BR"`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, `{"scope":"view"}`)
	b.ok(t, http.StatusNotFound, "foreign", "POST", path, `{"scope":"view"}`)
	b.refused(t, "admin", "POST", path, `{"scope":"key"}`, "scope", `must be "view" or "manage"`)
	b.refused(t, "admin", "POST", path, `{"scope":"view","expires_in":"61m"}`, "expires_in", `must be a duration from "60s" to "3600s"`)
	b.refused(t, "admin", "POST", path, `{"scope":"view","return_url":"javascript:alert(1)"}`,
		"return_url", "must be an http or https URL without user information")
	b = setup(t, func(c *Config) { c.ConsoleLinks = nil })
	b.ok(t, http.StatusConflict, "admin", "POST", path, `{"scope":"view"}`)
}

func TestListEndpointConditions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, body := range []string{
		`{"url":"https://one.example/hook"}`, `{"url":"https://two.example/hook","description":"Orders"}`, `{"url":"https://three.example/hook"}`,
	} {
		b.ok(t, http.StatusCreated, "admin", "POST", "/v1/tenants/acme/endpoints", body)
	}
	const path = "/v1/tenants/acme/endpoint-conditions"
	urls := func(a answer) (all []string) {
		for _, e := range a.json["data"].([]any) {
			all = append(all, e.(map[string]any)["url"].(string))
		}
		return all
	}
	first := b.ok(t, http.StatusOK, "admin", "GET", path+"?limit=2", "")
	require.Equal(t, []string{"https://three.example/hook", "https://two.example/hook"}, urls(first))
	rest := b.ok(t, http.StatusOK, "admin", "GET", path+"?limit=2&cursor="+first.json["next_cursor"].(string), "")
	require.Equal(t, []string{"https://one.example/hook"}, urls(rest))
	require.Nil(t, rest.json["next_cursor"])
	require.Equal(t, 1, b.observations, "many readers cost as much as one")
	require.Equal(t, []string{"https://two.example/hook"}, urls(b.ok(t, http.StatusOK, "admin", "GET", path+"?text=ORDERS", "")))
	require.Empty(t, urls(b.ok(t, http.StatusOK, "admin", "GET", path+"?trouble=true", "")))
	require.Empty(t, urls(b.ok(t, http.StatusOK, "admin", "GET", path+"?state=paused", "")))
	b.refused(t, "admin", "GET", path+"?state=x&trouble=maybe", "",
		"state", `must be "active", "paused" or "disabled"`, "trouble", `must be "true" or "false"`)
	b.ok(t, http.StatusForbidden, "ingest", "GET", path, "")
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/endpoint-conditions", "")
}
