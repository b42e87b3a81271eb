package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// newPortalField is a field of a form, for the templates "input", "area" and "once".
func newPortalField(f form, name, label, hint string) fieldView {
	return newInput(f, name, label, hint)
}

// refused is the form again with what was typed, and why it was refused, in the portal's words: those of the API are for
// operators. It returns the error itself if that is not about what was typed.
func (p *portalPage) refused(f form, err error) (form, error) {
	known := problemOf(err)
	f, err = f.refused(p.typed, err)
	if err != nil {
		return f, err
	}
	for name := range f.errors {
		if name == "filter" {
			first := slices.IndexFunc(known.Errors, func(e client.FieldError) bool { return f.fieldOf(e.Field) == name })
			f.errors[name] = p.texts().filterProblem(known.Errors[first])
			continue
		}
		key := "field." + name
		if !p.texts().Has(key) {
			key = "field.other"
		}
		f.errors[name] = p.say(key)
	}
	switch {
	case f.Problem == "":
	case known.Status == http.StatusConflict:
		f.Problem = p.say("form.changed")
	case known.Status == http.StatusUnprocessableEntity:
		f.Problem = p.say("form.limit")
	case unlessBusy(known) == nil:
		f.Problem = p.say("error.busy")
	default:
		f.Problem = p.say("form.refused")
	}
	return f, nil
}

// portalEndpointForm is the form of a new endpoint or of one that is changed.
type portalEndpointForm struct {
	Form    form
	ID      string // "" for a new one
	Seen    string
	Types   []typeChoice // that were seen, if there is no catalogue
	Choices typeChoices  // of the catalogue
	Back    string
	Action  string       // the label of the button
	Trial   *filterTrial // of the filter of a new one; nil if it was not tried
}

// maxTypeChoices bounds the event types to choose from; others are typed.
const maxTypeChoices = 40

// seenTypes are the event types of the newest messages, sorted.
func seenTypes(p *portalPage) ([]string, error) {
	var found client.Page[client.ListedEvent]
	if err := p.get(&found, url.Values{"limit": {"100"}}, "events"); err != nil {
		return nil, unlessBusy(err)
	}
	var types []string
	for _, e := range found.Data {
		if e.Type != webhook.NotificationType && !slices.Contains(types, e.Type) && len(types) < maxTypeChoices {
			types = append(types, e.Type)
		}
	}
	slices.Sort(types)
	return types, nil
}

// seenChoices are the event types that were seen and those that are chosen; what is chosen and is a pattern, or has no room, is typed. All types
// alone are neither.
func seenChoices(seen, chosen []string) (choices []typeChoice, typed []string) {
	for _, name := range chosen {
		switch {
		case name == "*" && len(chosen) == 1:
		case strings.Contains(name, "*"):
			typed = append(typed, name)
		case !slices.Contains(seen, name):
			seen = append(seen, name)
		}
	}
	slices.Sort(seen)
	for _, name := range seen {
		choices = append(choices, typeChoice{Name: name, Checked: slices.Contains(chosen, name)})
	}
	if len(choices) > 2*maxTypeChoices {
		for _, c := range choices[2*maxTypeChoices:] {
			if c.Checked {
				typed = append(typed, c.Name)
			}
		}
		choices = choices[:2*maxTypeChoices]
	}
	return choices, typed
}

// portalFormOf is the form of an endpoint; showPortalForm adds its event types.
func portalFormOf(e client.Endpoint) form {
	return newForm("url", e.URL, "description", e.Description, "event_types", "", "filter", "", "payload", "", "numbers", numbersOf(e))
}

// numbersOf is the value of the box of a form for whether an endpoint's messages are numbered.
func numbersOf(e client.Endpoint) string {
	if e.Ordering.By == webhook.OrderingNumber.String() {
		return "yes"
	}
	return ""
}

// typedOrdering is what that box was sent with.
func typedOrdering(typed url.Values) client.Ordering {
	by := webhook.OrderingNone
	if typed.Get("numbers") != "" {
		by = webhook.OrderingNumber
	}
	return client.Ordering{By: by.String()}
}

// typedTypes are the event types that a form was sent with. None is all.
func typedTypes(typed url.Values) []string {
	if types := chosenTypes(typed); len(types) > 0 {
		return types
	}
	return []string{"*"}
}

func showPortalForm(p *portalPage, f form, e client.Endpoint) error {
	title := p.say("endpoint.add")
	v := portalEndpointForm{ID: e.ID, Seen: f.shows(p.typed, "seen", seenAt(e.UpdatedAt)), Back: portalPath("endpoints"), Action: title}
	if e.ID != "" {
		v.Back, v.Action, title = portalPath("endpoints", e.ID), p.say("form.save"), p.say("endpoint.edit")
	}
	chosen := e.EventTypes
	if p.typed != nil {
		chosen = p.typed["type"]
	}
	var err error
	if f, v.Trial, err = tryTypedFilter(p, f); err != nil {
		return err
	}
	seen, err := seenTypes(p)
	if err != nil {
		return err
	}
	known, err := readEventTypes(p.page)
	if unlessBusy(err) != nil {
		return err
	}
	var typed []string
	if len(known) > 0 {
		v.Choices, typed = chooseTypes(withSeen(known, seen), chosen, p.typed.Get("find"))
	} else {
		v.Types, typed = seenChoices(seen, chosen)
	}
	v.Form = f.withTypes(typed)
	return p.show(portalView{Template: "endpoint-form", Title: title, Entry: "endpoints", Status: f.status(), Data: v})
}

// withSeen are the types of the catalogue, and those that were seen beside them.
func withSeen(known []client.ListedEventType, seen []string) []client.ListedEventType {
	for _, name := range seen {
		if !slices.ContainsFunc(known, func(t client.ListedEventType) bool { return t.Name == name }) {
			known = append(known, client.ListedEventType{Name: name})
		}
	}
	return known
}

func newPortalEndpoint(p *portalPage) error {
	return showPortalForm(p, portalFormOf(client.Endpoint{}), client.Endpoint{})
}

func createPortalEndpoint(p *portalPage) error {
	body := map[string]any{
		"url": strings.TrimSpace(p.typed.Get("url")), "description": strings.TrimSpace(p.typed.Get("description")), "event_types": typedTypes(p.typed),
		"ordering": typedOrdering(p.typed),
	}
	if p.typed.Has("show") {
		return showPortalForm(p, portalFormOf(client.Endpoint{}).kept(p.typed), client.Endpoint{})
	}
	var made client.Endpoint
	err := addTypedFilter(p, body)
	if err == nil {
		err = p.createPlain(&made, body, "endpoints")
	}
	if err != nil {
		f, err := p.refused(portalFormOf(client.Endpoint{}), err)
		if err != nil {
			return err
		}
		return showPortalForm(p, f, client.Endpoint{})
	}
	return p.done(portalPath("endpoints", made.ID), p.say("endpoint.added"))
}

func editPortalEndpoint(p *portalPage) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return showPortalForm(p, portalFormOf(e), e)
}

// updatePortalEndpoint sends what differs from the endpoint as it is now, unless that is not what the form showed.
func updatePortalEndpoint(p *portalPage) error {
	id := p.r.PathValue("id")
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return err
	}
	if p.typed.Has("show") {
		return showPortalForm(p, portalFormOf(e).kept(p.typed), e)
	}
	err := changedMeanwhile("endpoint", p.typed.Get("seen"), e.UpdatedAt)
	if err == nil {
		body := map[string]any{}
		for name, before := range map[string]string{"url": e.URL, "description": e.Description} {
			text := strings.TrimSpace(strings.ReplaceAll(p.typed.Get(name), "\r\n", "\n"))
			if text != strings.TrimSpace(before) {
				body[name] = text
			}
		}
		if types := typedTypes(p.typed); !sameTypes(types, e.EventTypes) {
			body["event_types"] = types
		}
		if ordering := typedOrdering(p.typed); ordering != e.Ordering {
			body["ordering"] = ordering
		}
		if len(body) == 0 {
			return p.done(portalPath("endpoints", id), p.say("form.unchanged"))
		}
		err = p.send(nil, http.MethodPatch, body, "endpoints", id)
	}
	if err != nil {
		f, err := p.refused(portalFormOf(e), err)
		if err != nil {
			return err
		}
		return showPortalForm(p, f, e)
	}
	return p.done(portalPath("endpoints", id), p.say("form.saved"))
}
