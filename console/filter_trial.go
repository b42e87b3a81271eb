package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// Bounds of a trial: a page makes at most one request to the API for each of its events, and one for what was typed.
const (
	triedEvents  = "20"
	trialWorkers = 4
)

// filterTrial is a filter as it decides about the newest events, and about one that was typed.
type filterTrial struct {
	Rows     []triedEvent
	Hits     int
	Busy     bool                 // the newest events cannot be read now
	Own      *client.FilterResult // of the event that was typed; nil without one
	Warnings []client.FieldError
}

// triedEvent is an event that a filter was tried with.
type triedEvent struct {
	ID, Type   string
	ExternalID *string
	CreatedAt  client.Time
	Verdict    verdict
	Failure    *client.FilterFailure // of a miss
}

// verdict is what comes of an event.
type verdict string

const (
	verdictHit     verdict = "hit"
	verdictMiss    verdict = "miss"
	verdictType    verdict = "type"    // the endpoint does not want its type, whatever the filter
	verdictRemoved verdict = "removed" // its payload is not kept any more
	verdictBusy    verdict = "busy"    // it could not be tried now
)

// filterFields are what the form of a filter has: the filter, and an event to try it with.
func filterFields(stored json.RawMessage) form {
	text := ""
	if len(stored) > 0 && string(stored) != "null" {
		text, _ = pretty(string(stored))
	}
	return newForm("filter", text, "type", "", "payload", "", "event", "")
}

// typedFilter is the filter that was typed, for the API; null for none.
func typedFilter(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return json.RawMessage("null"), nil
	case !json.Valid([]byte(text)):
		return nil, wrong("filter", notJSON)
	}
	return json.RawMessage(text), nil
}

// plainJSON is a value as JSON in which texts are as they are: json.Marshal would write < as \u003c, and make a filter larger.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode a form: %w", err)
	}
	return b.Bytes(), nil
}

// tryFilter tries the filter of a form with the tenant's newest events, and with the event that was typed. A *problem names the fields of the form.
func tryFilter(p *page, f form, types []string) (*filterTrial, error) {
	filter, err := typedFilter(f.Value("filter"))
	if err != nil {
		return nil, err
	}
	t := &filterTrial{}
	if err := t.tryOwn(p, filter, f, types); err != nil {
		return nil, err
	}
	if err := t.readEvents(p, f.Value("event")); err != nil {
		return nil, err
	}
	if err := t.tryEach(p, filter, &webhook.Endpoint{EventTypes: types}); err != nil {
		return nil, err
	}
	for _, e := range t.Rows {
		if e.Verdict == verdictHit {
			t.Hits++
		}
	}
	return t, nil
}

// triedForm tries the filter of a form, of which tried has the fields. If what was typed cannot be tried, the form is marked by refused, and there is
// no trial.
func triedForm(p *page, f, tried form, types []string, refused func(form, error) (form, error)) (form, *filterTrial, error) {
	t, err := tryFilter(p, tried, types)
	if err != nil {
		f, err = refused(f, err)
		return f, nil, err
	}
	return f, t, nil
}

// tryOwn tries the filter with what was typed. Without that it only finds out what is wrong with the filter.
func (t *filterTrial) tryOwn(p *page, filter json.RawMessage, f form, types []string) error {
	payload, kind := strings.TrimSpace(f.Value("payload")), strings.TrimSpace(f.Value("type"))
	given := payload != ""
	if !given {
		payload = "{}"
	}
	if !json.Valid([]byte(payload)) {
		return wrong("payload", notJSON)
	}
	if kind == "" {
		kind = "example.event"
	}
	var found client.FilterResult
	err := sendTrial(p, &found, client.FilterTest{
		Filter: filter, Event: &client.FilterTestEvent{Type: kind, Payload: json.RawMessage(payload)}, EventTypes: types,
	})
	if known, ok := errors.AsType[*problem](err); ok {
		for i := range known.Errors { // those of the form have other names
			known.Errors[i].Field = strings.TrimPrefix(known.Errors[i].Field, "event.")
		}
	}
	if err == nil && given {
		t.Own = &found
	}
	t.Warnings = found.Warnings
	return err
}

func sendTrial(p *page, into *client.FilterResult, of client.FilterTest) error {
	body, err := plainJSON(of)
	if err != nil {
		return err
	}
	return p.send(into, http.MethodPost, body, "filters", "test")
}

// readEvents reads the newest events; before them the one that the page was asked about.
func (t *filterTrial) readEvents(p *page, asked string) error {
	if asked != "" {
		var e client.AcceptedEvent
		switch err := p.get(&e, nil, "events", asked); {
		case err == nil:
			t.Rows = append(t.Rows, triedEvent{ID: e.ID, Type: e.Type, ExternalID: e.ExternalID, CreatedAt: e.CreatedAt})
		case !isStatus(err, http.StatusNotFound):
			return err
		}
	}
	var newest client.Page[client.ListedEvent]
	if err := p.get(&newest, url.Values{"limit": {triedEvents}}, "events"); err != nil {
		t.Busy = true
		return unlessBusy(err)
	}
	for _, e := range newest.Data {
		if e.ID != asked && (p.portal == nil || e.Type != webhook.NotificationType) { // those are of the operators' chats
			t.Rows = append(t.Rows, triedEvent{ID: e.ID, Type: e.Type, ExternalID: e.ExternalID, CreatedAt: e.CreatedAt})
		}
	}
	return nil
}

// tryEach tries the filter with each event whose type the endpoint wants.
func (t *filterTrial) tryEach(p *page, filter json.RawMessage, of *webhook.Endpoint) error {
	failed := make([]error, len(t.Rows))
	var workers sync.WaitGroup
	for first := range trialWorkers {
		workers.Go(func() {
			for i := first; i < len(t.Rows); i += trialWorkers {
				failed[i] = t.Rows[i].try(p, filter, of)
			}
		})
	}
	workers.Wait()
	return errors.Join(failed...)
}

func (e *triedEvent) try(p *page, filter json.RawMessage, of *webhook.Endpoint) error {
	switch {
	case !of.Wants(e.Type):
		e.Verdict = verdictType
		return nil
	case string(filter) == "null":
		e.Verdict = verdictHit
		return nil
	}
	var found client.FilterResult
	// A pattern is compared with no schema: the first call has asked for warnings.
	err := sendTrial(p, &found, client.FilterTest{Filter: filter, EventID: e.ID, EventTypes: []string{"*"}})
	switch {
	case isStatus(err, http.StatusGone), isStatus(err, http.StatusBadRequest): // the filter is right: there is no such event any more
		e.Verdict = verdictRemoved
		return nil
	case err != nil:
		e.Verdict = verdictBusy
		return unlessBusy(err)
	case found.Matched:
		e.Verdict = verdictHit
	default:
		e.Verdict, e.Failure = verdictMiss, found.Failure
	}
	return nil
}
