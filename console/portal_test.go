package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/webhook"
)

// portalPath is a page of the portal for the things that somePortal makes.
func portalPath(t *testing.T, pattern string, ids map[string]string) string {
	t.Helper()
	path := strings.NewReplacer("{$}", "", "{token}", "abc", "{name}", "order.paid", "/language", "/language?lang=en").Replace(pattern)
	for resource, id := range ids {
		path = strings.Replace(path, resource+"/{id}", resource+"/"+id, 1)
	}
	require.NotContains(t, path, "{", "the test does not know the page %s", pattern)
	return "/portal" + path
}

// somePortal gives the tenant acme an endpoint of each signature, and messages to them. Their texts are hostile.
func (b *bundle) somePortal(t *testing.T) map[string]string {
	t.Helper()
	id := b.endpoint(t, "acme", `,"description":"<b>Orders</b> \u202e","event_types":["order.*","order.paid","a.b","c.d","e.f"]`)
	b.eventType(t, "order.paid", hostileType)
	b.endpoint(t, "acme", `,"signature":"v1a"`)
	b.endpoint(t, "acme", `,"signature":"hex"`)
	event, delivery := b.event(t, "acme", `{"type":"order.paid","payload":{"order":"<script>alert(1)</script>"},"external_id":"<i>order-17</i>",`+
		`"headers":{"X-Region":"eu"},"tags":["order:17"]}`)
	return map[string]string{"endpoints": id, "messages": event, "deliveries": delivery}
}

// Every page of the portal, in both languages: its headers, its size and its structure, and nothing of the operators.
func TestPortalPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.somePortal(t)
	for _, lang := range []string{"en", "de"} {
		u := b.portal(t, "acme", "manage", `,"lang":"`+lang+`"`)
		seen := 0
		for _, pattern := range console.PortalPages() {
			path := portalPath(t, pattern, ids)
			w, text := u.do(t, http.MethodGet, path, nil)
			requireHeaders(t, path, w)
			if w.StatusCode == http.StatusSeeOther || !strings.HasPrefix(w.Header.Get("Content-Type"), "text/html") {
				continue
			}
			require.Equal(t, http.StatusOK, w.StatusCode, "%s: %s", path, said(text))
			seen++
			require.Less(t, len(text), maxPageBytes, path)
			require.NotContains(t, text, "<b>Orders</b>")
			require.NotContains(t, text, "<script>alert")
			if pattern != "/links/{token}" { // its language is in the link's address
				require.Equal(t, lang, w.Header.Get("Content-Language"), path)
				require.Contains(t, text, `<html lang="`+lang+`">`, path)
				require.Contains(t, text, `href="https://app.example/back"`)
			}
			requireStructure(t, path, strings.ReplaceAll(strings.Replace(text, `<html lang="de">`, `<html lang="en">`, 1), "https://app.example/back", "/back"))
			for _, hidden := range []string{"1.2.3", "Everpost", "workflow", "acme", "/console", "evk_", "threshold", "Replay", "delivery policy"} {
				require.NotContains(t, strings.ReplaceAll(text, "everpost", ""), hidden, path)
			}
		}
		require.Greater(t, seen, 12)
		for _, path := range []string{"/console/t/acme/", "/console/tenants", "/portal/keys", "/portal/endpoints/" + ids["messages"], "/portal/nowhere"} {
			require.NotEqual(t, http.StatusOK, statusOf(t, u, path), path)
		}
	}
}

// quoted marks the texts of a catalogue that is made of the English one, so that a text that is not of a catalogue stands out.
const (
	quoteOpen, quoteClose = "⟦", "⟧"
)

// markedCatalogue writes a catalogue whose texts are the English ones in brackets.
func markedCatalogue(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("texts/en.json")
	require.NoError(t, err)
	var english map[string]any
	require.NoError(t, json.Unmarshal(content, &english))
	for key, of := range english {
		switch v := of.(type) {
		case string:
			english[key] = quoteOpen + v + quoteClose
		case map[string]any:
			for form, text := range v {
				v[form] = quoteOpen + text.(string) + quoteClose
			}
		}
	}
	content, err = json.Marshal(english)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "eo.json"), content, 0o600))
	return dir
}

// Whatever is shown is a text of the catalogue, or data: nothing English is written in a template or comes from the API.
func TestEveryVisibleTextIsOfTheCatalogue(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config.Config) { c.PortalCatalogues = markedCatalogue(t) })
	ids := b.somePortal(t)
	b.event(t, "acme", `{"type":"user.created","payload":{}}`) // matches nothing
	b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+ids["endpoints"]+"/pause", "")
	u := b.portal(t, "acme", "manage", `,"lang":"eo"`)
	check := func(path, text string) {
		t.Helper()
		root, err := html.Parse(strings.NewReader(text))
		require.NoError(t, err)
		for n := range root.Descendants() {
			switch {
			case n.Type == html.TextNode && !slices.Contains([]string{"pre", "script", "textarea"}, n.Parent.Data):
				requireOfCatalogue(t, path, n.Data)
			case n.Type == html.ElementNode:
				for _, name := range []string{"title", "aria-label", "placeholder", "alt"} {
					requireOfCatalogue(t, path, attr(n, name))
				}
			}
		}
	}
	for _, pattern := range console.PortalPages() {
		path := portalPath(t, pattern, ids)
		if pattern == "/links/{token}" {
			path += "?lang=eo"
		}
		w, text := u.do(t, http.MethodGet, path, nil)
		if strings.HasPrefix(w.Header.Get("Content-Type"), "text/html") && w.StatusCode == http.StatusOK {
			require.Contains(t, text, `data-translation="unreviewed"`)
			check(path, text)
		}
	}
	for path, form := range map[string][]string{
		"/portal/endpoints/new":                           {"url", "nonsense", "description", strings.Repeat("x", 2000), "event_types", "!"},
		"/portal/endpoints/" + ids["endpoints"] + "/edit": {"url", "ftp://x"}, "/portal/endpoints/" + ids["endpoints"] + "/test": {"type", "!", "payload", "{"},
		"/portal/endpoints/" + ids["endpoints"] + "/filter": {"filter", `{"data":1}`, "type", "!", "payload", "{}"},
		"/portal/endpoints/new?":                            {"filter", `{"type":{"$gt":1}}`, "payload", "{", "show", "trial"},
	} {
		u.get(t, http.StatusOK, path)
		_, text := u.post(t, http.StatusBadRequest, path, form...)
		require.Contains(t, text, "⟦Some fields need your attention", path)
		check(path, text)
	}
	for _, path := range []string{"/portal/messages?type=%21", "/portal/nowhere"} {
		_, text := u.do(t, http.MethodGet, path, nil)
		check(path, text)
	}
	u.get(t, http.StatusOK, "/portal/endpoints")
	_, text := u.post(t, http.StatusOK, "/portal/close")
	check("closed", text)
	_, text = u.do(t, http.MethodGet, "/portal/endpoints", nil)
	check("ended", text)
}

// data are texts that are no words of a language: what the test has stored, names of headers and languages of programs, numbers and signs.
var data = regexp.MustCompile(`(https://)?receiver\.example/hook|<b>Orders</b> \[U\+202E\]|<i>order-17</i>|order:17|order\.(paid|settled|\*)|user\.created|` +
	`everpost-(sequence|line|ordering-key)|<i>Orders</i>|<b>Paid</b> \[U\+202E\]|in full|"?<script>alert\(.\)</script>"?|</pre>|` +
	`a\.b|c\.d|e\.f|English|Deutsch|Esperanto|everpost\.test|example\.event|(evt|ep|dlv)_[0-9a-z]+|whpk_\S+|whsec_•+|webhook-(id|timestamp|signature)|` +
	`X-Webhook-Signature|X-Idempotency-Key|\b(Go|TypeScript|Python|PHP|Ruby)\b|nonsense|[0-9]+|[\s%–·:.,…←•]`)

// requireOfCatalogue removes what is in brackets and what is data: nothing may remain.
func requireOfCatalogue(t *testing.T, path, text string) {
	t.Helper()
	inner := regexp.MustCompile(quoteOpen + `[^` + quoteOpen + quoteClose + `]*` + quoteClose)
	rest := text
	for inner.MatchString(rest) {
		rest = inner.ReplaceAllString(rest, "")
	}
	require.Empty(t, data.ReplaceAllString(rest, ""), "%s: %q is not of the catalogue", path, text)
}

// What a link does not permit is neither shown nor done, whatever is posted.
func TestCapabilitiesOfALink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.somePortal(t)
	page := "/portal/endpoints/" + ids["endpoints"]
	// Which forms each link may post; the others do not exist for it.
	always := []string{"/links/{token}", "/close"}
	manage := []string{
		"/event-types/{name}", "/endpoints/new", "/endpoints/{id}/edit", "/endpoints/{id}/pause", "/endpoints/{id}/resume", "/endpoints/{id}/delete",
		"/endpoints/{id}/test",
	}
	replay := []string{"/deliveries/{id}/replay", "/deliveries/{id}/retry", "/failed/send-again"}
	filter, setFilter := []string{"/endpoints/{id}/filter"}, []string{"/endpoints/{id}/filter/save"}
	for _, test := range []struct {
		scope, fields string
		forms         []string
	}{
		{"view", "", nil}, {"view", `,"capabilities":["secrets"]`, []string{"/endpoints/{id}/secret"}}, {"view", `,"capabilities":["replay"]`, replay},
		{"view", `,"capabilities":["filters"]`, filter}, {"manage", `,"capabilities":["filters"]`, slices.Concat(manage, filter, setFilter)},
		{"manage", `,"capabilities":[]`, manage}, {"manage", `,"capabilities":["replay"]`, slices.Concat(manage, replay)},
		{"manage", "", slices.Concat(manage, replay, filter, setFilter, []string{"/endpoints/{id}/secret", "/endpoints/{id}/rotate-secret"})},
	} {
		u := b.portal(t, "acme", test.scope, test.fields)
		text := u.get(t, http.StatusOK, page)
		require.Equal(t, slices.Contains(test.forms, "/endpoints/{id}/pause"), strings.Contains(text, page+"/pause"))
		require.Equal(t, slices.Contains(test.forms, "/endpoints/{id}/secret"), strings.Contains(text, page+"/secret"))
		require.Equal(t, slices.Contains(test.forms, "/endpoints/{id}/rotate-secret"), strings.Contains(text, page+"/rotate-secret"))
		for _, pattern := range console.PortalForms() {
			if slices.Contains(always, pattern) || slices.Contains(test.forms, pattern) {
				continue
			}
			u.post(t, http.StatusNotFound, portalPath(t, pattern, ids), "url", "https://evil.example/")
		}
	}
	require.Equal(t, "active", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+ids["endpoints"], "")["state"])
	u := b.portal(t, "acme", "view", `,"capabilities":["secrets"]`)
	u.get(t, http.StatusOK, page)
	_, text := u.post(t, http.StatusOK, page+"/secret")
	require.Contains(t, html.UnescapeString(text), b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+ids["endpoints"]+"/secret", "")["secret"])
	require.Equal(t, http.StatusNotFound, statusOf(t, u, page+"/secret"), "the page with the secret has no address")
}

func TestPortalOfOneTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.somePortal(t)
	foreign := b.endpoint(t, "other", "")
	event, delivery := b.event(t, "other", `{"type":"order.paid","payload":1}`)
	u := b.portal(t, "acme", "manage")
	for _, path := range []string{
		"/portal/endpoints/" + foreign, "/portal/endpoints/" + foreign + "/edit", "/portal/messages/" + event, "/portal/messages/" + event + "/payload",
	} {
		u.get(t, http.StatusNotFound, path)
	}
	u.get(t, http.StatusOK, "/portal/endpoints/new")
	for _, path := range []string{
		"/portal/endpoints/" + foreign + "/pause", "/portal/endpoints/" + foreign + "/secret", "/portal/deliveries/" + delivery + "/replay",
	} {
		u.post(t, http.StatusNotFound, path)
		u.post(t, http.StatusForbidden, path, "csrf", "AAAA")
	}
	require.Equal(t, "active", b.api(t, http.StatusOK, "GET", "/v1/tenants/other/endpoints/"+foreign, "")["state"])
	u.with["Sec-Fetch-Site"] = "cross-site"
	u.post(t, http.StatusForbidden, "/portal/endpoints/new", "url", "https://evil.example/")
}

// The form of an endpoint keeps what it does not show, and chosen and typed event types together.
func TestPortalEditsAnEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.somePortal(t)["endpoints"]
	u := b.portal(t, "acme", "manage")
	text := u.get(t, http.StatusOK, "/portal/endpoints/"+id+"/edit")
	require.Contains(t, text, `value="order.paid" checked`)
	require.Contains(t, text, ">order.*\na.b\nc.d\ne.f</textarea>", "what is not in the catalogue is typed")
	seen := regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(text)[1]
	form := u.form(text, "url", "https://receiver.example/new", "description", "New", "event_types", "order.*\nuser.*", "seen", seen)
	form["type"] = []string{"order.paid", "a.b"}
	w, _ := u.do(t, http.MethodPost, "/portal/endpoints/"+id+"/edit", form)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	now := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")
	require.Equal(t, []any{"https://receiver.example/new", "New"}, []any{now["url"], now["description"]})
	require.ElementsMatch(t, []any{"order.paid", "a.b", "order.*", "user.*"}, now["event_types"])
	w, text = u.do(t, http.MethodPost, "/portal/endpoints/"+id+"/edit", form)
	require.Equal(t, http.StatusBadRequest, w.StatusCode, "another has changed it")
	require.Contains(t, text, "Somebody else has changed this")
	form.Set("seen", "")
	delete(form, "type")
	form.Set("event_types", "")
	w, _ = u.do(t, http.MethodPost, "/portal/endpoints/"+id+"/edit", form)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	require.Equal(t, []any{"*"}, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["event_types"])
}

func TestStartRefusesABadLook(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "logo.png")
	require.NoError(t, os.WriteFile(page, []byte("<svg onload=alert(1)>"), 0o600))
	for setting, change := range map[string]func(*config.Config){
		"EVERPOST_PORTAL_LOGO": func(c *config.Config) { c.PortalLogo = page }, "EVERPOST_PORTAL_FONT": func(c *config.Config) { c.PortalFont = page },
		"EVERPOST_PORTAL_FAVICON":    func(c *config.Config) { c.PortalFavicon = page + ".none" },
		"EVERPOST_PORTAL_CATALOGUES": func(c *config.Config) { c.PortalCatalogues = t.TempDir() },
	} {
		require.ErrorContains(t, startError(t, change), setting)
	}
}

// A message is found by its reference, which is its external id, or by its type.
func TestPortalFindsMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.somePortal(t)
	u := b.portal(t, "acme", "manage")
	for query, found := range map[string]bool{
		"external_id=%3Ci%3Eorder-17%3C%2Fi%3E": true, "type=order.paid&external_id=%3Ci%3Eorder-17%3C%2Fi%3E": true,
		"type=order.paid": true, "external_id=order-18": false, "type=user.created&external_id=%3Ci%3Eorder-17%3C%2Fi%3E": false,
	} {
		text := u.get(t, http.StatusOK, "/portal/messages?"+query)
		require.Equal(t, found, strings.Contains(text, "&lt;i&gt;order-17&lt;/i&gt;</p>"), query)
	}
}

// A message in the list of an endpoint is known by its reference. The list of failed ones is tested with a receiver: see TestPortal in standalone/e2e.
func TestPortalListsHaveReferences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.somePortal(t)
	text := b.portal(t, "acme", "manage").get(t, http.StatusOK, "/portal/endpoints/"+ids["endpoints"])
	require.Contains(t, text, `<p class="mono soft">&lt;i&gt;order-17&lt;/i&gt;</p>`)
}

// What is older than deliveries are kept is not said to be unused. A list says it of as many endpoints as it has.
func TestPortalSaysOnlyOfNewEndpointsThatNothingWasSent(t *testing.T) {
	t.Parallel()
	var database string
	b := setup(t, func(c *config.Config) { database = c.DatabaseURL })
	const endpoints = 25
	old := b.endpoint(t, "acme", "")
	for range endpoints - 1 {
		b.endpoint(t, "acme", "")
	}
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	parsed, err := webhook.ParseEndpointID(old)
	require.NoError(t, err)
	changed, err := conn.Exec(t.Context(), `update endpoints set created_at = created_at - interval '25 hours' where id = $1`, [16]byte(parsed))
	require.NoError(t, err)
	require.EqualValues(t, 1, changed.RowsAffected())
	u := b.portal(t, "acme", "manage", `,"lang":"en"`)
	const unused = `<span class="chip quiet">Nothing sent yet</span>`
	require.Eventually(t, func() bool {
		return strings.Count(u.get(t, http.StatusOK, "/portal/endpoints"), unused) == endpoints-1
	}, eventually, poll)
	require.Contains(t, u.get(t, http.StatusOK, "/portal/endpoints/"+old), `<span class="chip quiet">Ready</span>`)
}

// An endpoint to which nothing was sent does not read as if it had worked.
func TestPortalSaysThatNothingWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.portal(t, "acme", "manage", `,"lang":"en"`)
	for _, page := range []string{"/portal/endpoints", "/portal/endpoints/" + id} {
		text := u.get(t, http.StatusOK, page)
		require.Contains(t, text, `<span class="chip quiet">Nothing sent yet</span>`, page)
		require.NotContains(t, text, "Working", page)
	}
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	for _, page := range []string{"/portal/endpoints", "/portal/endpoints/" + id} {
		text := u.get(t, http.StatusOK, page)
		require.Contains(t, text, `<span class="chip quiet">Ready</span>`, page)
		require.NotContains(t, text, "Nothing sent yet", page)
	}
}
