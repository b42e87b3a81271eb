package console

import (
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	jsonfilter "github.com/everpost/everpost/internal/filter" // filter is that of a list
	"github.com/everpost/everpost/internal/jsonref"
	"github.com/everpost/everpost/internal/webhook"
)

// filterProblem says what is wrong with a filter: where, because what is wrong there is written for operators.
func (t *texts) filterProblem(wrong client.FieldError) string {
	if name := besidePayload(wrong.Pointer); name != "" {
		return t.say("field.filter.payload", "place", name, "example", jsonfilter.OfPayload(name))
	}
	switch {
	case wrong.Pointer != "":
		return t.say("field.filter.at", "place", wrong.Pointer)
	case wrong.Message == notJSON:
		return t.say("field.filter.json")
	}
	return t.say("field.filter")
}

// besidePayload is the name that a JSON pointer into a filter leads to if it is at the top, or in a combination of conditions there, and no message
// has it: it is probably one of the payload. "" for any other place.
func besidePayload(pointer string) string {
	names := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for len(names) > 1 && strings.HasPrefix(names[0], "$") {
		if names[0] != "$not" { // a list
			names = names[1:]
		}
		names = names[1:]
	}
	if len(names) != 1 || strings.HasPrefix(names[0], "$") || slices.Contains(jsonfilter.EventFields(), names[0]) {
		return ""
	}
	return jsonref.Unescaped(names[0])
}

// FilterWhy says why an event does not meet a filter.
func (t *texts) FilterWhy(f *client.FilterFailure) string {
	wanted := f.Wanted
	if f.Operator != "" {
		wanted = f.Operator + " " + wanted
	}
	switch {
	case f.Missing:
		return t.say("filter.why.missing", "place", f.Path, "wanted", wanted)
	case f.Path == "":
		return t.say("filter.why.message", "wanted", wanted)
	case f.Elements > 1:
		return t.say("filter.why.none", "place", f.Path, "found", f.Found, "wanted", wanted, "count", f.Elements)
	}
	return t.say("filter.why.found", "place", f.Path, "found", f.Found, "wanted", wanted)
}

func showPortalFilter(p *portalPage, e filterEditor) error {
	v, err := e.view(p.page, shortName(e.endpoint.Description, e.endpoint.URL), p.refused)
	if err != nil {
		return err
	}
	return p.show(portalView{Template: "filter", Title: p.say("filter.title"), Entry: "endpoints", Status: v.Form.status(), Data: v})
}

// editPortalFilter shows the stored filter, or with a form the one that was typed.
func editPortalFilter(p *portalPage) error {
	e, err := readFilter(p.page)
	if err != nil {
		return err
	}
	return showPortalFilter(p, e)
}

func savePortalFilter(p *portalPage) error {
	e, err := readFilter(p.page)
	if err != nil {
		return err
	}
	changed, warnings, err := e.save(p.page)
	if err != nil {
		if e.form, err = p.refused(e.form, err); err != nil {
			return err
		}
		return showPortalFilter(p, e)
	}
	said := "form.unchanged"
	switch {
	case len(warnings) > 0:
		return p.done(portalPath("endpoints", e.endpoint.ID, "filter"), p.say("filter.saved_with_warning"))
	case changed:
		said = "filter.saved"
	}
	return p.done(portalPath("endpoints", e.endpoint.ID), p.say(said))
}

// addTypedFilter adds the filter of the form of a new endpoint to a body, if there is one.
func addTypedFilter(p *portalPage, body map[string]any) error {
	if !portalFilters.sees(p.session) {
		return nil
	}
	filter, err := typedFilter(p.typed.Get("filter"))
	if err == nil && string(filter) != "null" {
		body["filter"] = filter
	}
	return err
}

// tryTypedFilter tries the filter of the form of a new endpoint, if that is what was asked for, with the event types that are chosen there.
func tryTypedFilter(p *portalPage, f form) (form, *filterTrial, error) {
	if p.typed.Get("show") != "trial" || !portalFilters.sees(p.session) {
		return f, nil, nil
	}
	types := typedTypes(p.typed)
	tried := newForm("filter", f.Value("filter"), "payload", f.Value("payload"), "type", "")
	if name := exampleType(types, nil); webhook.ValidType(name) {
		tried.Values.Set("type", name)
	}
	return triedForm(p.page, f, tried, types, p.refused)
}
