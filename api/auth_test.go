package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// fill inserts a tenant and a well-formed id that does not exist into a route's path.
func fill(r route, tenant string) string {
	id := map[string]string{
		"keys": webhook.NewKeyID().String(), "endpoints": webhook.NewEndpointID().String(), "events": webhook.NewEventID().String(),
		"deliveries":   webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID()).String(),
		"dead-letters": webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID()).String(),
		"replays":      webhook.NewReplayID().String(),
	}
	path := strings.ReplaceAll(r.path, "{tenant}", tenant)
	if parts := strings.Split(path, "/"); strings.Contains(path, "{id}") {
		path = strings.ReplaceAll(path, "{id}", id[parts[4]])
	}
	return path
}

// Every route × every kind of caller × own and foreign tenant.
func TestAuthMatrix(t *testing.T) {
	t.Parallel()
	scopes := map[string]webhook.Scope{
		"operator": webhook.ScopeOperator, "admin": webhook.ScopeAdmin, "ingest": webhook.ScopeIngest, "foreign": webhook.ScopeAdmin,
	}
	for _, r := range routes() {
		if r.scope == scopeNone {
			continue
		}
		b := setup(t)
		revoked, _ := NewKey(webhook.NewKeyID())
		for name, text := range map[string][]string{
			"garbage": {"Bearer garbage"}, "empty": {""}, "no scheme": {b.keys["operator"]}, "basic": {"Basic " + b.keys["operator"]},
			"revoked": {"Bearer " + revoked}, "twice": {"Bearer " + b.keys["operator"], "Bearer " + b.keys["operator"]},
			"mistyped": {"Bearer " + b.keys["operator"][:80] + "00000" + b.keys["operator"][85:]},
		} {
			a := b.ok(t, http.StatusUnauthorized, "", r.method, fill(r, "acme"), "", header("Authorization", text...))
			require.Equal(t, `Bearer realm="everpost", error="invalid_token"`, a.Header.Get("WWW-Authenticate"), name)
		}
		a := b.ok(t, http.StatusUnauthorized, "", r.method, fill(r, "acme"), "")
		require.Equal(t, `Bearer realm="everpost"`, a.Header.Get("WWW-Authenticate"))
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))

		tenanted := strings.Contains(r.path, "{tenant}")
		for _, caller := range []string{"operator", "admin", "ingest", "foreign"} {
			a := b.do(t, caller, r.method, fill(r, "acme"), "")
			switch {
			case caller == "foreign" && tenanted:
				require.Equal(t, http.StatusNotFound, a.StatusCode, "%s as %s", r.id, caller)
			case scopes[caller] < r.scope:
				require.Equal(t, http.StatusForbidden, a.StatusCode, "%s as %s", r.id, caller)
				require.Equal(t, "this needs a key with the scope "+r.scope.String(), a.json["detail"])
			default:
				require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError}, a.StatusCode,
					"%s as %s", r.id, caller)
			}
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		}

		if !tenanted {
			continue
		}
		// Another tenant and one that does not exist have the same response, for every caller.
		theirs := b.ok(t, http.StatusNotFound, "ingest", r.method, fill(r, "other"), "")
		missing := b.ok(t, http.StatusNotFound, "ingest", r.method, fill(r, "nobody"), "")
		malformed := b.ok(t, http.StatusNotFound, "ingest", r.method, fill(r, "no%00such%20tenant"), "")
		require.Equal(t, theirs.text, missing.text)
		require.Equal(t, theirs.text, malformed.text)
		require.Equal(t, "no such "+r.noun, theirs.json["detail"])
		if r.id != putTenantID {
			a := b.do(t, "operator", r.method, fill(r, "no%00such"), `{}`)
			require.Equal(t, http.StatusNotFound, a.StatusCode, r.id)
		}
	}
}

// Another tenant's resource under the caller's own tenant, a resource that does not exist, and a
// malformed id have the same response.
func TestForeignIDsAreNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	ids := map[string]string{"endpoints": b.endpoint(t), "events": event, "deliveries": delivery, "dead-letters": delivery}
	ids["replays"] = b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, `{"source":"dead_letters"}`).json["id"].(string)
	for _, k := range b.memory.keys {
		if k.TenantID == "acme" && k.Scope == webhook.ScopeIngest {
			ids["keys"] = k.ID.String()
		}
	}
	for _, r := range routes() {
		if !strings.Contains(r.path, "{id}") {
			continue
		}
		body := map[string]string{http.MethodPatch: `{"timeout":"10s"}`}[r.method]
		if r.id == "rescheduleDelivery" {
			body = `{"at":"2026-01-01T00:00:00Z"}`
		}
		if r.id == "updateReplay" || r.id == "updateRelease" {
			body = `{"rate_per_minute":1}`
		}
		missing := b.ok(t, http.StatusNotFound, "foreign", r.method, fill(r, "other"), body)
		kind := strings.Split(r.path, "/")[4]
		path := strings.NewReplacer("{tenant}", "other", "{id}", ids[kind]).Replace(r.path)
		require.Equal(t, missing.text, b.ok(t, http.StatusNotFound, "foreign", r.method, path, body).text, r.id)
		path = strings.NewReplacer("{tenant}", "other", "{id}", "ep_%00").Replace(r.path)
		require.Equal(t, missing.text, b.ok(t, http.StatusNotFound, "foreign", r.method, path, body).text, r.id)
	}
}

func TestMalformedKeysAreRefusedWithoutALookup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants", "", header("Authorization", "Bearer evk_"+strings.Repeat("0", 85)))
	require.Zero(t, b.lookups)
	b.ok(t, http.StatusOK, "", "GET", "/v1/tenants", "", header("Authorization", "bearer "+b.keys["operator"]))
	require.Equal(t, 1, b.lookups)
}

func TestPresetOperatorKey(t *testing.T) {
	t.Parallel()
	s := New(Config{OperatorKey: "0123456789abcdef0123456789abcdef"})
	require.True(t, s.isPreset("0123456789abcdef0123456789abcdef"))
	require.False(t, s.isPreset("0123456789abcdef0123456789abcdeF"))
	require.False(t, s.isPreset(""))
	require.False(t, New(Config{}).isPreset(""), "without a preset key, the empty key is refused")
}

// refusals counts the calls of the API's metrics.
type refusals map[string]int

func (refusals) AnsweredInside(string, int) {}

func (r refusals) AuthFailed(cause string)  { r["auth "+cause]++ }
func (r refusals) BodyRefused(cause string) { r["body "+cause]++ }

func (refusals) Answered(string, int, time.Duration) {}

// Each request whose key is refused is counted once, by cause.
func TestFailedAuthenticationIsCounted(t *testing.T) {
	t.Parallel()
	counted := refusals{}
	b := setup(t, func(c *Config) { c.Metrics = counted })
	unknown, _ := NewKey(webhook.NewKeyID())
	for text, want := range map[string]string{
		"": "auth missing", "Bearer garbage": "auth malformed", "Basic " + b.keys["operator"]: "auth malformed", "Bearer " + unknown: "auth unknown",
	} {
		clear(counted)
		option := header("Authorization", text)
		if text == "" {
			option = func(*http.Request) {}
		}
		b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants/acme", "", option)
		require.Equal(t, refusals{want: 1}, counted, text)
	}
	for _, why := range []webhook.KeyError{webhook.ErrKeyExpired, webhook.ErrKeyRevoked, webhook.ErrKeyWrongSecret} {
		clear(counted)
		b.refuseKeys = why
		b.ok(t, http.StatusUnauthorized, "admin", "GET", "/v1/tenants/acme", "")
		require.Equal(t, refusals{"auth " + string(why): 1}, counted)
	}
	b.refuseKeys = ""
	clear(counted)
	b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme", "")
	b.ok(t, http.StatusForbidden, "ingest", "GET", "/v1/tenants/acme", "")
	b.ok(t, http.StatusNotFound, "foreign", "GET", "/v1/tenants/acme", "")
	require.Empty(t, counted, "the key is valid")
}

// What is invisible around a key does not matter, and a refusal names what is wrong with text that no key can have. The text is not repeated.
func TestKeysAreReadAsTheyAreHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.keys["operator"]
	for _, around := range []string{" ", "\t", "\ufeff", "\u200b", "\u00a0", "\u2060 "} {
		b.ok(t, http.StatusOK, "", "GET", "/v1/tenants", "", header("Authorization", "Bearer "+around+key+around))
	}
	other := map[bool]string{true: "1", false: "0"}[key[88] == '0']
	const bearer = "Bearer "
	for text, want := range map[string]string{
		"Bearer " + key[:40] + "\u200b" + key[40:]: "the given key has an invisible character (U+200B) inside",
		"Bearer " + key[:40] + " " + key[40:]:      "the given key has a space inside",
		"Bearer " + key[:40]:                       "the given key is not an API key: one is evk_ and 85 characters",
		"Bearer " + key[:88] + other:               "its checksum is wrong",
		bearer:                                     `as "Authorization: Bearer evk_…"`,
		key:                                        `as "Authorization: Bearer evk_…"`,
		"Basic " + key:                             `as "Authorization: Bearer evk_…"`,
	} {
		a := b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants", "", header("Authorization", text))
		require.Contains(t, a.json["detail"], want, text)
		require.NotContains(t, a.text, key[10:40])
		require.Contains(t, a.Header.Get("WWW-Authenticate"), "invalid_token")
	}
	unknown, _ := NewKey(webhook.NewKeyID())
	a := b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants", "", header("Authorization", "Bearer "+unknown))
	require.Equal(t, "the API key is not valid, has expired or was revoked", a.json["detail"])
}
