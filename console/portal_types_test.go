package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// Customers find the catalogue from each entry, if there is one, and read what a type means. Archived types are not there.
func TestPortalCatalogue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.portal(t, "acme", "view", `,"lang":"en"`)
	require.NotContains(t, u.get(t, http.StatusOK, "/portal/endpoints"), "/portal/event-types")
	require.Contains(t, u.get(t, http.StatusOK, "/portal/event-types"), "There are no event types yet")
	b.eventType(t, "order.old", `{"state":"archived"}`)
	require.Contains(t, u.get(t, http.StatusOK, "/portal/event-types"), "There are no event types yet", "archived types are not shown")
	b.eventType(t, "order.paid", hostileType)
	b.eventType(t, "order.settled", `{"group":"Money","description":"Settled.","versions":[{"version":1,"schema":{"properties":{`+
		`"to":{"type":"object","properties":{"city":{"type":["string","null"]}},"required":["city"]},`+
		`"lines":{"type":"array","items":{"type":"integer"}}}}}]}`)
	for _, entry := range []string{"endpoints", "messages", "failed"} {
		require.Contains(t, u.get(t, http.StatusOK, "/portal/"+entry), `href="/portal/event-types"`)
	}
	text := u.get(t, http.StatusOK, "/portal/event-types")
	for _, part := range []string{
		"<h2>Money</h2>", "&lt;i&gt;Orders&lt;/i&gt;", "deprecated", "Use order.settled instead.", "&lt;b&gt;Paid&lt;/b&gt; [U&#43;202E]",
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "order.old")
	u.get(t, http.StatusNotFound, "/portal/event-types/order.old")
	u.get(t, http.StatusNotFound, "/portal/event-types/no.such")
	text = u.get(t, http.StatusOK, "/portal/event-types?find=SETTLED")
	require.Contains(t, text, "/portal/event-types/order.settled")
	require.NotContains(t, text, "/portal/event-types/order.paid")
	require.Contains(t, u.get(t, http.StatusOK, "/portal/event-types?find=%3Cscript%3E"), "No event type has this")

	text = u.get(t, http.StatusOK, "/portal/event-types/order.settled")
	require.Contains(t, text, `<tr class="d1"><th scope="row"><span class="mono">city</span></th><td>text, null</td><td data-label="Always present">yes</td>`)
	require.Contains(t, text, `<tr class="d0"><th scope="row"><span class="mono">lines</span></th><td>list of: whole number</td>`)
	text = u.get(t, http.StatusOK, "/portal/event-types/order.paid")
	require.NotContains(t, text, "alert(3)", "version 2 has no schema")
	require.Contains(t, text, `href="/portal/event-types/order.settled"`)
	text = u.get(t, http.StatusOK, "/portal/event-types/order.paid?version=1")
	require.Contains(t, text, "&lt;script&gt;alert(3)&lt;/script&gt;")
	require.Contains(t, text, "&lt;/pre&gt;")
	require.NotContains(t, text, "<script>alert")
	require.NotContains(t, text, "Send this example", "the link is to look only")
	requireStructure(t, "type", strings.ReplaceAll(text, "https://app.example/back", "/back"))
}

// A catalogue of 1,000 types is shown in parts, and a schema as far as there is room: each page keeps its budget.
func TestPortalOfALargeCatalogue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	schemas := make([]string, 999)
	for i := range schemas {
		schemas[i] = fmt.Sprintf(`"billing.invoice.line.n%04d":{"description":"n"}`, i)
	}
	b.api(t, http.StatusOK, "POST", "/v1/event-types/import", `{"schemas":{`+strings.Join(schemas, ",")+`}}`)
	fields := make([]string, 300)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"%s%03d":{"type":"string","description":%q}`, strings.Repeat("<", 50), i, strings.Repeat("'", 90))
	}
	examples := strings.Repeat(`"`+strings.Repeat("<", 5000)+`",`, 4) + `"x"`
	b.eventType(t, "big.one", `{"versions":[{"version":1,"schema":{"properties":{`+strings.Join(fields, ",")+`}},"examples":[`+examples+`]}]}`)
	endpoint := b.endpoint(t, "acme", `,"event_types":["billing.invoice.line.n0998","x.*","y"]`)
	u, operator := b.portal(t, "acme", "manage", `,"lang":"en"`), b.loggedIn(t, "operator")
	for _, test := range []struct {
		u    *browser
		path string
	}{
		{u, "/portal/event-types"}, {u, "/portal/event-types/big.one"}, {u, "/portal/endpoints/new"}, {u, "/portal/endpoints/" + endpoint + "/edit"},
		{u, "/portal/endpoints/" + endpoint + "/test"}, {operator, typesPage}, {operator, typesPage + "/big.one"},
		{operator, "/console/t/acme/endpoints/new"}, {operator, "/console/t/acme/endpoints/" + endpoint + "/edit"},
	} {
		require.Less(t, len(test.u.get(t, http.StatusOK, test.path)), maxPageBytes, test.path)
	}
	seen, path := map[string]bool{}, "/portal/event-types"
	link := regexp.MustCompile(`href="/portal/event-types/([^"]+)"`)
	next := regexp.MustCompile(`class="older"><a class="button" href="([^"]+)"`)
	for path != "" {
		text := u.get(t, http.StatusOK, path)
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			seen[found[1]] = true
		}
		path = ""
		if found := next.FindStringSubmatch(text); found != nil {
			path = html.UnescapeString(found[1])
		}
	}
	require.Len(t, seen, 1000)

	for path, u := range map[string]*browser{"/portal/endpoints/": u, "/console/t/acme/endpoints/": operator} {
		text := u.get(t, http.StatusOK, path+endpoint+"/edit")
		require.Contains(t, text, `value="billing.invoice.line.n0998" checked`)
		require.Contains(t, text, ">x.*\ny</textarea>")
		require.NotContains(t, text, "line.n0997")
		_, text = u.post(t, http.StatusOK, path+endpoint+"/edit", "url", "https://receiver.example/typed", "event_types", "x.*",
			"type", "billing.invoice.line.n0001", "find", "LINE.N0997", "show", "types")
		for _, part := range []string{
			`value="https://receiver.example/typed"`, `value="billing.invoice.line.n0001" checked`, `value="billing.invoice.line.n0997">`,
			`value="LINE.N0997"`, ">x.*</textarea>",
		} {
			require.Contains(t, text, part, path)
		}
	}
	stored := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+endpoint, "")
	require.Equal(t, "https://receiver.example/hook", stored["url"], "to look is not to save")
}

// The forms of endpoints choose types of the catalogue, and keep what is not in it.
func TestTypesOfAnEndpointAreChosen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", hostileType)
	b.eventType(t, "order.old", `{"state":"archived"}`)
	b.eventType(t, "user.created", `{"group":"Users"}`)
	pages := map[string]*browser{"/portal/endpoints/": b.portal(t, "acme", "manage"), "/console/t/acme/endpoints/": b.loggedIn(t, "acme admin")}
	for path, u := range pages {
		id := b.endpoint(t, "acme", `,"event_types":["user.created","order.old","order.*"]`)
		now := func() any { return b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["event_types"] }
		text := u.get(t, http.StatusOK, path+id+"/edit")
		for _, part := range []string{
			`value="order.old" checked`, `value="user.created" checked`, `value="order.paid">`, ">order.*</textarea>", "&lt;i&gt;Orders&lt;/i&gt;",
		} {
			require.Contains(t, text, part, path)
		}
		require.NotContains(t, text, "<b>Paid")
		text = u.get(t, http.StatusOK, path+"new")
		require.NotContains(t, text, "order.old", "it is offered to none that has not chosen it")

		text = u.get(t, http.StatusOK, path+id+"/edit")
		form := u.form(text, "url", "https://receiver.example/hook", "event_types", "order.*")
		if strings.HasPrefix(path, "/console") {
			form = withDefaults(form)
		}
		form["type"] = []string{"order.old", "user.created"}
		before := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["updated_at"]
		w, _ := u.do(t, http.MethodPost, path+id+"/edit", form)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
		require.Equal(t, before, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["updated_at"], "another order is no change")

		form["type"], form["event_types"] = []string{"order.paid"}, []string{"a.b, c.*"}
		w, _ = u.do(t, http.MethodPost, path+id+"/edit", form)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
		require.Equal(t, []any{"order.paid", "a.b", "c.*"}, now())

		form["event_types"] = []string{"not valid!"}
		w, text = u.do(t, http.MethodPost, path+id+"/edit", form)
		require.Equal(t, http.StatusBadRequest, w.StatusCode)
		require.Contains(t, text, `value="order.paid" checked`)
		require.Contains(t, text, ">not valid!</textarea>")
		require.Contains(t, text, `id="e-event_types"`)

		delete(form, "type")
		form["event_types"] = []string{""}
		w, _ = u.do(t, http.MethodPost, path+id+"/edit", form)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
		require.Equal(t, []any{"*"}, now())
	}
}

// withDefaults adds to the form of an endpoint what its choices show.
func withDefaults(form url.Values) url.Values {
	for name, of := range map[string]string{
		"timeout": "15s", "max_in_flight": "10", "rate_limit_per_second": "10000", "signature": "v1", "payload_format": "raw", "auto_replay": "no",
		"retry_policy.preset": "inherited", "circuit_breaker.enabled": "yes", "auto_disable.enabled": "yes", "auth.type": "none",
	} {
		form.Set(name, of)
	}
	return form
}

// An example of the catalogue is sent to one of the customer's endpoints, and to no other.
func TestPortalSendsAnExample(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", hostileType)
	foreign := b.endpoint(t, "other", "")
	id := b.endpoint(t, "acme", `,"description":"Mine <b>","event_types":["order.*"]`)
	u := b.portal(t, "acme", "manage", `,"lang":"en"`)
	const page = "/portal/event-types/order.paid?version=1"
	text := u.get(t, http.StatusOK, page)
	require.Contains(t, text, `<option value="`+id+`">Mine &lt;b&gt;</option>`)
	require.NotContains(t, text, foreign)
	u.post(t, http.StatusNotFound, page, "endpoint", foreign, "example", "1")
	u.post(t, http.StatusNotFound, page, "endpoint", id, "example", "2")
	u.post(t, http.StatusNotFound, "/portal/event-types/order.paid", "endpoint", id, "example", "1") // version 2 has none
	u.post(t, http.StatusNotFound, "/portal/event-types/no.such", "endpoint", id, "example", "1")
	_, text = u.post(t, http.StatusOK, page, "endpoint", id, "example", "1")
	require.Contains(t, text, "Mine &lt;b&gt;: Not accepted: the name of your server could not be found.")
	require.Contains(t, text, `<option value="`+id+`" selected>`)

	// The page of an endpoint's example begins with it, and takes that of another type.
	b.eventType(t, "user.created", `{"versions":[{"version":1,"examples":[{"user":7}]},{"version":2,"examples":[{"user":"seven"}]}]}`)
	test := "/portal/endpoints/" + id + "/test"
	require.Contains(t, u.get(t, http.StatusOK, test+"?type=user.created"), "&#34;user&#34;: &#34;seven&#34;", "of the newest version")
	_, text = u.post(t, http.StatusOK, test, "type", "user.created", "payload", "{}", "load", "example")
	require.Contains(t, text, "&#34;user&#34;: &#34;seven&#34;")
	_, text = u.post(t, http.StatusOK, test, "type", "none.such", "payload", `{"mine":1}`, "load", "example")
	require.Contains(t, text, "{&#34;mine&#34;:1}</textarea>", "there is no example")
	text = u.get(t, http.StatusOK, test)
	require.Contains(t, text, `<option value="user.created"></option>`)
}
