package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
)

// portalTest is the form and the result of an example.
type portalTest struct {
	Form    form
	ID      string
	Name    string
	Types   []string
	Attempt *portalAttempt
}

// portalAttempt is an attempt in words.
type portalAttempt struct {
	client.Attempt

	Words string
	Good  bool
}

func (t *texts) attemptOf(a client.Attempt) portalAttempt {
	return portalAttempt{a, t.attemptWords(a), a.Decision == client.DecisionDelivered}
}

const examplePayload = "{\n  \"example\": true\n}"

func showPortalTest(p *portalPage, f form, made *portalAttempt) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	types, err := seenTypes(p)
	if err != nil {
		return err
	}
	if f.Value("type") == "" && !f.Failed() {
		f.Values.Set("type", exampleType(e.EventTypes, types))
	}
	return p.show(portalView{Template: "test", Title: p.say("test.title"), Entry: "endpoints", Status: f.status(), Data: portalTest{
		Form: f, ID: e.ID, Name: shortName(e.Description, e.URL), Types: types, Attempt: made,
	}})
}

// exampleType is an event type that the endpoint gets, or that was seen.
func exampleType(chosen, seen []string) string {
	for _, name := range append(append([]string{}, chosen...), seen...) {
		if !strings.Contains(name, "*") {
			return name
		}
	}
	return "example.event"
}

func portalTestForm() form { return newForm("type", "", "payload", examplePayload) }

func askPortalTest(p *portalPage) error { return showPortalTest(p, portalTestForm(), nil) }

// sendPortalTest sends one signed request, which is not stored, and shows its answer.
func sendPortalTest(p *portalPage) error {
	f := portalTestForm()
	payload := []byte(p.typed.Get("payload"))
	var made client.Attempt
	err := error(wrong("payload", notJSON))
	if json.Valid(payload) {
		body, failed := withPayload(map[string]any{"type": strings.TrimSpace(p.typed.Get("type"))}, payload)
		if failed != nil {
			return failed
		}
		err = p.send(&made, http.MethodPost, body, "endpoints", p.r.PathValue("id"), "test")
	}
	if err != nil {
		if f, err = p.refused(f, err); err != nil {
			return err
		}
		return showPortalTest(p, f, nil)
	}
	f.Values.Set("type", p.typed.Get("type"))
	f.Values.Set("payload", p.typed.Get("payload"))
	shown := p.texts().attemptOf(made)
	return showPortalTest(p, f, &shown)
}
