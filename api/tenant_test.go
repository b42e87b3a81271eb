package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestTenantShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusCreated, "operator", "PUT", "/v1/tenants/Acme_2-x", `{"name":"Acme"}`)
	require.Equal(t, `{"id":"Acme_2-x","name":"Acme","contact":null,"metadata":{},`+
		`"limits":{"requests_per_second":null,"burst":null,"endpoints":null,"pending_deliveries":null,"endpoints_per_event":null,`+
		`"running_replays":null,"other_requests_per_second":null,"other_burst":null},`+
		`"retention":{"payloads":null,"attempts":null,"deliveries":null},"retry_policy":null,`+
		`"state":"active","deletion":null,"created_at":"2026-01-31T09:30:00.123456Z",`+
		`"updated_at":"2026-01-31T09:30:00.123456Z"}`, strings.TrimSpace(a.text))
	require.Equal(t, "req-1", b.actors[0].RequestID)
	require.False(t, b.actors[0].KeyID.IsZero())

	a = b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/Acme_2-x", `{"contact":"ops@acme.example","metadata":{"plan":"<b>"},"name":null}`)
	require.Equal(t, a.text, b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants/Acme_2-x", "").text)
	require.Empty(t, a.json["name"], "PUT replaces")
	require.Contains(t, a.text, `"<b>"`, "HTML characters are not escaped")

	list := b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants?limit=2", "")
	require.Len(t, list.json["data"], 2)
	list = b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants?limit=2&cursor="+list.json["next_cursor"].(string), "")
	require.Equal(t, "other", list.json["data"].([]any)[0].(map[string]any)["id"])
	require.Nil(t, list.json["next_cursor"])

	b.ok(t, http.StatusNoContent, "operator", "DELETE", "/v1/tenants/Acme_2-x", "")
	b.ok(t, http.StatusNotFound, "operator", "DELETE", "/v1/tenants/Acme_2-x", "")
	b.endpoint(t)
	require.Equal(t, "the tenant still has endpoints", b.ok(t, http.StatusConflict, "operator", "DELETE", "/v1/tenants/acme", "").json["detail"])
}

func TestUpdateTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/acme",
		`{"name":"Acme","contact":"ops","metadata":{"plan":"a","team":"b"},"limits":{"burst":5,"endpoints":3,"requests_per_second":2.5}}`)
	shows := func(body, name, contact, metadata, limits string) {
		t.Helper()
		a := b.ok(t, http.StatusOK, "operator", "PATCH", "/v1/tenants/acme", body)
		var view struct {
			Name     string          `json:"name"`
			Contact  json.RawMessage `json:"contact"`
			Metadata json.RawMessage `json:"metadata"`
			Limits   json.RawMessage `json:"limits"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.text), &view))
		require.Equal(t, []string{name, contact, metadata, limits}, []string{view.Name, string(view.Contact), string(view.Metadata), string(view.Limits)}, body)
		require.Equal(t, a.text, b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants/acme", "").text)
	}
	limits := func(rate, burst, endpoints, pending string) string {
		return `{"requests_per_second":` + rate + `,"burst":` + burst + `,"endpoints":` + endpoints +
			`,"pending_deliveries":` + pending + `,"endpoints_per_event":null,"running_replays":null,"other_requests_per_second":null,"other_burst":null}`
	}
	shows(`{}`, "Acme", `"ops"`, `{"plan":"a","team":"b"}`, limits("2.5", "5", "3", "null"))
	shows(`{"name":"New"}`, "New", `"ops"`, `{"plan":"a","team":"b"}`, limits("2.5", "5", "3", "null"))
	shows(`{"limits":{"burst":9,"pending_deliveries":100}}`, "New", `"ops"`, `{"plan":"a","team":"b"}`, limits("2.5", "9", "3", "100"))
	shows(`{"limits":{"burst":null,"requests_per_second":null}}`, "New", `"ops"`, `{"plan":"a","team":"b"}`, limits("null", "null", "3", "100"))
	shows(`{"contact":null,"metadata":{"plan":"c"}}`, "New", `null`, `{"plan":"c"}`, limits("null", "null", "3", "100"))
	shows(`{"limits":null,"metadata":null,"name":null}`, "", `null`, `{}`, limits("null", "null", "null", "null"))
	require.Equal(t, "req-1", b.actors[len(b.actors)-1].RequestID)

	b.ok(t, http.StatusNotFound, "operator", "PATCH", "/v1/tenants/nobody", `{}`)
	b.ok(t, http.StatusForbidden, "admin", "PATCH", "/v1/tenants/acme", `{}`)
	b.refused(t, "operator", "PATCH", "/v1/tenants/acme", ``, "body", "is required")
	b.refused(t, "operator", "PATCH", "/v1/tenants/acme", `{"id":"x","limits":{"burst":0,"x":1},"name":1}`,
		"id", "is not a known field", "limits.burst", "must be a whole number from 1 to 1000000", "limits.x", "is not a known field",
		"name", "must be a string")
	b.refused(t, "operator", "PATCH", "/v1/tenants/nobody", `{"name":1}`, "name", "must be a string")
}

// A retention is changed part by part, and is never longer than the installation's.
func TestTenantRetention(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Retention = 240 * time.Hour })
	const path = "/v1/tenants/acme"
	kept := func(method, body string) any {
		return b.ok(t, http.StatusOK, "operator", method, path, body).json["retention"]
	}
	require.Equal(t, map[string]any{"payloads": "1h", "attempts": "36h", "deliveries": "240h"},
		kept("PATCH", `{"retention":{"payloads":"60m","attempts":"36h","deliveries":"240h"}}`))
	require.Equal(t, webhook.Retention{Payloads: time.Hour, Attempts: 36 * time.Hour, Deliveries: 240 * time.Hour}, b.tenants["acme"].Retention)
	require.Equal(t, map[string]any{"payloads": "1h", "attempts": nil, "deliveries": "24h"},
		kept("PATCH", `{"retention":{"attempts":null,"deliveries":"24h"}}`))
	require.Equal(t, "1h", b.ok(t, http.StatusOK, "admin", "GET", path, "").json["retention"].(map[string]any)["payloads"])
	b.ok(t, http.StatusForbidden, "admin", "PATCH", path, `{"retention":null}`)
	none := map[string]any{"payloads": nil, "attempts": nil, "deliveries": nil}
	require.Equal(t, none, kept("PATCH", `{"retention":null}`))
	kept("PATCH", `{"retention":{"payloads":"2h"}}`)
	require.Equal(t, none, kept("PUT", `{}`))

	const why = `": the installation keeps nothing for longer, because it removes whole days`
	b.refused(t, "operator", "PATCH", path, `{"retention":{"payloads":"241h","attempts":"59m","deliveries":"23h","events":"1h"}}`,
		"retention.payloads", `must be a duration from "1h" to "240h`+why, "retention.attempts", `must be a duration from "1h" to "240h`+why,
		"retention.deliveries", `must be a duration from "24h" to "240h`+why, "retention.events", "is not a known field")
	b.refused(t, "operator", "PATCH", path, `{"retention":{"payloads":3600}}`, "retention.payloads", "must be a string")
	b = setup(t, func(c *Config) { c.Retention = 2 * time.Hour })
	b.refused(t, "operator", "PUT", path, `{"retention":{"deliveries":"24h"}}`, "retention.deliveries", `must be a duration from "2h" to "2h`+why)
}

func TestTenantRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const tenant = "/v1/tenants/new"
	b.refused(t, "operator", "PUT", "/v1/tenants/a%20b", `{}`, "id", "must be 1 to 64 of A-Z, a-z, 0-9, _ and -")
	b.refused(t, "operator", "PUT", "/v1/tenants/"+strings.Repeat("a", 65), `{}`, "id", "must be 1 to 64 of A-Z, a-z, 0-9, _ and -")
	b.refused(t, "operator", "PUT", tenant, ``, "body", "is required")
	b.refused(t, "operator", "PUT", tenant, `{"id":"x","name":1,"contact":""}`,
		"id", "is not a known field", "name", "must be a string", "contact", "must be 1 to 255 printable characters")
	b.refused(t, "operator", "PUT", tenant, `{"name":"a\nb"}`, "name", "must be at most 255 printable characters")
	b.refused(t, "operator", "PUT", tenant, `{"metadata":{"":"x","a":1,"b":"`+strings.Repeat("x", 513)+`"}}`,
		"metadata.", "must have a name of 1 to 64 printable characters", "metadata.a", "must be a string",
		"metadata.b", "must be at most 512 printable characters")

	entries := map[string]string{}
	for i := range webhook.MaxMetadata {
		entries[strconv.Itoa(i)] = strings.Repeat("ä", maxMetaValue)
	}
	text, err := json.Marshal(map[string]any{"metadata": entries})
	require.NoError(t, err)
	b.ok(t, http.StatusCreated, "operator", "PUT", tenant, string(text))
	entries["one more"] = ""
	text, err = json.Marshal(map[string]any{"metadata": entries})
	require.NoError(t, err)
	b.refused(t, "operator", "PUT", tenant, string(text), "metadata", "has more than 50 entries")
}

func TestTenantKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys = "/v1/tenants/acme/keys"
	a := b.ok(t, http.StatusCreated, "admin", "POST", keys, `{"scope":"ingest","name":"backend","expires_at":"2026-02-01T00:00:00+02:00"}`)
	require.Equal(t, "2026-01-31T22:00:00.000000Z", a.json["expires_at"])
	id, sum, err := ParseKey(a.json["key"].(string))
	require.NoError(t, err)
	require.Equal(t, a.json["id"], id.String())
	stored := b.memory.keys[len(b.memory.keys)-1]
	require.Equal(t, webhook.Key{ID: id, TenantID: "acme", Scope: webhook.ScopeIngest, Name: "backend", SHA256: sum,
		CreatedAt: testNow(), ExpiresAt: stored.ExpiresAt}, stored)

	b.keys["new"] = a.json["key"].(string)
	b.ok(t, http.StatusOK, "new", "GET", "/v1/tenants/acme/events", "")
	list := b.ok(t, http.StatusOK, "admin", "GET", keys+"?limit=1", "")
	require.Equal(t, id.String(), list.json["data"].([]any)[0].(map[string]any)["id"], "newest first")
	require.NotContains(t, list.text, "evk_")
	b.ok(t, http.StatusNoContent, "admin", "DELETE", keys+"/"+id.String(), "")
	b.ok(t, http.StatusUnauthorized, "new", "GET", "/v1/tenants/acme/events", "")

	b.refused(t, "admin", "POST", keys, `{}`, "scope", "is required")
	b.refused(t, "admin", "POST", keys, `{"scope":"operator"}`, "scope", `must be "ingest" or "admin"`)
	b.refused(t, "admin", "POST", keys, `{"scope":"admin","expires_at":"2026-01-31T09:30:00.123456Z","key":"evk_"}`,
		"expires_at", "must be in the future", "key", "is not a known field")
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/keys", `{"scope":"admin"}`)
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/keys", "")
}

// With everything, a tenant is deleted with its endpoints, and is shown while it is being removed.
func TestDeleteEverythingOfATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	const path = "/v1/tenants/acme"
	b.refused(t, "operator", "DELETE", path+"?everything=yes", "", "everything", "must be true or false")
	b.ok(t, http.StatusForbidden, "admin", "DELETE", path+"?everything=true", "")
	require.Equal(t, "active", b.ok(t, http.StatusOK, "admin", "GET", path, "").json["state"])
	for _, query := range []string{"", "?everything=false"} {
		b.ok(t, http.StatusConflict, "operator", "DELETE", path+query, "")
	}
	a := b.ok(t, http.StatusAccepted, "operator", "DELETE", path+"?everything=true", "")
	require.Equal(t, "deleting", a.json["state"])
	b.deletions["acme"] = webhook.TenantDeletion{Since: testNow(), Table: "events", Rows: 1200}
	a = b.ok(t, http.StatusOK, "operator", "GET", path, "")
	require.Equal(t, map[string]any{"since": "2026-01-31T09:30:00.123456Z", "table": "events", "rows_removed": 1200.0}, a.json["deletion"])
	b.ok(t, http.StatusNotFound, "operator", "GET", path+"/endpoints", "")
	delete(b.deletions, "acme")
	b.ok(t, http.StatusNotFound, "operator", "GET", path, "")
}
