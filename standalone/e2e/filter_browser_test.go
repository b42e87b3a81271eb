package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilterEditors edits the filter of an endpoint as an operator and as a customer do, in a real browser, with JavaScript and without, and looks at
// the pages.
func TestFilterEditors(t *testing.T) { //nolint:tparallel // one browser: its pages are looked at one after another
	t.Parallel()
	in := ownInstance(t, nil)
	browser := startBrowser(t)
	for _, scripts := range []bool{true, false} {
		mode := "with JavaScript"
		if !scripts {
			mode = "without JavaScript"
		}
		t.Run(mode, func(t *testing.T) { editFilters(t, browser, in, scripts) })
	}
	t.Run("pages", func(t *testing.T) { lookAtFilters(t, browser, in) })
}

// filtered is a tenant with an endpoint and events, of which some meet a filter that asks for an amount.
func filtered(t *testing.T, in *instance) (*bundle, endpoint) {
	t.Helper()
	b := newBundle(t, in, in.client(), fmt.Sprintf("filter-%d", tenants.Add(1)))
	ep := b.endpoint(newReceiver(t), "/hook", fieldsOf{"description": "Warehouse", "event_types": []string{"order.*"}})
	for _, payload := range []string{`{"amount":17}`, `{"amount":170,"country":"DE"}`, `{"country":"<b>"}`, `{"amount":[1,2]}`} {
		b.post("order.paid", payload)
	}
	b.post("user.created", `{}`)
	return b, ep
}

const atLeast100 = `{"payload": {"amount": {"$gte": 100}}}`

func editFilters(t *testing.T, browser *browsers, in *instance, scripts bool) {
	t.Helper()
	b, ep := filtered(t, in)
	w := browser.open(t, in)
	if !scripts {
		w.withoutScripts()
	}
	w.as(in, in.key)
	w.show(b.below("endpoints", ep.ID), http.StatusOK)
	w.pressButton("Try and change it")
	require.Contains(t, w.text(), "4 of 5 match")
	w.fill("filter", atLeast100)
	w.pressButton("Try")
	require.Contains(t, w.text(), "1 of 5 match")
	require.Contains(t, w.text(), "/payload/amount is 17; the filter wants $gte 100.")
	w.expect(http.StatusBadRequest)
	w.fill("filter", `{"data": 1}`)
	w.pressButton("Save")
	require.Contains(t, w.text(), "/data: is no field of an event")
	w.fill("filter", atLeast100)
	w.pressButton("Save")
	require.Contains(t, w.text(), "The filter is saved.")
	require.Zero(t, b.post("order.paid", `{"amount":99}`).Matched)

	w.openPortal(b, "Open", fieldsOf{"scope": "manage", "lang": "en"})
	w.show("/endpoints/"+ep.ID, http.StatusOK)
	w.pressButton("Try and change")
	require.Contains(t, w.text(), "1 of 6 would be sent here with this filter.")
	w.fill("filter", `{"payload": {"country": {"$exists": true}}}`)
	w.fill("payload", `{"country": "FR"}`)
	w.pressButton("Try")
	require.Contains(t, w.text(), "2 of 6 would be sent here with this filter.")
	require.Contains(t, w.text(), "The message has no /payload/country.")
	w.pressButton("Save")
	require.Contains(t, w.text(), "The filter has been saved. It applies to new messages.")
	require.Equal(t, 1, b.post("order.paid", `{"country":"DE"}`).Matched)
	w.show("/endpoints/new", http.StatusOK)
	w.fill("url", ep.URL+"2")
	w.fill("filter", `{"type": "order.paid"}`)
	w.pressButton("Add an endpoint")
	require.Contains(t, w.text(), "The endpoint has been added.")
	require.Contains(t, w.text(), `"type": "order.paid"`)
}

// lookAtFilters looks at the editors and at an event that does not match, in both themes and at two widths: see look.
func lookAtFilters(t *testing.T, browser *browsers, in *instance) {
	t.Helper()
	b, ep := filtered(t, in)
	b.ask(http.StatusOK, http.MethodPatch, "/endpoints/"+ep.ID, fieldsOf{"filter": fieldsOf{"payload": fieldsOf{"amount": fieldsOf{"$gte": 100}}}}, nil)
	event := b.post("order.paid", `{"amount":17}`)
	source, missing := axeSource()
	if missing != nil {
		t.Logf("axe-core does not look at the pages: %v", missing)
	}
	w := browser.open(t, in)
	w.as(in, in.key)
	for _, path := range []string{b.below("endpoints", ep.ID, "filter") + "?event=" + event.ID, b.below("events", event.ID)} {
		w.look(path, source, maxPageBytes)
	}
	for lang, button := range map[string]string{"en": "Open", "de": "Öffnen"} {
		w := browser.open(t, in)
		w.openPortal(b, button, fieldsOf{"scope": "manage", "lang": lang})
		for _, path := range []string{"/endpoints/" + ep.ID + "/filter", "/endpoints/" + ep.ID, "/endpoints/new"} {
			w.look(path, source, maxPageBytes)
		}
	}
}
