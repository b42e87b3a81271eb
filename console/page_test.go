package console_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/everpost/everpost/console"
)

// maxPageBytes is the budget of a page.
const maxPageBytes = 100 << 10

// Every page, with things to show: its headers, its size and its structure.
func TestPages(t *testing.T) {
	t.Parallel()
	b := setup(t, withMail)
	endpoint := b.endpoint(t, "acme", `,"description":"Orders","event_types":["order.*"],"max_in_flight":3`)
	event, delivery := b.event(t, "acme", `{"type":"order.paid","payload":{"order":17},"external_id":"order-17"}`)
	b.event(t, "acme", `{"type":"user.created","payload":{}}`) // matches nothing
	replay := b.api(t, http.StatusAccepted, "POST", "/v1/tenants/acme/replays", `{"source":"dead_letters"}`)["id"].(string)
	channel := func(path string) string {
		fields := `{"channels":[{"kind":"email","target":"ops@example.com","on":["failing"]}]}`
		return b.api(t, http.StatusOK, "PUT", path, fields)["channels"].([]any)[0].(map[string]any)["id"].(string)
	}
	channels, installations := channel("/v1/tenants/acme/notifications"), channel("/v1/notifications")
	b.eventType(t, "order.paid", hostileType)
	u := b.loggedIn(t, "operator")
	ids := map[string]string{
		"endpoints": endpoint, "events": event, "deliveries": delivery, "dead-letters": delivery, "replays": replay,
		"keys": b.ids["acme admin"], "tenants": "acme",
	}
	seen := 0
	for _, pattern := range console.Pages() {
		path := strings.NewReplacer("{$}", "", "/{tenant}/notifications/{id}", "/acme/notifications/"+channels,
			"/notifications/{id}", "/notifications/"+installations, "{tenant}", "acme", "{token}", "abc",
			"{name}", "order.paid", "{version}", "1").Replace(pattern)
		for resource, id := range ids {
			path = strings.Replace(path, resource+"/{id}", resource+"/"+id, 1)
		}
		require.NotContains(t, path, "{", "the test does not know the page %s", pattern)
		w, text := u.do(t, http.MethodGet, "/console"+path, nil)
		requireHeaders(t, path, w)
		if w.StatusCode == http.StatusSeeOther || w.StatusCode == http.StatusConflict { // the log-in page of a session; a question that makes no sense now
			continue
		}
		require.Equal(t, http.StatusOK, w.StatusCode, "%s: %s", path, said(text))
		if !strings.HasPrefix(w.Header.Get("Content-Type"), "text/html") {
			continue
		}
		seen++
		require.Less(t, len(text), maxPageBytes, path)
		requireStructure(t, path, text)
	}
	require.Greater(t, seen, 25)
}

func requireHeaders(t *testing.T, path string, w *http.Response) {
	t.Helper()
	h := w.Header
	require.Equal(t, "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors 'none'", h.Get("Content-Security-Policy"), path)
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY",
	} {
		require.Equal(t, want, h.Get(name), "%s: %s", path, name)
	}
}

// requireStructure checks a page as HTML: nothing that the policy would refuse, one main heading, headings in
// their order, a label for each control, headers with a scope, times that programs can read, and no address of
// another host.
func requireStructure(t *testing.T, path, text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	require.NoError(t, err)
	labels, described, ids := map[string]bool{}, []string{}, map[string]bool{}
	var controls []string
	level, mains := 0, 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		for _, a := range n.Attr {
			require.False(t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "%s: <%s %s>", path, n.Data, a.Key)
			if a.Key == "src" || a.Key == "href" || a.Key == "action" {
				require.NotContains(t, a.Val, "//", "%s: %s", path, a.Val)
			}
		}
		id := attr(n, "id")
		if id != "" {
			require.False(t, ids[id], "%s: the id %s is there twice", path, id)
			ids[id] = true
		}
		switch n.Data {
		case "style":
			require.Fail(t, "an inline style", path)
		case "script":
			require.NotEmpty(t, attr(n, "src"), path)
			require.Nil(t, n.FirstChild, path)
		case "h1", "h2", "h3", "h4":
			if inDialog(n) {
				continue
			}
			now, _ := strconv.Atoi(n.Data[1:])
			require.LessOrEqual(t, now, level+1, "%s: a heading of level %d after %d", path, now, level)
			level = now
			if now == 1 {
				mains++
			}
		case "label":
			labels[attr(n, "for")] = true
		case "input", "select", "textarea":
			if kind := attr(n, "type"); kind != "hidden" {
				controls = append(controls, id)
				if n.Parent.Data == "label" || attr(n, "aria-label") != "" {
					labels[id] = true
				}
			}
			described = append(described, strings.Fields(attr(n, "aria-describedby"))...)
		case "th":
			require.Contains(t, []string{"col", "row", "rowgroup"}, attr(n, "scope"), "%s: a header of a table without a scope", path)
		case "time":
			require.NotEmpty(t, attr(n, "datetime"), path)
		}
	}
	require.Equal(t, 1, mains, "%s: main headings", path)
	for _, id := range controls {
		require.True(t, labels[id], "%s: no label for %q", path, id)
	}
	for _, id := range described {
		require.True(t, ids[id], "%s: nothing has the id %s", path, id)
	}
	for _, part := range []string{`<html lang="en">`, `<main id="main"`, `href="#main"`, `<meta name="viewport"`} {
		require.Contains(t, text, part, path)
	}
}

func inDialog(n *html.Node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == "dialog" {
			return true
		}
	}
	return false
}

func attr(n *html.Node, name string) string {
	i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if i < 0 {
		return ""
	}
	return n.Attr[i].Val
}

func TestAssetsAreKeptByBrowsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	text := u.get(t, http.StatusOK, "/console/login")
	for name, media := range map[string]string{"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"} {
		from := strings.Index(text, "/console/assets/"+name)
		require.Positive(t, from)
		path, _, _ := strings.Cut(text[from:], `"`)
		w, body := u.do(t, http.MethodGet, path, nil)
		require.Equal(t, http.StatusOK, w.StatusCode)
		require.Equal(t, media, w.Header.Get("Content-Type"))
		require.Contains(t, w.Header.Get("Cache-Control"), "immutable")
		require.Equal(t, "nosniff", w.Header.Get("X-Content-Type-Options"))
		require.NotContains(t, body, "://", "no request to another host")
		require.Equal(t, strings.HasSuffix(name, ".js"), strings.HasPrefix(body, "(() => {\n"), "nothing of a script is a global")
		w, _ = u.do(t, http.MethodGet, "/console/assets/"+name, nil)
		require.Equal(t, "no-store", w.Header.Get("Cache-Control"), "an address without the hash may be of another version")
	}
	u.get(t, http.StatusNotFound, "/console/assets/console.go")
}

func TestUnknownPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	for _, path := range []string{"/console/nothing", "/console/t/acme/nothing", "/console/assets/", "/console/t/"} {
		w, _ := u.do(t, http.MethodGet, path, nil)
		require.Equal(t, http.StatusNotFound, w.StatusCode, path)
		require.NotEmpty(t, w.Header.Get("Content-Security-Policy"), path)
	}
	w, _ := u.do(t, http.MethodGet, "/console", nil)
	require.Contains(t, []int{http.StatusMovedPermanently, http.StatusSeeOther, http.StatusTemporaryRedirect}, w.StatusCode)
	w, _ = u.do(t, http.MethodPut, "/console/t/acme/endpoints", nil)
	require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusNotFound}, w.StatusCode)
	require.Equal(t, "acme", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme", "")["id"], "the API is beside it")
}

// Texts that came from outside are text: in lists, on pages, in fields, whatever they contain.
func TestStoredTextsAreText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const script, attribute = `<script>alert(1)</script>`, `\"' onfocus=alert(1) x='`
	endpoint := b.endpoint(t, "acme", `,"description":"`+script+attribute+`\u202eevil","headers":{"X-A":"b"}`)
	event, delivery := b.event(t, "acme",
		`{"type":"order.paid","payload":{"a":"`+script+`\u202e\u200b","b":"</pre><img src=x>"},"external_id":"`+script+`"}`)
	u := b.loggedIn(t, "acme admin")
	for _, path := range []string{
		"/", "/endpoints", "/endpoints/" + endpoint, "/endpoints/" + endpoint + "/edit", "/endpoints/" + endpoint + "/pause",
		"/endpoints/" + endpoint + "/test",
		"/events", "/events/" + event, "/events/" + event + "?payload=raw", "/events/new?from=" + event, "/deliveries", "/deliveries/" + delivery,
		"/endpoints?text=" + "%3Cscript%3E", "/deliveries?event_type=%3Cscript%3Ealert(1)%3C/script%3E", "/events?external_id=%22%3E%3Cscript%3E",
		"/search?q=%3Cscript%3Ealert(1)%3C/script%3E",
	} {
		w, text := u.do(t, http.MethodGet, "/console/t/acme"+path, nil)
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, w.StatusCode, path)
		require.NotContains(t, text, "<script>", path)
		require.NotContains(t, text, "<img", path)
		requireStructure(t, path, text)
	}
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/endpoints/"+endpoint), "[U&#43;202E]evil")
	w, text := u.do(t, http.MethodGet, "/console/t/acme/events/"+event+"/payload", nil)
	require.Equal(t, "text/plain; charset=utf-8", w.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header.Get("X-Content-Type-Options"))
	require.Contains(t, w.Header.Get("Content-Disposition"), "attachment")
	require.Contains(t, text, script, "as it was sent")
}
