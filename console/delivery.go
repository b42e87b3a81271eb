package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// deliveriesView is the list of deliveries.
type deliveriesView struct {
	Filter filter
	List   client.Page[client.Delivery]
	Next   string
	States []stateChoice

	RetryPath, CancelPath string // that ask about all that match

	Endpoints endpointNames
}

// stateChoice is a state in the filter of the list.
type stateChoice struct {
	Value string
	On    bool
}

// AnyState reports whether the list is narrowed to some states.
func (v deliveriesView) AnyState() bool { return len(v.Filter.Form.Values["state"]) > 0 }

const deliveriesTitle = "Deliveries"

func listDeliveries(p *page) error {
	typed := p.r.URL.Query()
	v := deliveriesView{Filter: p.readFilter(typed, deliveryFields()...)}
	for _, s := range webhook.States() {
		v.States = append(v.States, stateChoice{s.String(), slices.Contains(typed["state"], s.String())})
	}
	if err := p.get(&v.List, v.Filter.page(pageLimit, typed.Get("cursor")), "deliveries"); err != nil {
		if v.Filter, err = v.Filter.refused(err); err != nil {
			return err
		}
	}
	v.Next = v.List.NextCursor
	v.RetryPath, v.CancelPath = p.to("deliveries", "all", commandRetry)+"?"+v.Filter.Encode(), p.to("deliveries", "all", commandCancel)+"?"+v.Filter.Encode()
	var err error
	if v.Endpoints, err = readNamesOf(p, v.List.Data, func(d client.Delivery) string { return d.EndpointID }); err != nil {
		return err
	}
	f := v.Filter.Form
	return p.show(view{Template: "deliveries", Title: deliveriesTitle, Entry: deliveriesTitle, Status: f.status(), Live: !f.Failed(), Data: v})
}

// shownAttempts is how many of a delivery's attempts are shown and drawn: with the largest answers of hostile receivers
// they stay below maxResponse.
const shownAttempts = 25

// deliveryView is the page of a delivery.
type deliveryView struct {
	shownPayload

	Delivery client.Delivery
	Timeline template.HTML
	Attempts []client.Attempt // newest first
	More     bool             // there are older ones
	Chosen   int              // the attempt that is shown in full
	Endpoint *client.Endpoint // nil: it is deleted, or cannot be decrypted
	Curl     string

	Enveloped bool // the payload is shown in its envelope
}

// Brief is why the delivery has not arrived, in a few words; "" if nothing is wrong.
func (v *deliveryView) Brief() string {
	if v.Delivery.Explanation == nil {
		return ""
	}
	return value(v.Delivery.Explanation.Brief)
}

func showDelivery(p *page) error {
	id := p.r.PathValue("id")
	v := deliveryView{}
	if err := p.get(&v.Delivery, nil, "deliveries", id); err != nil {
		return err
	}
	var made client.Page[client.Attempt]
	if err := p.get(&made, url.Values{"limit": {strconv.Itoa(shownAttempts)}}, "deliveries", id, "attempts"); err != nil {
		return err
	}
	v.Attempts, v.More = made.Data, made.NextCursor != ""
	if len(v.Attempts) > 0 {
		v.Chosen = v.Attempts[0].Number
	}
	if n, err := strconv.Atoi(p.r.URL.Query().Get("attempt")); err == nil {
		v.Chosen = n
	}
	var e client.Endpoint
	switch err := p.get(&e, nil, "endpoints", v.Delivery.EndpointID); {
	case err == nil:
		v.Endpoint = &e
	case !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusInternalServerError):
		return err // 500: its headers cannot be decrypted, which is why the delivery waits
	}
	v.Timeline = drawDelivery(v.Delivery, v.Attempts, v.Endpoint, p.console.config.Now())
	if p.live == nil {
		if err := v.addBody(p); err != nil {
			return err
		}
	}
	return p.show(view{Template: "delivery", Title: "Delivery of " + clip(visible(v.Delivery.EventType), 60), Entry: "Deliveries", Live: true, Data: &v})
}

// drawDelivery draws a delivery's attempts and waits to scale. The endpoint is nil if it is not known.
func drawDelivery(d client.Delivery, newest []client.Attempt, e *client.Endpoint, now time.Time) template.HTML {
	t := chart.Timeline{
		Now: now, Accepted: d.CreatedAt.Time, Next: d.NextAttemptAt.Time, GiveUp: d.GiveUpAt.Time, Ended: d.CompletedAt.Time, End: words(string(d.State)),
	}
	last := d.CreatedAt.Time
	for _, a := range slices.Backward(newest) {
		var decision retry.Decision
		_ = decision.UnmarshalText([]byte(a.Decision)) // an error: a decision of another release is drawn as none
		drawn := chart.Attempt{
			Number: a.Number, At: a.StartedAt.Time, Took: time.Duration(a.LatencyMS) * time.Millisecond, Decision: decision,
			Result: resultOf(a), Why: words(value(a.DelaySource)),
		}
		if a.DelayMS != nil {
			drawn.Delay = time.Duration(*a.DelayMS) * time.Millisecond
		}
		t.Attempts = append(t.Attempts, drawn)
		last = endOf(a)
	}
	if !d.State.Ended() && d.Reason != nil {
		t.Held = chart.Held{Since: last, Why: explain.Wait(*d.Reason)}
		if e != nil && e.State == client.EndpointActive && stoppedFor(*d.Reason) {
			t.Held.Why = explain.Waited(*d.Reason)
		}
	}
	return chart.DrawTimeline(t)
}

// stoppedFor reports whether a delivery is held because its endpoint was not active. It keeps the reason until it is released, which may come long after
// the endpoint is active again.
func stoppedFor(reason string) bool {
	return reason == webhook.ReasonPaused || reason == webhook.ReasonDisabled
}

// endOf is when an attempt was answered, or ended without an answer. It is the time of an attempt wherever one is shown, as in the sentences.
func endOf(a client.Attempt) time.Time {
	return a.StartedAt.Add(time.Duration(a.LatencyMS) * time.Millisecond)
}

// resultOf is what came back, in a word.
func resultOf(a client.Attempt) string {
	if a.Status != nil {
		return strconv.Itoa(*a.Status)
	}
	return explain.Label(a.Reason)
}

// maxCurlPayload is the size of a payload that stands in the command line itself.
const maxCurlPayload = 2 << 10

// addBody adds the body of the requests, as it is signed, and the last request as a command.
func (v *deliveryView) addBody(p *page) error {
	var e client.AcceptedEvent
	switch err := p.get(&e, nil, "events", v.Delivery.EventID); {
	case isStatus(err, http.StatusNotFound): // past its retention
		v.Gone = true
		return nil
	case err != nil:
		return err
	}
	format := webhook.PayloadRaw
	if v.Endpoint != nil {
		format, _ = webhook.ParsePayloadFormat(v.Endpoint.PayloadFormat)
	}
	v.Enveloped = format == webhook.PayloadEnvelope
	shown, body, err := readPayload(p, e.ID, func(payload []byte) []byte {
		return format.Body(e.Type, e.CreatedAt.Time, placeOf(e, v.Delivery.EndpointID), payload)
	})
	if err != nil {
		return err
	}
	v.shownPayload = shown
	if v.Endpoint == nil || len(v.Attempts) == 0 {
		return nil
	}
	if len(body) > maxCurlPayload {
		body = nil
	}
	v.Curl = curlOf(*v.Endpoint, v.Attempts[0], string(body))
	return nil
}

// placeOf is the place of the delivery to an endpoint in its line; zero if it is not numbered.
func placeOf(e client.AcceptedEvent, endpoint string) webhook.Sequence {
	for _, d := range e.Deliveries {
		if d.EndpointID == endpoint {
			return webhook.Sequence{Key: e.OrderingKey, Line: d.Line, Number: d.Sequence}
		}
	}
	return webhook.Sequence{}
}

// curlOf repeats a request with curl. What was redacted stays so; the signature is the old one.
func curlOf(e client.Endpoint, a client.Attempt, payload string) string {
	var b strings.Builder
	b.WriteString("curl -i -X POST " + quoted(e.URL))
	names := make([]string, 0, len(a.RequestHeaders))
	for name := range a.RequestHeaders {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(strings.ToLower(x), strings.ToLower(y)) })
	for _, name := range names {
		b.WriteString(" \\\n  -H " + quoted(name+": "+a.RequestHeaders[name]))
	}
	if payload != "" && visible(payload) == payload {
		b.WriteString(" \\\n  --data-binary " + quoted(payload))
	} else {
		b.WriteString(" \\\n  --data-binary @payload.json")
	}
	return b.String()
}

// quoted is one word of a shell's command line.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Commands to deliveries. Dead letters take the last two.
const (
	commandCancel  = "cancel"
	commandRetry   = "retry"
	commandReplay  = "replay"
	commandDiscard = "discard"
)

// command is what a person can ask of a delivery.
type command struct {
	title, button, done, detail string
	danger                      bool
}

func commandOf(name string) command {
	switch name {
	case commandCancel:
		return command{
			title: "Cancel the delivery", button: "Cancel it", done: "The delivery is cancelled.", danger: true,
			detail: "It is not tried again. A request in flight is not aborted.",
		}
	case commandDiscard:
		return command{
			title: "Discard the dead letter", button: "Discard it", done: "The dead letter is discarded.", danger: true,
			detail: "It leaves the list of dead letters. It can still be replayed until its retention ends.",
		}
	}
	return command{
		title: "Send the delivery again", button: "Send it again", done: "The delivery is sent again.",
		detail: "The receiver gets it with the same webhook-id, with a new budget of attempts.",
	}
}

// askCommand returns the page that asks before a command.
func askCommand(name string) func(*page) error {
	return func(p *page) error {
		var d client.Delivery
		if err := p.get(&d, nil, "deliveries", p.r.PathValue("id")); err != nil {
			return err
		}
		return p.ask(commandOf(name).title, "Deliveries", commandQuestion(p, name, d))
	}
}

func commandQuestion(p *page, name string, d client.Delivery) question {
	c := commandOf(name)
	return question{
		Question: "1 delivery of " + visible(d.EventType) + ": " + visible(d.Summary), Detail: c.detail, Button: c.button,
		Back: p.to("deliveries", d.ID), Danger: c.danger, Reason: true,
	}
}

// sendCommand returns what sends a command to a delivery and goes back to it. A refusal is shown with the question.
func sendCommand(name string) func(*page) error {
	return func(p *page) error {
		id, resource := p.r.PathValue("id"), "deliveries"
		if name == commandDiscard {
			resource = "dead-letters"
		}
		err := p.send(nil, http.MethodPost, reasonBody(p.typed), resource, id, name)
		if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusBadRequest) {
			var d client.Delivery
			if err := p.get(&d, nil, "deliveries", id); err != nil {
				return err
			}
			q := commandQuestion(p, name, d)
			q.Problem, q.Why = sentence(problemOf(err).Detail), p.typed.Get("why")
			return p.ask(commandOf(name).title, "Deliveries", q)
		}
		if err != nil {
			return err
		}
		return p.done(p.to("deliveries", id), commandOf(name).done)
	}
}

// reasonBody is the body with the reason that a form gives. Its field is not called reason, as a filter is.
func reasonBody(typed url.Values) map[string]any {
	body := map[string]any{}
	if reason := strings.TrimSpace(typed.Get("why")); reason != "" {
		body["reason"] = reason
	}
	return body
}

func retryDelivery(p *page) error {
	id := p.r.PathValue("id")
	err := p.send(nil, http.MethodPost, nil, "deliveries", id, "retry")
	if isStatus(err, http.StatusConflict) {
		return p.done(p.to("deliveries", id), sentence(problemOf(err).Detail))
	}
	if err != nil {
		return err
	}
	return p.done(p.to("deliveries", id), "The next attempt is made as soon as the endpoint can take it.")
}

// rescheduleView is the form of a reschedule.
type rescheduleView struct {
	Form     form
	Delivery client.Delivery
}

func showReschedule(p *page, f form) error {
	v := rescheduleView{Form: f}
	if err := p.get(&v.Delivery, nil, "deliveries", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.show(view{Template: "reschedule", Title: "Reschedule the next attempt", Entry: "Deliveries", Status: f.status(), Data: v})
}

func askReschedule(p *page) error {
	at := p.console.config.Now().UTC().Add(time.Hour).Truncate(time.Minute).Format(time.RFC3339)
	return showReschedule(p, newForm("at", at))
}

func reschedule(p *page) error {
	id := p.r.PathValue("id")
	body := map[string]string{"at": strings.TrimSpace(p.typed.Get("at"))}
	if err := p.send(nil, http.MethodPost, body, "deliveries", id, "reschedule"); err != nil {
		f, err := newForm("at", "").refused(p.typed, err)
		if err != nil {
			return err
		}
		return showReschedule(p, f)
	}
	return p.done(p.to("deliveries", id), "The next attempt is rescheduled.")
}
