package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalTest is the form and the result of an example.
type portalTest struct {
	Form    form
	ID      string
	Name    string
	Types   []string
	Known   bool // there is a catalogue, which may have an example
	Busy    bool // the example that was asked for cannot be read now
	Numbers bool // the endpoint numbers its messages: an example has no number
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

// maxTypeOptions bounds the event types that the field of an example suggests.
const maxTypeOptions = 200

func showPortalTest(p *portalPage, f form, made *portalAttempt) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	types, err := seenTypes(p)
	if err != nil {
		return err
	}
	known, err := readEventTypes(p.page)
	if unlessBusy(err) != nil {
		return err
	}
	for _, t := range known {
		if t.State != archivedType && !slices.Contains(types, t.Name) {
			types = append(types, t.Name)
		}
	}
	if f.Value("type") == "" && p.typed == nil {
		f.Values.Set("type", exampleType(e.EventTypes, types))
	}
	asked, busy := p.typed.Has("load"), false
	if p.typed == nil || asked {
		err := setExample(p, f)
		if busy = asked && err != nil; unlessBusy(err) != nil {
			return err
		}
	}
	return p.show(portalView{Template: "test", Title: p.say("test.title"), Entry: "endpoints", Status: f.status(), Data: portalTest{
		Form: f, ID: e.ID, Name: shortName(e.Description, e.URL), Types: types[:min(len(types), maxTypeOptions)], Known: len(known) > 0, Attempt: made,
		Busy: busy, Numbers: numbersOf(e) != "",
	}})
}

// setExample sets the payload to the newest example that the catalogue has of the type, if there is one.
func setExample(p *portalPage, f form) error {
	name := strings.TrimSpace(f.Value("type"))
	if !webhook.ValidType(name) {
		return nil
	}
	t, err := readPortalType(p, name)
	if err != nil {
		if isStatus(err, http.StatusNotFound) {
			return nil
		}
		return err
	}
	if newest := chosenVersion(t, ""); newest != nil && len(newest.Examples) > 0 {
		text, _ := pretty(string(newest.Examples[0]))
		f.Values.Set("payload", text)
	}
	return nil
}

// exampleType is an event type that the endpoint gets, or that was seen, or that is in the catalogue.
func exampleType(chosen, seen []string) string {
	for _, name := range append(append([]string{}, chosen...), seen...) {
		if !strings.Contains(name, "*") {
			return name
		}
	}
	return "example.event"
}

func portalTestForm() form { return newForm("type", "", "payload", examplePayload) }

func askPortalTest(p *portalPage) error {
	f := portalTestForm()
	f.Values.Set("type", p.r.URL.Query().Get("type"))
	return showPortalTest(p, f, nil)
}

// sendPortalTest sends one signed request, which is not stored, and shows its answer.
func sendPortalTest(p *portalPage) error {
	f := portalTestForm()
	if p.typed.Has("load") {
		return showPortalTest(p, f.kept(p.typed), nil)
	}
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
