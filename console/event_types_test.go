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

// hostileType are the fields of an event type whose texts are hostile.
const hostileType = `{"description":"<b>Paid</b> \u202e\nin full","group":"<i>Orders</i>","state":"deprecated","replaced_by":"order.settled",` +
	`"ordering_key":"/order","versions":[{"version":1,"schema":{"properties":{` +
	`"order":{"type":"string","description":"<script>alert(1)</script>","enum":["<script>alert(2)</script>"]},` +
	`"<script>alert(3)</script>":{"type":"array","items":{"properties":{"</pre>":{"type":"integer"}}}}},"required":["order"]},` +
	`"examples":[{"order":"<script>alert(2)</script>"}]},{"version":2}]}`

// eventType puts a type into the catalogue.
func (b *bundle) eventType(t *testing.T, name, fields string) {
	t.Helper()
	b.api(t, http.StatusCreated, "PUT", "/v1/event-types/"+url.PathEscape(name), fields)
}

const typesPage = "/console/event-types"

// An operator makes an event type, changes it, adds a version and removes it, all with forms.
func TestEventTypeFromCreationToDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	require.Contains(t, u.get(t, http.StatusOK, typesPage), "The catalogue is empty.")
	u.get(t, http.StatusOK, typesPage+"-new")
	u.post(t, http.StatusSeeOther, typesPage+"-new", "name", " order/paid ", "description", "Paid <b>.\r\nIn full.", "group", "Orders & more",
		"state", "active", "validation", "enforce", "ordering_key", "/order", "schema", `{"properties":{"order":{"type":"integer"},"old":{"type":"string"}}}`,
		"examples", "{\"order\": 1}\r\n\r\n{\"order\": 2, \"old\": \"<\"}")
	const api, page = "/v1/event-types/order%2Fpaid", typesPage + "/order%2Fpaid"
	now := b.api(t, http.StatusOK, "GET", api, "")
	require.Subset(t, now, map[string]any{
		"description": "Paid <b>.\nIn full.", "group": "Orders & more", "state": "active", "validation": "enforce", "ordering_key": "/order",
		"replaced_by": nil,
	})
	require.Len(t, now["versions"].([]any)[0].(map[string]any)["examples"], 2)
	text := u.get(t, http.StatusOK, page)
	for _, part := range []string{
		"The event type is in the catalogue.", "Paid &lt;b&gt;.\nIn full.", "payloads that do not match are refused", "&#34;old&#34;: &#34;&lt;&#34;",
	} {
		require.Contains(t, text, part)
	}
	require.Contains(t, u.get(t, http.StatusOK, typesPage), "Orders &amp; more</a>")

	text = u.get(t, http.StatusOK, page+"/edit")
	require.Contains(t, text, `value="Orders &amp; more"`)
	u.post(t, http.StatusSeeOther, page+"/edit", "description", "Paid.", "group", "", "state", "deprecated", "replaced_by", "order.settled",
		"validation", "warn", "ordering_key", "", "etag", etagOf(t, text))
	require.Subset(t, b.api(t, http.StatusOK, "GET", api, ""), map[string]any{
		"description": "Paid.", "group": nil, "state": "deprecated", "replaced_by": "order.settled", "validation": "warn", "ordering_key": nil,
	})

	text = u.get(t, http.StatusOK, page+"/versions/new")
	require.Contains(t, text, "Add version 2 of order/paid")
	require.Contains(t, text, "&#34;old&#34;", "it begins as the newest one")
	const newer = `{"properties":{"order":{"type":"string"},"to":{}},"required":["to"]}`
	_, saved := u.post(t, http.StatusOK, page+"/versions/new", "schema", newer, "etag", etagOf(t, text))
	for _, part := range []string{
		"Version 2 against version 1:", "removed: <code>/old</code>", "newly required: <code>/to</code>", "of another type: <code>/order</code>",
	} {
		require.Contains(t, saved, part)
	}
	text = u.get(t, http.StatusOK, page+"/versions/1")
	require.Contains(t, text, "&#34;old&#34;: &#34;&lt;&#34;", "an example is as it was typed")
	u.post(t, http.StatusSeeOther, page+"/versions/1", "remove", "yes", "etag", etagOf(t, text))
	require.Len(t, b.api(t, http.StatusOK, "GET", api, "")["versions"], 1)
	u.get(t, http.StatusNotFound, page+"/versions/1")

	text = u.get(t, http.StatusOK, page+"/delete")
	require.Contains(t, text, "Remove order/paid from the catalogue?")
	etag := etagOf(t, text)
	b.api(t, http.StatusOK, "PATCH", api, `{"description":"Another's"}`)
	_, text = u.post(t, http.StatusConflict, page+"/delete", "etag", etag)
	require.Contains(t, text, "It was changed in the meantime, so nothing was deleted.")
	u.post(t, http.StatusSeeOther, page+"/delete", "etag", etagOf(t, text))
	b.api(t, http.StatusNotFound, "GET", api, "")
	u.get(t, http.StatusNotFound, page)
}

func etagOf(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`name="etag" value="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, found)
	return html.UnescapeString(found[1])
}

// What the API refuses is said at its field, and another's change is not undone.
func TestEventTypeFormsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", `{"versions":[{"version":3},{"version":4,"schema":{"type":"object"}}]}`)
	u := b.loggedIn(t, "operator")
	const edit, version = typesPage + "/order.paid/edit", typesPage + "/order.paid/versions/new"
	edited, added := u.get(t, http.StatusOK, edit), u.get(t, http.StatusOK, version)
	for _, test := range []struct {
		path  string
		pairs []string
		said  []string
	}{
		{typesPage + "-new", []string{"name", "order.paid"}, []string{`id="e-name">is in the catalogue already`}},
		{typesPage + "-new", []string{"name", ""}, []string{`id="e-name">is required`}},
		{typesPage + "-new", []string{"name", "a b", "state", "active", "validation", "off"}, []string{`id="e-name"`}},
		{typesPage + "-new", []string{"name", "everpost.x", "state", "active", "validation", "off"}, []string{`id="e-name">must not begin with`}},
		{typesPage + "-new", []string{"name", "a.b", "state", "active", "validation", "off", "schema", "{"}, []string{`id="e-schema">is not valid JSON`}},
		{typesPage + "-new", []string{"name", "a.b", "state", "active", "validation", "off", "examples", "{} {"}, []string{`id="e-examples">is not valid`}},
		{
			typesPage + "-new", []string{"name", "a.b", "state", "active", "validation", "off", "schema", `{"type":"none"}`, "examples", "1"},
			[]string{`id="e-schema">`, `name="name" value="a.b"`, `{&#34;type&#34;:&#34;none&#34;}</textarea>`},
		},
		{
			edit, []string{"state", "gone", "validation", "off", "ordering_key", "order", "replaced_by", "order.paid", "etag", etagOf(t, edited)},
			[]string{`id="e-state">`, `id="e-ordering_key">`, `id="e-replaced_by">must be another type`},
		},
		{
			version, []string{"schema", `{"type":"integer"}`, "examples", `1 "x"`, "etag", etagOf(t, added)},
			[]string{`id="e-examples">[1] does not match the schema`, "Add version 5 of order.paid"},
		},
	} {
		_, text := u.post(t, http.StatusBadRequest, test.path, test.pairs...)
		require.Contains(t, text, `role="alert"`)
		for _, part := range test.said {
			require.Contains(t, text, part, "%s %v: %s", test.path, test.pairs, said(text))
		}
	}

	b.api(t, http.StatusOK, "PATCH", "/v1/event-types/order.paid", `{"group":"Another's"}`)
	_, text := u.post(t, http.StatusBadRequest, version, "schema", "{", "etag", etagOf(t, added))
	require.Equal(t, etagOf(t, added), etagOf(t, text), "it was refused for another reason: the next attempt is refused for the change")
	for path, form := range map[string][]string{
		edit:    {"description", "Mine", "state", "active", "validation", "off", "etag", etagOf(t, edited)},
		version: {"schema", `{"title":"Mine"}`, "etag", etagOf(t, added)},
	} {
		_, text := u.post(t, http.StatusBadRequest, path, form...)
		require.Contains(t, text, "The event type was changed in the meantime, so nothing was saved")
		require.Contains(t, text, "Mine")
		require.NotEqual(t, etagOf(t, edited), etagOf(t, text), "the second attempt saves")
	}
	require.Equal(t, "Another&#39;s", html.EscapeString(b.api(t, http.StatusOK, "GET", "/v1/event-types/order.paid", "")["group"].(string)))
}

// The catalogue is filtered, and shown a page at a time.
func TestListOfEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	schemas := make([]string, 60)
	for i := range schemas {
		schemas[i] = fmt.Sprintf(`"many.n%02d":{}`, i)
	}
	b.api(t, http.StatusOK, "POST", "/v1/event-types/import", `{"schemas":{`+strings.Join(schemas, ",")+`}}`)
	b.eventType(t, "user.created", `{"group":"Users","description":"<b>New</b>","state":"archived"}`)
	u := b.loggedIn(t, "operator")
	text := u.get(t, http.StatusOK, typesPage)
	require.Equal(t, 50, strings.Count(text, "data-row="))
	next := regexp.MustCompile(`class="more"><a href="([^"]+)"`).FindStringSubmatch(text)
	require.NotNil(t, next)
	text = u.get(t, http.StatusOK, html.UnescapeString(next[1]))
	require.Equal(t, 11, strings.Count(text, "data-row="))
	require.Contains(t, text, "&lt;b&gt;New&lt;/b&gt;")
	requireStructure(t, typesPage, text)
	for query, rows := range map[string]int{"group=Users": 1, "state=archived": 1, "prefix=many.n0": 10, "group=none": 0, "state=active&prefix=user": 0} {
		require.Equal(t, rows, strings.Count(u.get(t, http.StatusOK, typesPage+"?"+query), "data-row="), query)
	}
	require.Contains(t, u.get(t, http.StatusBadRequest, typesPage+"?prefix=%21"), `id="e-prefix"`)
}

// A dry run is shown before an import is carried out.
func TestImportOfEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", `{"versions":[{"version":1,"schema":{"properties":{"old":{"type":"string"}}}}]}`)
	b.eventType(t, "order.gone", `{}`)
	u := b.loggedIn(t, "operator")
	const page = typesPage + "-import"
	u.get(t, http.StatusOK, page)
	document := `{"openapi":"3.1.0","webhooks":{"order.paid":{"post":{"requestBody":{"content":{"application/json":{` +
		`"schema":{"type":"object","required":["<i>"]},"example":17}}}}},"order.new":{"post":{"description":"New"}}}}`
	form := []string{"kind", "OpenAPI document", "document", document, "replace_all", "yes"}
	_, text := u.post(t, http.StatusOK, page, append(form, "step", "check")...)
	for _, part := range []string{
		"nothing was changed yet", ">created<", ">updated<", ">archived<", "removed: <code>/old</code>", "newly required: <code>/&lt;i&gt;</code>", "Warnings",
		"example that does not match its schema",
	} {
		require.Contains(t, text, part)
	}
	requireStructure(t, page, text)
	b.api(t, http.StatusNotFound, "GET", "/v1/event-types/order.new", "")
	_, text = u.post(t, http.StatusOK, page, append(form, "step", "edit")...)
	require.Contains(t, text, html.EscapeString(document)+"</textarea>")
	require.Contains(t, text, `name="replace_all" value="yes" checked`)
	u.post(t, http.StatusSeeOther, page, append(form, "step", "import")...)
	require.Contains(t, u.get(t, http.StatusOK, typesPage), "The import is done: 3 event types were changed.")
	require.Equal(t, "archived", b.api(t, http.StatusOK, "GET", "/v1/event-types/order.gone", "")["state"])

	_, text = u.post(t, http.StatusOK, page, append(form, "step", "check")...)
	require.Contains(t, text, "This import changes nothing.")
	require.NotContains(t, text, `value="import"`)
	for _, bad := range [][]string{
		{"kind", "OpenAPI document", "document", "{"}, {"kind", "OpenAPI document", "document", "{}"},
		{"kind", "JSON Schemas by event type", "document", `{"a b":{}}`}, {"kind", "JSON Schemas by event type", "document", `{"a":{"type":"none"}}`},
	} {
		_, text = u.post(t, http.StatusBadRequest, page, append(bad, "step", "import")...)
		require.Contains(t, text, `class="error" id="e-document">`, "%v", bad)
	}

	w, exported := u.do(t, http.MethodGet, typesPage+"-export", nil)
	require.Equal(t, http.StatusOK, w.StatusCode)
	require.Equal(t, `attachment; filename="event-types.json"`, w.Header.Get("Content-Disposition"))
	require.Contains(t, exported, `"order.new"`)
}

// A tenant's admin reads the catalogue and changes nothing of it.
func TestTenantsReadTheCatalogue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", hostileType)
	u := b.loggedIn(t, "acme admin")
	for _, path := range []string{typesPage, typesPage + "/order.paid"} {
		text := u.get(t, http.StatusOK, path)
		require.Contains(t, text, "order.paid")
		for _, act := range []string{"/edit", "/delete", "-new", "-import", "/versions/"} {
			require.NotContains(t, text, `href="`+typesPage+act)
			require.NotContains(t, text, `href="`+typesPage+"/order.paid"+act)
		}
		require.NotContains(t, text, "<script>alert")
		requireStructure(t, path, text)
	}
	for _, path := range []string{"-new", "-import", "/order.paid/edit", "/order.paid/delete", "/order.paid/versions/1", "/order.paid/versions/new"} {
		u.get(t, http.StatusNotFound, typesPage+path)
		u.post(t, http.StatusNotFound, typesPage+path, "name", "a.b", "description", "x")
	}
	require.NotContains(t, u.get(t, http.StatusOK, "/console/t/acme/"), `href="`+typesPage+`"`, "it is not in the menu")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/endpoints/new"), `href="`+typesPage+`"`)
}
