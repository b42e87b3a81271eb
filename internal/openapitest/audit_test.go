package openapitest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/webhook"
)

// isAudited reports whether an operation must be in the audit log: every change that needs
// more than an ingest key, reading a secret, and an export. previewReplay and testFilter are POSTs that change nothing.
func isAudited(t *testing.T, o openapitest.Operation) bool {
	t.Helper()
	scope, open := scopeOf(t, o)
	if o.ID == "previewReplay" || o.ID == "testFilter" {
		return false
	}
	return !open && (o.Method != http.MethodGet && scope > webhook.ScopeIngest || o.ID == "getEndpointSecret" || o.ID == "exportTenant")
}

// prepared returns a request that causes a change, and the key that may make it.
func (w *world) prepared(o openapitest.Operation) (as, path, body string) {
	w.Helper()
	as, tenant, id := "admin", own, ""
	if scope, _ := scopeOf(w.T, o); scope == webhook.ScopeOperator {
		as = "operator"
	}
	switch {
	case o.ID == "deleteTenant":
		tenant = "gone-" + strings.ToLower(o.Method)
		w.ok(http.StatusCreated, "operator", "PUT", "/v1/tenants/"+tenant, `{}`)
	case o.ID == "eraseEventPayloads":
		external := fmt.Sprintf("erased-%d", w.made.Add(1))
		w.ok(http.StatusAccepted, as, "POST", "/v1/tenants/"+own+"/events", fmt.Sprintf(`{"type":"no.match","payload":1,"external_id":%q}`, external))
		return as, strings.Replace(o.Path, "{tenant}", own, 1), fmt.Sprintf(`{"external_ids":[%q]}`, external)
	case strings.Contains(o.Path, "{id}"):
		id = w.make(own, o)
	case strings.Contains(o.Path, "{name}"):
		return as, strings.Replace(o.Path, "{name}", w.eventType(), 1), w.body(o, own)
	}
	return as, strings.NewReplacer("{tenant}", tenant, "{id}", id).Replace(o.Path), w.body(o, own)
}

// Every operation that changes something writes an audit entry with the request's id.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	adminKey, _, err := api.ParseKey(w.keys["admin"])
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "privacy.md"))
	require.NoError(t, err)
	audited, did := 0, map[string][]string{}
	for _, o := range document().Operations() {
		if !isAudited(t, o) {
			continue
		}
		as, path, body := w.prepared(o)
		a := w.do(as, o.Method, path, body, "X-Request-Id", "audited-"+o.ID)
		require.Less(t, a.status, 300, "%s: %s", o.ID, a.text)
		entries, err := w.store.Audit.ListAudit(t.Context(), webhook.AuditFilter{}, webhook.Page{Limit: 5})
		require.NoError(t, err)
		require.NotEmpty(t, entries, o.ID)
		found := false
		for _, e := range entries {
			if e.By.RequestID != "audited-"+o.ID {
				continue
			}
			found = true
			require.False(t, e.By.KeyID.IsZero(), o.ID)
			if as == "admin" {
				require.Equal(t, adminKey, e.By.KeyID, o.ID)
				require.Equal(t, own, e.TenantID, o.ID)
			}
			require.Equal(t, "127.0.0.1", e.By.Source.String(), o.ID)
			require.Contains(t, string(page), "`"+e.Action+"`", "%s: docs/privacy.md lists the actions", o.ID)
			require.NotEmpty(t, e.Subject, o.ID)
			did[o.ID] = append(did[o.ID], e.Action)
		}
		require.True(t, found, "%s left no entry", o.ID)
		audited++
	}
	require.Greater(t, audited, 20)
	for id, want := range map[string]string{
		"putTenant": "tenant.replace", "updateTenant": "tenant.update", "deleteTenant": "tenant.delete", "exportTenant": "tenant.export",
		"createEndpoint": "endpoint.create", "updateEndpoint": "endpoint.update", "deleteEndpoint": "endpoint.delete",
		"pauseEndpoint": "endpoint.pause", "resumeEndpoint": "endpoint.resume", "updateRelease": "endpoint.release", "testEndpoint": "endpoint.test",
		"getEndpointSecret": "endpoint.read_secret", "rotateEndpointSecret": "endpoint.rotate_secret",
		"createKey": "key.create", "revokeKey": "key.revoke", "cancelEvent": "event.cancel",
		"putEventType": "event_type.replace", "updateEventType": "event_type.update", "deleteEventType": "event_type.delete",
		"eraseEventPayload": "event.erase_payload", "eraseEventPayloads": "event.erase_payload",
		"cancelDelivery": "delivery.cancel", "updateReplay": "replay.set_rate",
	} {
		require.Contains(t, did[id], want, id)
	}
}

// Entries contain the API's names of changed fields, and neither old nor new values.
func TestTheAuditLogNamesFields(t *testing.T) {
	t.Parallel()
	w := setup(t)
	endpoint := w.endpoint(own)
	const canary = "canary-4711"
	for _, c := range []struct{ as, path, body, want string }{
		{"admin", "/endpoints/" + endpoint, `{"timeout":"auto"}`, `{"changed":["timeout"]}`},
		{"admin", "/endpoints/" + endpoint, `{"timeout":"7s"}`, `{"changed":["timeout"]}`},
		{"admin", "/endpoints/" + endpoint, `{"rate_limit_per_second":7,"max_in_flight":7}`, `{"changed":["max_in_flight","rate_limit_per_second"]}`},
		{
			"admin", "/endpoints/" + endpoint,
			`{"headers":{"X-A":"` + canary + `"},"auth":{"type":"bearer","token":"` + canary + `"}}`, `{"changed":["headers","auth"]}`,
		},
		{
			"admin", "/endpoints/" + endpoint,
			`{"auto_disable":false,"event_types":["x"],"signature":"v1a"}`, `{"changed":["event_types","auto_disable","signature"]}`,
		},
		{"operator", "", `{"contact":"` + canary + `","limits":{"burst":5}}`, `{"changed":["contact","limits.burst"]}`},
	} {
		w.ok(http.StatusOK, c.as, "PATCH", acme+c.path, c.body)
		a := w.ok(http.StatusOK, "operator", "GET", "/v1/audit?limit=1", "")
		var list struct {
			Data []struct {
				Detail  json.RawMessage
				Address string `json:"source_address"`
			}
		}
		a.into(t, &list)
		require.JSONEq(t, c.want, string(list.Data[0].Detail), c.body)
		require.Equal(t, "127.0.0.1", list.Data[0].Address)
		require.NotContains(t, a.text, canary)
	}
}

// A change is not made when its audit entry cannot be written.
func TestWithoutAnAuditEntryNothingIsChanged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	conn, err := pgx.Connect(t.Context(), w.address)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for _, o := range document().Operations() {
		if !isAudited(t, o) {
			continue
		}
		as, path, body := w.prepared(o)
		_, err := conn.Exec(t.Context(), `alter table audit_log add constraint broken check (false) not valid`)
		require.NoError(t, err)
		before := recorded(t, conn)
		w.ok(http.StatusInternalServerError, as, o.Method, path, body)
		require.Equal(t, before, recorded(t, conn), o.ID)
		_, err = conn.Exec(t.Context(), `alter table audit_log drop constraint broken`)
		require.NoError(t, err)
	}
}

// recorded returns the content of the tables that requests change, without the last use of
// keys, which is written in the background.
func recorded(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, table := range []string{
		"tenants", "api_keys", "endpoints", "endpoint_secrets", "deliveries", "outbox", "replays",
		"event_types", "event_type_versions", "audit_log",
	} {
		var rows string
		err := conn.QueryRow(t.Context(), `
			select coalesce(string_agg(row, chr(10) order by row), '')
			from (select (to_jsonb(t) - 'last_used_at')::text as row from `+pgx.Identifier{table}.Sanitize()+` t) rows`).Scan(&rows)
		require.NoError(t, err)
		all[table] = rows
	}
	return all
}

func TestTheAuditLogIsListed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.ok(http.StatusCreated, "operator", "PUT", "/v1/tenants/third", `{}`, "X-Request-Id", "third")
	endpoint := w.ok(http.StatusCreated, "admin", "POST", "/v1/tenants/acme/endpoints", `{"url":"`+w.hook+`"}`, "X-Request-Id", "made").field(t, "id")
	adminKey, _, err := api.ParseKey(w.keys["admin"])
	require.NoError(t, err)

	of := func(query string) []string {
		a := w.ok(http.StatusOK, "operator", "GET", "/v1/audit"+query, "")
		var list struct {
			Data []struct{ Action, Subject string }
		}
		a.into(t, &list)
		var found []string
		for _, e := range list.Data {
			found = append(found, e.Action+" "+e.Subject)
		}
		return found
	}
	require.Equal(t, "endpoint.create "+endpoint, of("")[0], "newest first")
	require.Equal(t, []string{"tenant.create third"}, of("?tenant=third"))
	require.Equal(t, []string{"endpoint.create " + endpoint}, of("?key="+adminKey.String()+"&action=endpoint.create"))
	require.Empty(t, of("?action=endpoint.create&tenant=third"))
	require.Empty(t, of("?until=2020-01-01T00:00:00Z"))
	require.Empty(t, of("?since=2120-01-01T00:00:00Z"))
	require.Equal(t, of(""), of("?since=2020-01-01T00:00:00Z&until=2120-01-01T00:00:00Z"))

	var paged []string
	for cursor := ""; ; {
		a := w.ok(http.StatusOK, "operator", "GET", "/v1/audit?limit=2"+cursor, "")
		var list struct {
			Data []struct{ Action, Subject string }
			Next *string `json:"next_cursor"`
		}
		a.into(t, &list)
		for _, e := range list.Data {
			paged = append(paged, e.Action+" "+e.Subject)
		}
		if list.Next == nil {
			break
		}
		cursor = "&cursor=" + *list.Next
	}
	require.Equal(t, of(""), paged)
	for _, query := range []string{"?tenant=no%20such", "?key=evk_1", "?action=", "?since=today", "?endpoint=x"} {
		w.ok(http.StatusBadRequest, "operator", "GET", "/v1/audit"+query, "")
	}
	w.ok(http.StatusForbidden, "admin", "GET", "/v1/audit?tenant=acme", "")
}
