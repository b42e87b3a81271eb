package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// The budgets of a page's HTML.
const (
	maxPageBytes      = 100 << 10
	maxReferenceBytes = 300 << 10
)

// wideAndNarrow are a desk's screen and a phone's.
var wideAndNarrow = []int64{1440, 375}

// changingParts are what differs between pages of the same kind: ids, tenants, and what follows the path.
var changingParts = regexp.MustCompile(`(evt|dlv|ep|rpl|key|lnk|aud|nch)_[0-9a-z]{26}|^/t/[^/]+|^/tenants/[^/?]+|^/event-types/[^/?]+|[?#].*`)

// lookAtEveryPage follows the links of an installation with some of everything. Each kind of page must have nothing wrong
// for axe-core in either theme, must not scroll sideways on a phone, and must keep within its budget.
func lookAtEveryPage(t *testing.T, browser *browsers) {
	t.Helper()
	b := setup(t)
	b.someOfEverything()
	source, missing := axeSource()
	if missing != nil {
		t.Logf("axe-core does not look at the pages: %v", missing)
	}
	w := browser.open(t, b.in)
	w.as(b.in, b.in.key)
	paths := []string{
		b.below(), "/", b.below("search") + "?q=order", b.below("search") + "?q=state:gone", b.below("retry-policies") + "?policy=none",
		b.below("replays", "new") + "?source=dead_letters&preview=1&ramp=on&rate_per_minute=100", b.below("nowhere"),
	}
	kinds := map[string]bool{}
	for i := 0; i < len(paths); i++ {
		path := paths[i]
		kind := changingParts.ReplaceAllString(path, "*")
		if i > 6 && kinds[kind] {
			continue
		}
		kinds[kind] = true
		for _, next := range w.look(path, source, maxPageBytes) {
			if strings.HasPrefix(next, "/t/") && !strings.HasPrefix(next, "/t/"+b.tenant+"/") {
				continue // another test's
			}
			if !slices.Contains(paths, next) {
				paths = append(paths, next)
			}
		}
	}
	require.Greater(t, len(kinds), 30, "%v", kinds)

	stranger := browser.open(t, b.in)
	stranger.look("/login", source, maxPageBytes)
}

// lookAtTheReference looks at every page of the API's reference as at those of the console, and finds an operation.
func lookAtTheReference(t *testing.T, browser *browsers) {
	t.Helper()
	source, _ := axeSource()
	w := browser.open(t, setup(t).in)
	w.base = strings.TrimSuffix(w.base, "/console") + "/docs"
	paths := []string{""}
	for i := 0; i < len(paths); i++ {
		w.look(paths[i], source, maxReferenceBytes)
		for _, link := range evaluate[[]string](w, `[...document.querySelectorAll("a[href^='/docs']")].map(a => a.pathname.replace("/docs", ""))`) {
			if !slices.Contains(paths, link) {
				paths = append(paths, link)
			}
		}
	}
	require.Greater(t, len(paths), 12, "%v", paths)

	w.show("", http.StatusOK)
	require.NoError(t, chromedp.Do(w.ctx, chromedp.SendKeys(chromedp.ID("filter"), "post batch\r")))
	eventually(contextFor(t, patience), t, func() string {
		if evaluate[string](w, `location.hash`) == "#postEventBatch" && w.path() == "/events" && strings.Contains(w.text(), "curl -sS -X POST") {
			return ""
		}
		return w.path() + ": " + w.text()
	})
	plain := browser.open(t, setup(t).in)
	plain.base = w.base
	plain.withoutScripts()
	plain.show("/errors", http.StatusOK)
	require.Contains(t, plain.text(), "idempotency-mismatch")
	require.True(t, evaluate[bool](plain, `document.getElementById("search").hidden`), "without scripts there is nothing to type into")
}

// look checks one page, whose HTML has a budget in bytes, and returns the pages that it links to. axe-core looks at it in each width and in each theme;
// at all pairs of them only if there is time.
func (w *window) look(path, axe string, budget int) []string {
	w.t.Helper()
	w.expect(http.StatusBadRequest, http.StatusNotFound)
	response, err := chromedp.Run(w.ctx, chromedp.NavigateResponse(w.base+path))
	require.NoError(w.t, err, path)
	require.Less(w.t, response.Status, int64(http.StatusInternalServerError), path)
	require.LessOrEqual(w.t, evaluate[int](w, `performance.getEntriesByType("navigation")[0].decodedBodySize`), budget, path)
	for _, width := range wideAndNarrow {
		w.size(width, 900)
		wider := evaluate[int](w, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
		tooWide := evaluate[string](w, `[...document.querySelectorAll("body *")].filter(e =>
			e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join(" | ")`)
		require.LessOrEqual(w.t, wider, 0, "%s scrolls sideways at %d px: %s", path, width, tooWide)
		for _, theme := range []string{"light", "dark"} {
			w.theme(theme)
			if axe != "" && ((width > 1000) == (theme == "light") || hasTime()) {
				require.Empty(w.t, w.axe(axe), "%s in the %s theme at %d px", path, theme, width)
			}
		}
	}
	w.size(1440, 900)
	w.theme("light")
	var below []string
	for _, link := range evaluate[[]string](w, `[...document.querySelectorAll("a[href]")].filter(a => a.origin === location.origin && !a.hash &&
		!a.pathname.endsWith("/payload") && !a.pathname.endsWith("-export")).map(a => a.pathname + a.search)`) {
		if rest, found := strings.CutPrefix(link, w.base[strings.LastIndex(w.base, "/"):]+"/"); found {
			below = append(below, "/"+rest)
		}
	}
	return below
}

// someOfEverything gives the tenant deliveries in every state, a dead letter, a replay, a key and a notification channel.
func (b *bundle) someOfEverything() {
	b.t.Helper()
	r := newReceiver(b.t)
	for _, kind := range []string{"well", "tired", "odd"} {
		b.endpoint(r, "/"+kind, fieldsOf{"event_types": []string{"a." + kind, "order." + kind}, "retry_policy": patiently(),
			"description": "The " + kind + " one"})
	}
	paused := b.endpoint(r, "/paused", fieldsOf{"event_types": []string{"a.paused"}})
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+paused.ID+"/pause", nil, nil)
	r.Script("/tired", receivertest.Step{Status: http.StatusServiceUnavailable, Body: "<script>alert(1)</script>"})
	for range 3 {
		_, d := b.postOne("a.well", `{"name":"\u202e odd"}`, "external_id", fmt.Sprintf(`"order-%d"`, tenants.Add(1)))
		b.waitState(d.ID, "delivered")
	}
	_, tired := b.postOne("a.tired", `{}`)
	b.waitState(tired.ID, "retrying")
	_, held := b.postOne("a.paused", `{}`)
	b.waitState(held.ID, "held")
	b.refused(r, "odd")
	b.waitReplayState(b.makeReplay(fieldsOf{"source": "dead_letters"}).ID, "completed")
	b.refused(r, "odd")
	b.post("nobody.wants", `{}`)
	b.key("ingest")
	b.someTypes()
	b.ask(http.StatusOK, http.MethodPut, "/notifications", fieldsOf{"channels": []fieldsOf{{
		"kind": "webhook", "target": r.URL() + "/told", "on": []string{"disabled", "dead_letters"}, "endpoint_ids": []string{paused.ID},
	}}}, nil)
}

// someTypes puts types of all states into the catalogue, which all tenants of the installation share.
func (b *bundle) someTypes() {
	b.t.Helper()
	schema := fieldsOf{"type": "object", "required": []string{"order"}, "properties": fieldsOf{
		"order": fieldsOf{"type": "integer", "description": "The number of the order."},
		"lines": fieldsOf{"type": "array", "items": fieldsOf{"type": "object", "properties": fieldsOf{
			"sku":  fieldsOf{"type": "string", "description": "What was ordered."},
			"kind": fieldsOf{"enum": []string{"new", "used"}, "deprecated": true},
		}}},
		"at": fieldsOf{"type": []string{"string", "null"}, "format": "date-time"},
	}}
	versions := []fieldsOf{
		{"version": 1, "examples": []fieldsOf{{"order": 1}}},
		{"version": 2, "schema": schema, "examples": []fieldsOf{{"order": 17, "lines": []fieldsOf{{"sku": "a"}}}, {"order": 18}}},
	}
	const odd = "An order was odd.\nIt still is."
	for name, fields := range map[string]fieldsOf{
		"order.well": {"group": "Orders", "description": "An order was placed.", "versions": versions, "validation": "warn", "ordering_key": "/order"},
		"order.odd":  {"group": "Orders", "description": odd, "state": "deprecated", "replaced_by": "order.well", "versions": versions},
		"order.past": {"group": "Orders", "state": "archived"},
		"user.new":   {"description": "A user has signed up."},
	} {
		got, err := b.client.call(contextFor(b.t, patience), http.MethodPut, "/v1/event-types/"+name, fields)
		require.NoError(b.t, err)
		require.Contains(b.t, []int{http.StatusOK, http.StatusCreated}, got.status, "%s", got.body)
	}
}
