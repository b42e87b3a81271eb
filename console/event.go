package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// eventsView is the list of events.
type eventsView struct {
	Filter  filter
	List    client.Page[client.ListedEvent]
	Next    string
	Example string
}

func listEvents(p *page) error {
	typed := p.r.URL.Query()
	v := eventsView{Filter: p.readFilter(typed, "type", "external_id", "tag", "since", "until")}
	if err := p.get(&v.List, v.Filter.page(pageLimit, typed.Get("cursor")), "events"); err != nil {
		if v.Filter, err = v.Filter.refused(err); err != nil {
			return err
		}
	}
	v.Next, v.Example = v.List.NextCursor, firstEvent(p)
	f := v.Filter.Form
	return p.show(view{Template: "events", Title: "Events", Entry: "Events", Status: f.status(), Live: !f.Failed(), Data: v})
}

// firstEvent is a command line that posts an event.
func firstEvent(p *page) string {
	return "curl -X POST " + p.console.base(p.r) + "/v1/tenants/" + p.tenant + "/events \\\n" +
		"  -H \"Authorization: Bearer $EVERPOST_KEY\" \\\n  -H 'Content-Type: application/json' \\\n" +
		"  -d '{\"type\":\"order.paid\",\"payload\":{\"order\":17}}'"
}

// base is the address of this installation for a browser, and so for the API.
func (s *Console) base(r *http.Request) string {
	if s.config.URL != "" {
		return s.config.URL
	}
	if s.secure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// maxShownPayload is how much of a payload its event's page shows.
const maxShownPayload = 32 << 10

// eventView is the page of an event.
type eventView struct {
	shownPayload

	Event     client.AcceptedEvent
	More      int // deliveries that are not shown
	Endpoints endpointNames
	Matches   matchesView
}

// shownPayload is the payload of an event on a page.
type shownPayload struct {
	EventID string
	Payload string
	Cut     bool // there is more
	Gone    bool // the payload was removed, or the event is past its retention
	Busy    bool // it cannot be read now
	Raw     bool // as it was sent, not indented
	JSON    bool // it can be indented
}

// shownDeliveries is how many of an event's deliveries its page shows.
const shownDeliveries = 100

func showEvent(p *page) error {
	id := p.r.PathValue("id")
	v := eventView{}
	if err := p.get(&v.Event, nil, "events", id); err != nil {
		return err
	}
	if n := len(v.Event.Deliveries); n > shownDeliveries {
		v.Event.Deliveries, v.More = v.Event.Deliveries[:shownDeliveries], n-shownDeliveries
	}
	var err error
	if v.Endpoints, err = readNamesOf(p, v.Event.Deliveries, func(d client.DeliveryStub) string { return d.EndpointID }); err != nil {
		return err
	}
	if p.live == nil {
		if v.shownPayload, _, err = readPayload(p, v.Event.ID, nil); err != nil {
			return err
		}
		if v.Matches, err = readMatches(p, v.Event, v.Endpoints); err != nil {
			return err
		}
	}
	return p.show(view{Template: "event", Title: "Event " + clip(visible(v.Event.Type), 60), Entry: "Events", Live: true, Data: v})
}

// readPayload reads the payload of an event, or its beginning, indented unless the page asks for it as it was sent. wrap makes the body of a
// request of it, which is shown then, and returned; nil: the payload itself.
func readPayload(p *page, event string, wrap func([]byte) []byte) (v shownPayload, body []byte, err error) {
	v.EventID, v.Raw = event, p.r.URL.Query().Get("payload") == "raw"
	var payload []byte
	err = p.get(&payload, nil, "events", event, "payload")
	if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusGone) {
		v.Gone = true
		return v, nil, nil
	}
	if err != nil {
		v.Busy = true
		return v, nil, unlessBusy(err)
	}
	if wrap != nil {
		payload = wrap(payload)
	}
	v.Payload = string(payload)
	if len(payload) > webhook.DefaultMaxPayload { // formatting it would take too long
		v.Payload, v.Cut = clip(v.Payload, maxShownPayload), true
		return v, payload, nil
	}
	indented, ok := pretty(v.Payload)
	v.JSON = ok
	if ok && !v.Raw {
		v.Payload = indented
	}
	if v.Cut = len(v.Payload) > maxShownPayload; v.Cut {
		v.Payload = clip(v.Payload, maxShownPayload)
	}
	return v, payload, nil
}

// showPayload shows a payload as it was sent, as text and nothing else.
func showPayload(p *page) error {
	if p.live != nil {
		return errNotFound()
	}
	var payload []byte
	if err := p.get(&payload, nil, "events", p.r.PathValue("id"), "payload"); err != nil {
		return err
	}
	done, err := p.startAnswer(len(payload))
	if err != nil {
		return err
	}
	defer done()
	h := p.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="payload.json"`)
	_, _ = p.w.Write(payload) // an error: the browser has gone
	return nil
}

// newEventView is the form of an event.
type newEventView struct {
	Form    form
	Again   string // the event that is sent again
	Example string
}

func eventForm() form {
	return newForm("type", "order.paid", "payload", "{\n  \"order\": 17\n}", "external_id", "", "endpoint_ids", "", "deliver_at", "", "headers", "", "tags", "",
		"ordering_key", "")
}

func showEventForm(p *page, f form, from string) error {
	return p.show(view{
		Template: "event-form", Title: "Send an event", Entry: "Events", Status: f.status(), Data: newEventView{f, from, firstEvent(p)},
	})
}

// newEvent shows the form of an event, filled in with an earlier one's type, payload, headers, tags and ordering key if it is to be
// sent again.
func newEvent(p *page) error {
	f, from := eventForm(), p.r.URL.Query().Get("from")
	if from == "" {
		f.Values.Set("endpoint_ids", p.r.URL.Query().Get("endpoint_id"))
		return showEventForm(p, f, "")
	}
	var e client.AcceptedEvent
	var payload []byte
	if err := p.get(&e, nil, "events", from); err != nil {
		return err
	}
	if err := p.get(&payload, nil, "events", e.ID, "payload"); err != nil {
		return err
	}
	f.Values.Set("type", e.Type)
	f.Values.Set("headers", headerLines(e.Headers))
	f.Values.Set("tags", strings.Join(e.Tags, " "))
	f.Values.Set("ordering_key", e.OrderingKey)
	if len(payload) > webhook.DefaultMaxPayload {
		f.Values.Set("payload", "")
		f, _ = f.refused(f.Values, wrong("payload", "of the event is too large for this form; download it, and send it with the command line or the API"))
		return showEventForm(p, f, e.ID)
	}
	f.Values.Set("payload", string(payload))
	return showEventForm(p, f, e.ID)
}

func sendEvent(p *page) error {
	typed := p.typed
	payload := strings.TrimSpace(strings.ReplaceAll(typed.Get("payload"), "\r\n", "\n"))
	from := typed.Get("from")
	fields := map[string]any{"type": strings.TrimSpace(typed.Get("type"))}
	for _, name := range []string{"external_id", "deliver_at"} {
		if text := strings.TrimSpace(typed.Get(name)); text != "" {
			fields[name] = text
		}
	}
	if ids := strings.Fields(strings.ReplaceAll(typed.Get("endpoint_ids"), ",", " ")); len(ids) > 0 {
		fields["endpoint_ids"] = ids
	}
	if lines := strings.TrimSpace(strings.ReplaceAll(typed.Get("headers"), "\r\n", "\n")); lines != "" {
		fields["headers"] = endpointValue("headers", lines)
	}
	if tags := strings.Fields(strings.ReplaceAll(typed.Get("tags"), ",", " ")); len(tags) > 0 {
		fields["tags"] = tags
	}
	if key := typed.Get("ordering_key"); key != "" {
		fields["ordering_key"] = key
	}
	if !json.Valid([]byte(payload)) {
		f, _ := eventForm().refused(typed, wrong("payload", notJSON))
		return showEventForm(p, f, from)
	}
	body, err := withPayload(fields, []byte(payload))
	if err != nil {
		return err
	}
	var made client.AcceptedEvent
	if err := p.create(&made, body, "events"); err != nil {
		f, err := eventForm().refused(typed, err)
		if err != nil {
			return err
		}
		return showEventForm(p, f, from)
	}
	return p.done(p.to("events", made.ID), "The event is stored and is being delivered.")
}
