package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// withMail is a process with a mail server; without a worker nothing is sent.
func withMail(c *config.Config) {
	c.SMTPURL, c.SMTPFrom, c.ConsoleURL = "smtp://127.0.0.1:1?starttls=off", "hooks@example.com", "http://hooks.example"
}

// channelsOf are the channels that the API shows of a tenant, or with "" of the installation.
func (b *bundle) channelsOf(t *testing.T, tenant string) (shown []map[string]any) {
	t.Helper()
	path := "/v1/notifications"
	if tenant != "" {
		path = "/v1/tenants/" + tenant + "/notifications"
	}
	for _, c := range b.api(t, http.StatusOK, "GET", path, "")["channels"].([]any) {
		shown = append(shown, c.(map[string]any))
	}
	return shown
}

// save makes a form's request, which leads to the list, and returns the list.
func (u *browser) save(t *testing.T, base, below string, pairs ...string) string {
	t.Helper()
	w, _ := u.post(t, http.StatusSeeOther, base+below, pairs...)
	require.Equal(t, base, w.Header.Get("Location"))
	return u.get(t, http.StatusOK, base)
}

func TestNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, withMail)
	endpoint := b.endpoint(t, "acme", `,"description":"Warehouse <b>"`)
	for base, key := range map[string]string{"/console/t/acme/notifications": "acme admin", "/console/notifications": "operator"} {
		tenant := ""
		if key == "acme admin" {
			tenant = "acme"
		}
		u := b.loggedIn(t, key)
		require.Contains(t, u.get(t, http.StatusOK, base), "Nobody is told anything.")
		form := u.get(t, http.StatusOK, base+"/new")
		require.Contains(t, form, `value="failing" checked`)
		require.Equal(t, tenant != "", strings.Contains(form, "Warehouse &lt;b&gt;"), "endpoints can be chosen")

		list := u.save(t, base, "/new", "kind", "email", "target", " ops@example.com ", "on", "disabled", "endpoint_ids", endpoint+", "+endpoint)
		require.Contains(t, list, "A mail with a link to confirm goes to ops@example.com.")
		require.Contains(t, list, `<span class="state s-unconfirmed">unconfirmed</span>`)
		require.Equal(t, tenant != "", strings.Contains(list, "Warehouse &lt;b&gt;</a>"), "named, if it is the tenant's")
		channel := b.channelsOf(t, tenant)[0]
		id := channel["id"].(string)
		require.Equal(t, []any{"ops@example.com", []any{"disabled"}, []any{endpoint}}, []any{channel["target"], channel["on"], channel["endpoint_ids"]})
		require.Contains(t, u.save(t, base, "/"+id+"/confirm"), "A mail with a link to confirm goes to ops@example.com, unless")

		form = u.get(t, http.StatusOK, base+"/"+id)
		require.Contains(t, form, `value="ops@example.com"`)
		require.Contains(t, form, `value="disabled" checked`)
		require.NotContains(t, form, `value="failing" checked`)
		list = u.save(t, base, "/"+id, "target", "ops@example.com", "on", "dead_letters")
		require.Contains(t, list, "The channel is saved.")
		require.NotContains(t, list, "to confirm goes to")
		channel = b.channelsOf(t, tenant)[0]
		require.Equal(t, []any{id, []any{"dead_letters"}, []any{}}, []any{channel["id"], channel["on"], channel["endpoint_ids"]})

		require.Contains(t, u.save(t, base, "", "portal_url", "https://app.example/hooks"), `value="https://app.example/hooks"`)
		require.Contains(t, u.get(t, http.StatusOK, base+"/"+id+"/remove"), "Tell ops@example.com nothing more?")
		list = u.save(t, base, "/"+id+"/remove")
		require.Contains(t, list, "The channel is removed.")
		require.Contains(t, list, `value="https://app.example/hooks"`, "it stays")
		u.get(t, http.StatusNotFound, base+"/"+id)
		u.post(t, http.StatusNotFound, base+"/"+id+"/confirm")
	}
	var audited int
	for _, entry := range b.api(t, http.StatusOK, "GET", "/v1/audit?action=notifications.update", "")["data"].([]any) {
		if entry.(map[string]any)["tenant_id"] == "acme" {
			audited++
		}
	}
	require.Equal(t, 5, audited)
	b.loggedIn(t, "acme admin").get(t, http.StatusNotFound, "/console/notifications")
	b.loggedIn(t, "acme admin").get(t, http.StatusNotFound, "/console/t/other/notifications")
}

// What is wrong stands beside the field, with what was typed.
func TestRefusedNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, withMail)
	u := b.loggedIn(t, "operator")
	const base = "/console/t/acme/notifications"
	u.get(t, http.StatusOK, base+"/new")
	_, form := u.post(t, http.StatusBadRequest, base+"/new", "kind", "email", "target", "Ops <ops@example.com>", "endpoint_ids", "ep_1")
	for name, said := range map[string]string{"target": "must be a mail address", "on": "must name at least one", "endpoint_ids": "is not"} {
		require.Regexp(t, `<p class="error" id="e-`+name+`">[^<]*`+regexp.QuoteMeta(said), form)
	}
	require.Contains(t, form, `value="Ops &lt;ops@example.com&gt;"`)
	requireStructure(t, base, form)
	_, form = u.post(t, http.StatusBadRequest, base+"/new", "kind", "slack", "target", "http://hooks.example/x", "on", "failing")
	require.Regexp(t, `id="e-target">[^<]*https`, form)
	_, form = u.post(t, http.StatusBadRequest, base, "portal_url", "http://app.example")
	require.Contains(t, form, `id="e-portal_url">must be an https:// URL`)
	require.Empty(t, b.channelsOf(t, "acme"))

	u.save(t, base, "/new", "kind", "slack", "target", "https://hooks.example/canary", "on", "failing")
	u.get(t, http.StatusOK, base+"/new")
	_, form = u.post(t, http.StatusBadRequest, base+"/new", "kind", "slack", "target", "https://hooks.example/canary", "on", "failing")
	require.Contains(t, form, "is that of an earlier channel", "a form that is sent twice adds one")
	id := b.channelsOf(t, "acme")[0]["id"].(string)
	require.NotContains(t, u.get(t, http.StatusOK, base)+u.get(t, http.StatusOK, base+"/"+id), "canary", "the target of a chat is a secret")
	u.save(t, base, "/"+id, "target", "", "on", "disabled")
	channel := b.channelsOf(t, "acme")[0]
	require.Equal(t, []any{id, "active", []any{"disabled"}}, []any{channel["id"], channel["state"], channel["on"]}, "it is kept")

	form = u.get(t, http.StatusOK, base+"/"+id)
	w, _ := u.do(t, http.MethodPost, base+"/"+id, map[string][]string{"csrf": {"forged"}, "on": {"failing"}})
	require.Equal(t, http.StatusForbidden, w.StatusCode)
	require.NotEmpty(t, form)
}

// What an installation cannot do is said beside the kind.
func TestKindsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t) // without a mail server
	u := b.loggedIn(t, "operator")
	const base = "/console/t/acme/notifications"
	u.get(t, http.StatusOK, base+"/new")
	_, form := u.post(t, http.StatusBadRequest, base+"/new", "kind", "email", "target", "ops@example.com", "on", "failing")
	require.Contains(t, form, `id="e-kind">this installation sends no mail`)
	u.get(t, http.StatusOK, "/console/notifications/new")
	_, form = u.post(t, http.StatusBadRequest, "/console/notifications/new", "kind", "slack", "target", "https://hooks.example/x", "on", "failing")
	require.Contains(t, form, `id="e-kind">needs EVERPOST_OPERATOR_TENANT`)
}
