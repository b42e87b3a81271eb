package console_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

// A form that the API refuses comes back with what was typed, and with what is wrong at its field.
func TestRefusedFormsKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	u.get(t, http.StatusOK, "/console/t/acme/endpoints/new")
	_, text := u.post(t, http.StatusBadRequest, "/console/t/acme/endpoints/new",
		"url", "http://receiver.example/x", "description", "My <endpoint>", "event_types", "order.paid\r\nnot valid!", "max_in_flight", "many",
		"retry_policy.preset", "fast", "retry_policy.max_attempts", "0", "auth.type", "basic", "auth.password", "hidden from view",
		"signature", "v1", "payload_format", "raw", "auto_replay", "no")
	for _, part := range []string{
		`value="http://receiver.example/x"`, `>My &lt;endpoint&gt;</textarea>`, "not valid!</textarea>", `value="many"`, `aria-invalid="true"`,
		`id="e-url">only https is allowed`, `id="e-event_types"`, `id="e-max_in_flight"`, `id="e-retry_policy.max_attempts"`, `id="e-auth.username"`,
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "hidden from view")
	for path, pairs := range map[string][]string{
		"/endpoints/" + id + "/edit":          {"url", "ftp://x", "event_types", "*"},
		"/endpoints/" + id + "/rotate-secret": {"grace", "9 years"},
		"/endpoints/" + id + "/resume":        {"rate_per_minute", "-1"},
		"/endpoints/" + id + "/test":          {"type", "a b", "payload", "1"},
		"/events/new":                         {"type", "order.paid", "payload", "{nonsense"},
		"/replays":                            {"endpoint_id", id, "source", "events", "since", "yesterday"},
	} {
		_, text := u.post(t, http.StatusBadRequest, "/console/t/acme"+path, pairs...)
		require.Contains(t, text, `role="alert"`, path)
		require.Contains(t, text, `class="error" id="e-`, path)
		for i := 1; i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i], path)
		}
	}
}

func TestEndpointFromCreationToDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/"), "Begin with an endpoint")
	u.get(t, http.StatusOK, "/console/t/acme/endpoints/new")
	_, text := u.post(t, http.StatusCreated, "/console/t/acme/endpoints/new", "url", "https://receiver.example/hook", "event_types", "order.*, user.created",
		"max_in_flight", "3", "retry_policy.preset", "fast", "retry_policy.max_attempts", "4", "retry_policy.retry_statuses", "404, 410",
		"circuit_breaker.enabled", "yes", "circuit_breaker.min_requests", "30", "auth.type", "basic", "auth.username", "shop", "auth.password", "secret",
		"headers", "X-Team: orders", "signature", "v1", "payload_format", "envelope",
		"success_statuses", "302, 303", "auto_replay", "yes")
	require.Contains(t, text, "whsec_")
	_, id, _ := strings.Cut(text, "/endpoints/ep_")
	id = "ep_" + id[:26]
	e := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")
	require.Equal(t, []any{"order.*", "user.created"}, e["event_types"])
	require.InDelta(t, 3, e["max_in_flight"], 0)
	require.Subset(t, e["retry_policy"], map[string]any{"preset": "fast", "max_attempts": 4.0, "retry_statuses": []any{404.0, 410.0}})
	require.Subset(t, e["circuit_breaker"], map[string]any{"enabled": true, "min_requests": 30.0, "window": "60s"})
	require.Equal(t, map[string]any{"type": "basic", "username": "shop"}, e["auth"])
	require.Equal(t, "envelope", e["payload_format"])
	require.Equal(t, true, e["auto_replay"])
	require.Equal(t, []any{302.0, 303.0}, e["success_statuses"])

	// The form sends what was changed, and nothing else.
	path := "/console/t/acme/endpoints/" + id
	form := u.get(t, http.StatusOK, path+"/edit")
	require.Contains(t, form, "X-Team: [redacted]")
	u.post(t, http.StatusSeeOther, path+"/edit", "url", "https://receiver.example/hook", "description", "Orders", "event_types", "order.*\r\nuser.created",
		"timeout", "15s", "max_in_flight", "5", "rate_limit_per_second", "10000", "retry_policy.preset", "inherited",
		"headers", "X-Team: [redacted]", "signature", "v1",
		"payload_format", "envelope", "auto_replay", "yes", "auto_disable.enabled", "no", "auth.type", "basic", "auth.username", "shop")
	e = b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")
	require.Equal(t, "Orders", e["description"])
	require.Equal(t, "installation", e["retry_policy_source"])
	require.Equal(t, false, e["auto_disable"])
	require.Subset(t, e["circuit_breaker"], map[string]any{"min_requests": 30.0}, "its fields were not in the form")
	require.Equal(t, map[string]any{"type": "basic", "username": "shop"}, e["auth"])
	require.Equal(t, map[string]any{"X-Team": "[redacted]"}, e["headers"])
	text = u.get(t, http.StatusOK, path)
	require.Contains(t, text, "The endpoint is changed.")
	require.Contains(t, text, `<dd class="changed">5</dd>`)
	require.NotContains(t, u.get(t, http.StatusOK, path), "The endpoint is changed.", "it is said once")

	u.post(t, http.StatusSeeOther, path+"/pause", "why", "it moves")
	require.Contains(t, u.get(t, http.StatusOK, path), "paused by hand (it moves) · by ")
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	require.Contains(t, u.get(t, http.StatusOK, path+"/delete"), "Delete Orders and cancel its open deliveries: 0 waiting deliveries, 0 held deliveries.")
	u.post(t, http.StatusSeeOther, path+"/resume", "rate_per_minute", "700")
	_, text = u.post(t, http.StatusOK, path+"/rotate-secret", "grace", "1h")
	require.Contains(t, text, "whsec_")
	_, text = u.post(t, http.StatusConflict, path+"/close-circuit")
	require.Contains(t, text, "the circuit is closed")
	u.post(t, http.StatusSeeOther, path+"/delete")
	u.get(t, http.StatusNotFound, path)
}

func TestEventAndDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events"), "curl -X POST "+b.url+"/v1/tenants/acme/events")
	u.get(t, http.StatusOK, "/console/t/acme/events/new")
	w, _ := u.post(t, http.StatusSeeOther, "/console/t/acme/events/new",
		"type", "order.paid", "payload", "{ \"a\":\r\n 1.0 }", "external_id", "x-1", "endpoint_ids", endpoint,
		"headers", "X-Region: <eu>\r\nX-Other:1", "tags", "order:17, eu-west")
	event := w.Header.Get("Location")
	text := u.get(t, http.StatusOK, event)
	require.Contains(t, text, "x-1")
	require.Contains(t, text, "<dt>X-Region</dt><dd>&lt;eu&gt;</dd>")
	require.Contains(t, text, `<a href="/console/t/acme/events?tag=order%3a17">order:17</a>`)
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events?tag=eu-west"), `<a href="/console/t/acme/events?tag=eu-west">eu-west</a>`)
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events?tag=eu"), "No event matches.")
	again := u.get(t, http.StatusOK, "/console/t/acme/events/new?from="+event[strings.LastIndex(event, "/")+1:])
	require.Contains(t, again, "X-Other: 1\nX-Region: &lt;eu&gt;</textarea>")
	require.Contains(t, again, `value="order:17 eu-west"`)
	_, refused := u.post(t, http.StatusBadRequest, "/console/t/acme/events/new", "type", "a", "payload", "1", "headers", "Host: a", "tags", "ä")
	require.Contains(t, refused, "is reserved and cannot be set")
	require.Contains(t, refused, "must be 1 to 64 letters, digits")
	require.Contains(t, u.get(t, http.StatusOK, event+"?payload=raw"), "{ &#34;a&#34;:\n 1.0 }", "the bytes of the form")
	require.Contains(t, text, "&#34;a&#34;: 1.0")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events/new?from="+event[strings.LastIndex(event, "/")+1:]), "1.0 }</textarea>")

	_, delivery, _ := strings.Cut(text, "/deliveries/dlv_")
	delivery, _, _ = strings.Cut(delivery, `"`)
	delivery = "/console/t/acme/deliveries/dlv_" + delivery
	require.Contains(t, u.get(t, http.StatusOK, delivery), "<svg")
	_, text = u.post(t, http.StatusBadRequest, delivery+"/reschedule", "at", "2030-01-01T00:00:00Z")
	require.Contains(t, text, "must be at most 30 days ahead")
	require.Contains(t, text, `value="2030-01-01T00:00:00Z"`)
	_, text = u.post(t, http.StatusBadRequest, delivery+"/reschedule", "at", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	require.Contains(t, text, "Reschedule is not possible: the delivery is pending.")
	_, text = u.post(t, http.StatusConflict, delivery+"/discard")
	require.Contains(t, text, "Discard is not possible")
	require.Contains(t, u.get(t, http.StatusOK, delivery+"/cancel"), "1 delivery of order.paid")
	u.post(t, http.StatusSeeOther, delivery+"/cancel", "why", "not needed")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/deliveries?since=1h"), "dlv_")
	text = u.get(t, http.StatusBadRequest, "/console/t/acme/deliveries?state=nonsense")
	require.Contains(t, text, "is not a state of a delivery")
}

func TestLargeForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	u.get(t, http.StatusOK, "/console/t/acme/endpoints/new")
	_, text := u.post(t, http.StatusRequestEntityTooLarge, "/console/t/acme/endpoints/new", "url", strings.Repeat("x", console.MaxForm))
	require.Contains(t, text, "too large")
	u.get(t, http.StatusOK, "/console/t/acme/events/new")
	large := `"` + strings.Repeat(" ", 200<<10) + `"`
	w, _ := u.post(t, http.StatusSeeOther, "/console/t/acme/events/new", "type", "a.b", "payload", large)
	require.Less(t, len(u.get(t, http.StatusOK, w.Header.Get("Location"))), maxPageBytes)
}

// A tenant with endpoints is not deleted, and the question says why.
func TestTenantWithEndpointsIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "operator")
	const path = "/console/tenants/acme/delete"
	require.Contains(t, u.get(t, http.StatusOK, path), "A tenant that still has endpoints cannot be deleted")
	_, text := u.post(t, http.StatusConflict, path)
	require.Contains(t, text, `role="alert"`)
	require.Contains(t, text, "Delete the tenant acme?")
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/endpoints/"+id, "")
}

// All lists take times as the search box does.
func TestListsReadTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	u := b.loggedIn(t, "operator")
	for _, path := range []string{"/t/acme/deliveries", "/t/acme/events", "/t/acme/dead-letters", "/audit"} {
		for _, at := range []string{"2h", "7d", "2w", "2026-11-24", "2026-11-24T12:00:00Z"} {
			require.Contains(t, u.get(t, http.StatusOK, "/console"+path+"?since="+at), `value="`+at+`"`, path)
		}
		require.Contains(t, u.get(t, http.StatusBadRequest, "/console"+path+"?since=soon"), `id="e-since"`, path)
	}
}

// The next page of a list since an age is a page of the same list: a cursor is good for one set of filters.
func TestOlderPageOfAnAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	for range 51 {
		b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	}
	u := b.loggedIn(t, "acme admin")
	for _, path := range []string{"/console/t/acme/deliveries?since=2h", "/console/t/acme/events?since=1h&type=order.paid"} {
		text := u.get(t, http.StatusOK, path)
		_, older, found := strings.Cut(text, `<p class="more"><a href="`)
		require.True(t, found)
		older, _, _ = strings.Cut(older, `"`)
		text = u.get(t, http.StatusOK, html.UnescapeString(older))
		require.Equal(t, 1, strings.Count(text, "<tr data-row="), older)
	}
}
