package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
)

// endpointFields are the fields of the form, in its order.
func endpointFields() []string {
	return []string{
		"url", "description", "event_types", "timeout", "max_in_flight", "rate_limit_per_second",
		"headers", "signature", "payload_format", "ordering", "success_statuses", "auto_replay",
	}
}

// endpointGroups are the objects of the form, after its fields.
func endpointGroups() []fieldGroup {
	return []fieldGroup{policyGroup(), breakerGroup(), disableGroup(), authGroup()}
}

// certificateFields are those of a client certificate, which is replaced as a whole.
func certificateFields() []string {
	return []string{"client_certificate.certificate", "client_certificate.key", "client_certificate.max_tls", "client_certificate.remove"}
}

// endpointValues are an endpoint's fields as the form shows them.
func endpointValues(e client.Endpoint) map[string]string {
	values := map[string]string{
		"url": e.URL, "description": e.Description, "event_types": strings.Join(e.EventTypes, "\n"), "timeout": e.Timeout,
		"max_in_flight": strconv.Itoa(e.MaxInFlight), "rate_limit_per_second": strconv.FormatFloat(e.RateLimit, 'f', -1, 64),
		"headers": headerLines(e.Headers), "signature": e.Signature, "payload_format": e.PayloadFormat, "ordering": e.Ordering.By,
		"auto_replay":      yesNo(e.AutoReplay),
		"success_statuses": statusList(e.SuccessStatuses),
	}
	var own *client.RetryPolicy
	if e.PolicySource == "endpoint" {
		own = &e.RetryPolicy
	}
	policyValues(values, own)
	breakerValues(values, e.CircuitBreaker)
	disableValues(values, e.AutoDisable)
	authValues(values, e.Auth)
	if e.Certificate != nil {
		values["client_certificate.max_tls"] = value(e.Certificate.MaxTLS)
	}
	return values
}

func endpointForm(values map[string]string) form {
	f, names := form{Values: url.Values{}}, slices.Concat(endpointFields(), certificateFields())
	for _, g := range endpointGroups() {
		names = append(names, g.paths()...)
	}
	for _, name := range names {
		f.Values.Set(name, values[name])
		f.known = append(f.known, name)
	}
	return f
}

// endpointBody is the body for the API: the fields of the form that differ from before. An emptied field
// gets its default.
func endpointBody(typed url.Values, before map[string]string) map[string]any {
	body := map[string]any{}
	for _, name := range endpointFields() {
		text := strings.TrimSpace(strings.ReplaceAll(typed.Get(name), "\r\n", "\n"))
		switch {
		case text == strings.TrimSpace(before[name]):
		case text == "" && name == "description":
			body[name] = ""
		case text == "":
			body[name] = nil
		default:
			body[name] = endpointValue(name, text)
		}
	}
	for _, g := range endpointGroups() {
		g.addTo(body, typed, before)
	}
	certificateBody(body, typed, before)
	return body
}

// certificateBody adds the client certificate, if it was changed.
func certificateBody(body map[string]any, typed url.Values, before map[string]string) {
	const name = "client_certificate."
	certificate, key := strings.TrimSpace(typed.Get(name+"certificate")), strings.TrimSpace(typed.Get(name+"key"))
	if typed.Get(name+"remove") == "yes" {
		body["client_certificate"] = nil
		return
	}
	object := map[string]any{}
	if certificate != "" || key != "" {
		object["certificate"], object["key"] = certificate, key
	}
	// A new certificate replaces the whole, its highest version of TLS, too.
	if version := typed.Get(name + "max_tls"); typed.Has(name+"max_tls") && (len(object) > 0 || version != before[name+"max_tls"]) {
		object["max_tls"] = nil
		if version != "" {
			object["max_tls"] = version
		}
	}
	if len(object) > 0 {
		body["client_certificate"] = object
	}
}

// endpointValue is the value of a field for the API. What cannot be read is passed on as text, and the
// API says what is wrong with it.
func endpointValue(name, text string) any {
	switch name {
	case "event_types":
		return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' || r == ' ' })
	case "max_in_flight", "rate_limit_per_second":
		return number(text)
	case "auto_replay":
		return text == "yes"
	case "success_statuses":
		statuses := []any{}
		for _, status := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' || r == ' ' }) {
			statuses = append(statuses, number(status))
		}
		return statuses
	case "ordering":
		return client.Ordering{By: text}
	case "headers":
		return headersOf(text)
	}
	return text
}

// headerLines are headers as a form shows them.
func headerLines(headers map[string]string) string {
	lines := make([]string, 0, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// headersOf reads lines of the form "Name: value".
func headersOf(text string) map[string]string {
	headers := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers
}

// endpointFormView is the form of a new endpoint or of one that is changed.
type endpointFormView struct {
	Form form
	ID   string // "" for a new one
	Seen string // when the endpoint that the form shows was changed last
	Back string

	Choices     typeChoices // of the catalogue
	Certificate *client.Certificate
}

func showEndpointForm(p *page, f form, e client.Endpoint) error {
	v, title := endpointFormView{Form: f, ID: e.ID, Back: p.to("endpoints"), Certificate: e.Certificate}, "Create an endpoint"
	v.Seen = f.shows(p.typed, "seen", seenAt(e.UpdatedAt))
	if e.ID != "" {
		v.Back, title = p.to("endpoints", e.ID), "Edit the endpoint"
	}
	known, err := readEventTypes(p)
	if unlessBusy(err) != nil {
		return err
	}
	if len(known) > 0 {
		chosen := e.EventTypes
		if p.typed != nil {
			chosen = p.typed["type"]
		} else {
			f.Values.Del("event_types")
		}
		var typed []string
		v.Choices, typed = chooseTypes(known, chosen, p.typed.Get("find"))
		v.Form = f.withTypes(typed)
	} else {
		v.Form = f.withTypes(p.typed["type"]) // what was chosen while there was a catalogue
	}
	return p.show(view{Template: "endpoint-form", Title: title, Entry: "Endpoints", Status: f.status(), Data: v})
}

// withChosenTypes is what was typed, with the event types that were checked among those that were typed. They are as before if only their order
// differs.
func withChosenTypes(typed url.Values, before []string) url.Values {
	types := chosenTypes(typed)
	if sameTypes(types, before) || len(types) == 0 && sameTypes([]string{"*"}, before) {
		types = before
	}
	merged := maps.Clone(typed)
	merged.Set("event_types", strings.Join(types, "\n"))
	return merged
}

// refusedEndpoint is the form again, without the secrets that were typed.
func refusedEndpoint(p *page, f form, err error) (form, error) {
	f, err = f.refused(p.typed, err)
	return withoutSecrets(f), err
}

// shownAgain is the form with what was typed, to look for event types.
func shownAgain(p *page, values map[string]string) form {
	return withoutSecrets(endpointForm(values).kept(p.typed))
}

func withoutSecrets(f form) form {
	for _, secret := range []string{"auth.password", "auth.token", "auth.client_secret", "client_certificate.key"} {
		f.Values.Del(secret)
	}
	return f
}

// newValues are those of a form for a new endpoint: nothing but what its choices show.
func newValues() map[string]string {
	values := map[string]string{"signature": "v1", "payload_format": "raw", "ordering": "none", "auto_replay": "no"}
	policyValues(values, nil)
	authValues(values, nil)
	values["circuit_breaker.enabled"], values["auto_disable.enabled"] = "yes", "yes"
	return values
}

func newEndpoint(p *page) error {
	return showEndpointForm(p, endpointForm(newValues()), client.Endpoint{})
}

// createdView shows the secret of a new endpoint, or a new secret, once.
type createdView struct {
	ID, Secret, PublicKey string
	OldUntil              client.Time
	Created               bool
}

func createEndpoint(p *page) error {
	if p.typed.Has("show") {
		return showEndpointForm(p, shownAgain(p, newValues()), client.Endpoint{})
	}
	var made client.Endpoint
	if err := p.create(&made, endpointBody(withChosenTypes(p.typed, nil), newValues()), "endpoints"); err != nil {
		f, err := refusedEndpoint(p, endpointForm(newValues()), err)
		if err != nil {
			return err
		}
		return showEndpointForm(p, f, client.Endpoint{})
	}
	return p.show(view{
		Template: "secret", Title: "The endpoint is created", Entry: "Endpoints", Status: http.StatusCreated,
		Data: createdView{ID: made.ID, Secret: made.Secret, PublicKey: value(made.PublicKey), Created: true},
	})
}

func editEndpoint(p *page) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return showEndpointForm(p, endpointForm(endpointValues(e)), e)
}

// updateEndpoint sends what differs from the endpoint as it is now, unless that is not what the form showed.
func updateEndpoint(p *page) error {
	id := p.r.PathValue("id")
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return err
	}
	before := endpointValues(e)
	if p.typed.Has("show") {
		return showEndpointForm(p, shownAgain(p, before), e)
	}
	err := changedMeanwhile("endpoint", p.typed.Get("seen"), e.UpdatedAt)
	if err == nil {
		body := endpointBody(withChosenTypes(p.typed, e.EventTypes), before)
		if len(body) == 0 {
			return p.done(p.to("endpoints", id), "Nothing was changed.")
		}
		err = p.send(nil, http.MethodPatch, body, "endpoints", id)
	}
	if err != nil {
		f, err := refusedEndpoint(p, endpointForm(before), err)
		if err != nil {
			return err
		}
		return showEndpointForm(p, f, e)
	}
	return p.done(p.to("endpoints", id), "The endpoint is changed.")
}

// rotateView is the form of a new secret.
type rotateView struct {
	Form form
	Name string
	Back string
}

func showRotate(p *page, f form) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.show(view{
		Template: "rotate", Title: "Rotate the secret", Entry: "Endpoints", Status: f.status(), Data: rotateView{f, nameOf(e), p.to("endpoints", e.ID)},
	})
}

func rotateForm() form { return newForm("grace", "24h") }

func askRotate(p *page) error { return showRotate(p, rotateForm()) }

func rotateSecret(p *page) error {
	id := p.r.PathValue("id")
	var made client.Rotated
	if err := p.create(&made, map[string]any{"grace": p.typed.Get("grace")}, "endpoints", id, "rotate-secret"); err != nil {
		f, err := rotateForm().refused(p.typed, err)
		if err != nil {
			return err
		}
		return showRotate(p, f)
	}
	return p.show(view{
		Template: "secret", Title: "The new secret", Entry: "Endpoints",
		Data: createdView{ID: id, Secret: made.Secret, PublicKey: value(made.PublicKey), OldUntil: made.OldUntil},
	})
}
