package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// TestCatalogue makes a catalogue of event types as an operator, and uses it as a customer, with JavaScript and without.
func TestCatalogue(t *testing.T) { //nolint:tparallel // one browser: its pages are looked at one after another
	t.Parallel()
	in := ownInstance(t, nil)
	browser := startBrowser(t)
	for _, scripts := range []bool{true, false} {
		mode, name := "with JavaScript", "order"
		if !scripts {
			mode, name = "without JavaScript", "plain"
		}
		t.Run(mode, func(t *testing.T) {
			b := newBundle(t, in, in.client(), fmt.Sprintf("customer-%d", tenants.Add(1)))
			operator, customer := browser.open(t, in), browser.open(t, in)
			operator.as(in, in.key)
			if !scripts {
				operator.withoutScripts()
				customer.withoutScripts()
			}
			operator.writeCatalogue(name)
			customer.openPortal(b, "Open", fieldsOf{"scope": "manage", "lang": "en"})
			customer.useCatalogue(b, name, scripts)
		})
	}
}

// writeCatalogue makes a type with a form, and imports others, as an operator.
func (w *window) writeCatalogue(name string) {
	w.t.Helper()
	w.show("/event-types", http.StatusOK)
	w.pressButton("Create an event type")
	w.fill("name", name+".paid")
	w.fill("description", "An order <b> was paid.")
	w.fill("group", "Orders "+name)
	w.fill("schema", `{"type": "object", "properties": {"order": {"type": "integer", "description": "Its number."}}, "required": ["order"]}`)
	w.fill("examples", `{"order": "seventeen"}`)
	w.expect(http.StatusBadRequest)
	w.pressButton("Create")
	require.Contains(w.t, w.text(), "does not match the schema")
	w.fill("examples", `{"order": 17, "by": "`+name+`"}`)
	w.pressButton("Create")
	require.Contains(w.t, w.text(), "The event type is in the catalogue.")

	schemas := make([]string, 14)
	for i := range schemas {
		schemas[i] = fmt.Sprintf(`"%s.n%02d": {}`, name, i)
	}
	w.show("/event-types", http.StatusOK)
	w.pressButton("Import")
	w.fill("kind", "JSON Schemas by event type")
	w.fill("document", `{"`+name+`.paid": {"properties": {"total": {"type": "number"}}, "required": ["total"]}, `+strings.Join(schemas, ", ")+`}`)
	w.pressButton("Check")
	for _, said := range []string{"nothing was changed yet", "removed: /order", "newly required: /total", "created"} {
		require.Contains(w.t, w.text(), said)
	}
	w.pressButton("Import")
	require.Contains(w.t, w.text(), "The import is done: 15 event types were changed.")
	w.pressButton(name + ".paid")
	require.Contains(w.t, w.text(), "Version 2")
	w.press(`(//main//a[normalize-space()="Edit version 2"])[1]`)
	w.fill("schema", `{"properties": {"total": {"type": "number", "description": "In euros."}}, "required": ["total"]}`)
	w.fill("examples", `{"total": 9.50, "by": "`+name+`"}`)
	w.pressButton("Save")
	require.Contains(w.t, w.text(), "The versions are changed.")
}

// useCatalogue reads what a type means, adds an endpoint that gets it, and sends its example there.
func (w *window) useCatalogue(b *bundle, name string, scripts bool) {
	w.t.Helper()
	r := receivertest.New(w.t)
	w.pressButton("What the event types mean")
	require.Contains(w.t, w.text(), "An order <b> was paid.")
	w.pressButton(name + ".paid")
	require.Contains(w.t, w.text(), "In euros.")
	require.Contains(w.t, w.text(), "To get an example, add an endpoint first.")
	w.pressButton("Add an endpoint")
	w.fill("url", r.URL()+"/hook")
	if scripts {
		w.find("N07", name+".n07")
	}
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Evaluate[chromedp.Void](
		`for (const d of document.querySelectorAll("details")) { d.open = true }; document.querySelector('input[value="`+name+`.paid"]').click()`)))
	w.pressButton("Add an endpoint")
	require.Contains(w.t, w.text(), "The endpoint has been added.")
	require.Contains(w.t, w.text(), name+".paid")
	endpoint := strings.TrimPrefix(w.path(), "/endpoints/")
	var stored struct {
		EventTypes []string `json:"event_types"`
	}
	b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+endpoint, nil, &stored)
	require.Equal(w.t, []string{name + ".paid"}, stored.EventTypes)

	w.show("/event-types/"+name+".paid", http.StatusOK)
	w.pressButton("Send this example")
	require.Contains(w.t, w.text(), "Accepted by your server (status 200).")
	w.show("/endpoints/"+endpoint+"/test", http.StatusOK)
	w.pressButton("Send")
	require.Contains(w.t, w.text(), "Accepted by your server (status 200).")
	requests := r.Requests()
	require.Len(w.t, requests, 2)
	for _, got := range requests {
		var payload map[string]any
		require.NoError(w.t, json.Unmarshal(got.Body, &payload))
		require.Equal(w.t, map[string]any{"total": 9.5, "by": name}, payload)
	}
}

// find types into the filter of the event types, which then shows those that have the text.
func (w *window) find(text, want string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.SendKeys(chromedp.CSS("input[data-filter]"), text)))
	require.Equal(w.t, []string{want}, evaluate[[]string](w, `
		[...document.querySelectorAll("#choices label")].filter(l => l.checkVisibility()).map(l => l.innerText.trim())`))
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Evaluate[chromedp.Void](
		`{ const f = document.querySelector("input[data-filter]"); f.value = ""; f.dispatchEvent(new Event("input")); }`)))
}
