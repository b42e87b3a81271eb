package console

import (
	"encoding/json"
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
		"url", "description", "event_types", "timeout", "max_in_flight", "rate_limit_per_second", "retry_policy",
		"headers", "signature", "payload_format", "success_statuses", "auto_replay", "circuit_breaker", "auto_disable",
	}
}

// endpointValues are an endpoint's fields as the form shows them.
func endpointValues(e client.Endpoint) map[string]string {
	policy := ""
	if e.PolicySource == "endpoint" {
		policy, _ = pretty(jsonOf(e.RetryPolicy))
	}
	headers := make([]string, 0, len(e.Headers))
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		headers = append(headers, name+": "+e.Headers[name])
	}
	return map[string]string{
		"url": e.URL, "description": e.Description, "event_types": strings.Join(e.EventTypes, "\n"), "timeout": e.Timeout,
		"max_in_flight": strconv.Itoa(e.MaxInFlight), "rate_limit_per_second": strconv.FormatFloat(e.RateLimit, 'f', -1, 64), "retry_policy": policy,
		"headers": strings.Join(headers, "\n"), "signature": e.Signature, "payload_format": e.PayloadFormat, "auto_replay": yesNo(e.AutoReplay),
		"success_statuses": statusList(e.SuccessStatuses),
		"circuit_breaker":  jsonOf(e.CircuitBreaker), "auto_disable": jsonOf(e.AutoDisable),
	}
}

func endpointForm(values map[string]string) form {
	f := form{Values: url.Values{}}
	for _, name := range endpointFields() {
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
	return body
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
	case "headers":
		return headersOf(text)
	case "retry_policy", "circuit_breaker", "auto_disable":
		if json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
	}
	return text
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
}

func showEndpointForm(p *page, f form, e client.Endpoint) error {
	v, title := endpointFormView{f, e.ID, seenAt(e.UpdatedAt), p.to("endpoints")}, "Create an endpoint"
	if e.ID != "" {
		v.Back, title = p.to("endpoints", e.ID), "Edit the endpoint"
	}
	return p.show(view{Template: "endpoint-form", Title: title, Entry: "Endpoints", Status: f.status(), Data: v})
}

// newValues are those of a form for a new endpoint: nothing but what its choices show.
func newValues() map[string]string {
	return map[string]string{"signature": "v1", "payload_format": "raw", "auto_replay": "no"}
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
	var made client.Endpoint
	if err := p.create(&made, endpointBody(p.typed, newValues()), "endpoints"); err != nil {
		f, err := endpointForm(newValues()).refused(p.typed, err)
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
	err := changedMeanwhile("endpoint", p.typed.Get("seen"), e.UpdatedAt)
	if err == nil {
		body := endpointBody(p.typed, before)
		if len(body) == 0 {
			return p.done(p.to("endpoints", id), "Nothing was changed.")
		}
		err = p.send(nil, http.MethodPatch, body, "endpoints", id)
	}
	if err != nil {
		f, err := endpointForm(before).refused(p.typed, err)
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
