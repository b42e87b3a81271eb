package console

import (
	"strings"

	"github.com/everpost/everpost/client"
)

// portalFilterView is the editor of an endpoint's filter.
type portalFilterView struct {
	Form  form
	ID    string
	Name  string
	Seen  string       // when the endpoint that the form shows was changed last
	Trial *filterTrial // nil if the filter cannot be tried as it is
}

// filterPlace is the JSON pointer into a filter with which the API's message about it begins; "" for none.
func filterPlace(message string) string {
	place, _, found := strings.Cut(message, ": ")
	if !found || !strings.HasPrefix(place, "/") {
		return ""
	}
	return place
}

// filterProblem says what is wrong with a filter: where, because what is wrong there is written for operators.
func (t *texts) filterProblem(message string) string {
	if place := filterPlace(message); place != "" {
		return t.say("field.filter.at", "place", place)
	}
	if message == notJSON {
		return t.say("field.filter.json")
	}
	return t.say("field.filter")
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
	v := portalFilterView{ID: e.endpoint.ID, Name: shortName(e.endpoint.Description, e.endpoint.URL), Seen: e.seen(p.page)}
	if !e.form.Failed() {
		var err error
		if v.Trial, err = e.try(p.page, p.refused); err != nil {
			return err
		}
	}
	v.Form = e.form
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
