package console

import (
	"net/http"
	"net/url"

	"github.com/everpost/everpost/client"
)

// filterView is the editor of an endpoint's filter.
type filterView struct {
	Form  form
	ID    string
	Name  string
	Seen  string       // when the endpoint that the form shows was changed last
	Trial *filterTrial // nil if the filter cannot be tried as it is
}

// filterEditor is an endpoint with the form of its filter.
type filterEditor struct {
	endpoint client.Endpoint
	form     form
}

// readFilter reads the endpoint of the path, with the form of its filter or with what was typed.
func readFilter(p *page) (e filterEditor, err error) {
	if err := p.get(&e.endpoint, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return e, err
	}
	e.form = filterFields(e.endpoint.Filter)
	if p.r.Method == http.MethodGet {
		e.form.Values.Set("event", p.r.URL.Query().Get("event"))
		return e, nil
	}
	typed := url.Values{}
	for _, name := range e.form.known {
		typed[name] = p.typed[name]
	}
	e.form.Values = typed
	return e, nil
}

// view is the editor as a page shows it, under the endpoint's name: with the filter tried, unless it was refused. What was typed and cannot be tried
// is marked by refused.
func (e *filterEditor) view(p *page, name string, refused func(form, error) (form, error)) (v filterView, err error) {
	v = filterView{Form: e.form, ID: e.endpoint.ID, Name: name, Seen: e.form.shows(p.typed, "seen", seenAt(e.endpoint.UpdatedAt))}
	if !e.form.Failed() {
		v.Form, v.Trial, err = triedForm(p, e.form, e.form, e.endpoint.EventTypes, refused)
	}
	return v, err
}

// save stores the filter, unless the endpoint is not what the form showed. It reports whether that changes anything, and what the filter does not
// find in the schemas of the event types.
func (e *filterEditor) save(p *page) (changed bool, warnings []client.FieldError, err error) {
	if err := changedMeanwhile("endpoint", p.typed.Get("seen"), e.endpoint.UpdatedAt); err != nil {
		return false, nil, err
	}
	filter, err := typedFilter(e.form.Value("filter"))
	if err != nil {
		return false, nil, err
	}
	body, err := plainJSON(map[string]any{"filter": filter})
	if err != nil {
		return false, nil, err
	}
	var stored client.Endpoint
	if err := p.send(&stored, http.MethodPatch, body, "endpoints", e.endpoint.ID); err != nil {
		return false, nil, err
	}
	return string(stored.Filter) != string(e.endpoint.Filter), stored.Warnings, nil
}

// showFilter shows the editor, and tries the filter unless it was refused.
func showFilter(p *page, e filterEditor) error {
	v, err := e.view(p, nameOf(e.endpoint), func(f form, err error) (form, error) { return f.refused(f.Values, err) })
	if err != nil {
		return err
	}
	return p.show(view{Template: "endpoint-filter", Title: "Filter", Entry: "Endpoints", Status: v.Form.status(), Data: v})
}

// editFilter shows the stored filter, or with a form the one that was typed.
func editFilter(p *page) error {
	e, err := readFilter(p)
	if err != nil {
		return err
	}
	return showFilter(p, e)
}

func saveFilter(p *page) error {
	e, err := readFilter(p)
	if err != nil {
		return err
	}
	changed, warnings, err := e.save(p)
	if err != nil {
		if e.form, err = e.form.refused(p.typed, err); err != nil {
			return err
		}
		return showFilter(p, e)
	}
	switch {
	case len(warnings) > 0:
		return p.done(p.to("endpoints", e.endpoint.ID, "filter"), "The filter is saved, but see the warning.")
	case !changed:
		return p.done(p.to("endpoints", e.endpoint.ID), "Nothing was changed.")
	}
	return p.done(p.to("endpoints", e.endpoint.ID), "The filter is saved. It decides about events that are accepted from now on.")
}
