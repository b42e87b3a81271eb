package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalMessageRow is an event in the list of messages, with what became of it.
type portalMessageRow struct {
	client.ListedEvent

	To []portalDelivery // by endpoint; empty if there are more than shownEndpoints
}

type portalMessagesView struct {
	Filter filter
	Types  []string // that were seen
	Rows   []portalMessageRow
	Next   string
}

const (
	shownMessages  = 25
	shownEndpoints = 3 // of a message in the list, by name
)

func portalMessages(p *portalPage) error {
	typed := p.r.URL.Query()
	v := portalMessagesView{Filter: p.readFilter(typed, "type", "external_id")}
	var found client.Page[client.ListedEvent]
	err := p.get(&found, v.Filter.page(strconv.Itoa(shownMessages), typed.Get("cursor")), "events")
	if err != nil {
		p.typed = typed
		if v.Filter.Form, err = p.refused(v.Filter.Form, err); err != nil {
			return err
		}
	}
	v.Next = found.NextCursor
	if v.Rows, err = messageRows(p, found.Data); err != nil {
		return err
	}
	if p.live == nil {
		if v.Types, err = seenTypes(p); err != nil {
			return err
		}
	}
	f := v.Filter.Form
	return p.show(portalView{
		Template: "messages", Title: p.say("nav.messages"), Entry: "messages", Status: f.status(), Live: !f.Failed(), Data: v,
	})
}

// messageRows adds to events what became of them at each endpoint.
func messageRows(p *portalPage, events []client.ListedEvent) ([]portalMessageRow, error) {
	if len(events) == 0 {
		return nil, nil
	}
	// One page of deliveries, from the oldest to the newest of the events: what it does not hold is shown by its counts.
	var found client.Page[client.Delivery]
	if err := p.get(&found, url.Values{
		"limit": {"250"}, "since": {events[len(events)-1].CreatedAt.Format(time.RFC3339Nano)},
		"until": {events[0].CreatedAt.Add(time.Microsecond).Format(time.RFC3339Nano)},
	}, "deliveries"); err != nil && unlessBusy(err) != nil {
		return nil, err
	}
	names, err := readNamesOf(p.page, found.Data, func(d client.Delivery) string { return d.EndpointID })
	if err != nil {
		return nil, err
	}
	of, t := map[string][]portalDelivery{}, p.texts()
	for _, d := range found.Data {
		of[d.EventID] = append(of[d.EventID], portalDelivery{Delivery: d, Chip: t.deliveryChip(d.State), Endpoint: names.Short(d.EndpointID)})
	}
	rows := make([]portalMessageRow, 0, len(events))
	for _, e := range events {
		if e.Type == webhook.NotificationType { // of the operators' chats
			continue
		}
		row := portalMessageRow{ListedEvent: e}
		o := e.Outcomes
		all := o.Delivered + o.Waiting + o.Failed + o.Cancelled
		if to := of[e.ID]; len(to) == all && all <= shownEndpoints && !o.More {
			row.To = to
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// portalMessageView is the page of a message.
type portalMessageView struct {
	shownPayload

	Event      client.AcceptedEvent
	Deliveries []portalFate
	More       int // that are not shown
}

// portalFate is what became of a message at one endpoint.
type portalFate struct {
	portalDelivery

	Attempts []portalAttempt
	Older    bool // there are older attempts
	Again    bool // it can be sent again
	Now      bool // it can be sent at once
}

const (
	shownFates        = 20 // deliveries of a message
	explainedFates    = 10 // of them, those that wait or failed and are explained
	shownFateAttempts = 10 // of each delivery
)

func portalMessage(p *portalPage) error {
	v := portalMessageView{}
	if err := p.get(&v.Event, nil, "events", p.r.PathValue("id")); err != nil {
		return err
	}
	var found client.Page[client.Delivery]
	if err := p.get(&found, url.Values{"event_id": {v.Event.ID}, "limit": {strconv.Itoa(shownFates)}}, "deliveries"); err != nil {
		return err
	}
	v.More = max(0, v.Event.Matched-len(found.Data))
	names, err := readNamesOf(p.page, found.Data, func(d client.Delivery) string { return d.EndpointID })
	if err != nil {
		return err
	}
	explained, attempted := 0, lastAttempt(found.Data)
	for _, d := range found.Data {
		if d.State != "delivered" && explained < explainedFates {
			explained++
			if err := p.get(&d, nil, "deliveries", d.ID); err != nil && !isStatus(err, http.StatusNotFound) {
				return err
			}
		}
		fate, err := fateOf(p, d, names)
		if err != nil {
			return err
		}
		v.Deliveries = append(v.Deliveries, fate)
		if len(fate.Attempts) > 0 && fate.Attempts[0].StartedAt.After(attempted) { // read after its delivery, it may be newer
			attempted = fate.Attempts[0].StartedAt.Time
		}
	}
	if p.live == nil {
		if v.shownPayload, _, err = readPayload(p.page, v.Event.ID, nil); err != nil {
			return err
		}
	}
	return p.show(portalView{
		Template: "message", Title: clip(visible(v.Event.Type), 60), Entry: "messages", Live: true, Data: v, Attempted: attempted,
	})
}

// fateOf reads the attempts of a delivery.
func fateOf(p *portalPage, d client.Delivery, names endpointNames) (portalFate, error) {
	t := p.texts()
	fate := portalFate{portalDelivery: portalDelivery{
		Delivery: d, Chip: t.deliveryChip(d.State), Sentence: t.sentenceOf(d, p.console.config.Now()), Endpoint: names.Short(d.EndpointID),
	}}
	fate.Again, fate.Now = d.State.Ended(), d.State == "retrying"
	var made client.Page[client.Attempt]
	if d.Attempts > 0 {
		if err := p.get(&made, url.Values{"limit": {strconv.Itoa(shownFateAttempts)}}, "deliveries", d.ID, "attempts"); err != nil {
			return fate, err
		}
	}
	for _, a := range made.Data {
		shown := t.attemptOf(a)
		shown.ResponseBody = clip(a.ResponseBody, maxShownAnswer)
		fate.Attempts = append(fate.Attempts, shown)
	}
	fate.Older = made.NextCursor != ""
	return fate, nil
}

// maxShownAnswer is how much of an answer a message's page shows, in bytes: the page has 200 of them at most, and 100 KB.
const maxShownAnswer = 200

// sendPortalDelivery returns what sends a delivery again, or at once, and goes back to its message, or to where it was asked.
func sendPortalDelivery(command string) func(*portalPage) error {
	return func(p *portalPage) error {
		id := p.r.PathValue("id")
		var d client.Delivery
		if err := p.get(&d, nil, "deliveries", id); err != nil {
			return err
		}
		back := portalPath("messages", d.EventID)
		if p.typed.Get("from") == "failed" {
			back = portalPath("failed")
		}
		err := p.send(nil, http.MethodPost, nil, "deliveries", id, command)
		if isStatus(err, http.StatusConflict) {
			return p.done(back, p.say("form.not_now"))
		}
		if err != nil {
			return err
		}
		return p.done(back, p.say("delivery.sent_again"))
	}
}

// portalFailedView is the list of what failed for good.
type portalFailedView struct {
	Rows  []portalDelivery
	Count string // of all
	Some  bool
	Next  string
}

func portalFailed(p *portalPage) error {
	var found client.Page[client.Delivery]
	if err := p.get(&found, url.Values{"limit": {strconv.Itoa(shownMessages)}, "cursor": {p.r.URL.Query().Get("cursor")}}, "dead-letters"); err != nil {
		return err
	}
	groups, err := readLetterGroups(p)
	if err != nil {
		return err
	}
	names, err := readNamesOf(p.page, found.Data, func(d client.Delivery) string { return d.EndpointID })
	if err != nil {
		return err
	}
	t, now := p.texts(), p.console.config.Now()
	v := portalFailedView{Next: found.NextCursor, Some: len(found.Data) > 0, Count: t.more(groups.Counted, groups.More)}
	for _, d := range found.Data {
		if d.EventType == webhook.NotificationType {
			continue
		}
		v.Rows = append(v.Rows, portalDelivery{d, t.deliveryChip(d.State), t.sentenceOf(d, now), names.Short(d.EndpointID)})
	}
	return p.show(portalView{Template: "failed", Title: p.say("nav.failed"), Entry: "failed", Live: true, Data: v, Attempted: lastAttempt(found.Data)})
}

// lastAttempt is when the last attempt of deliveries ended; zero without one.
func lastAttempt(of []client.Delivery) (at time.Time) {
	for _, d := range of {
		if o := d.LastOutcome; o != nil && o.At.After(at) {
			at = o.At.Time
		}
	}
	return at
}

func readLetterGroups(p *portalPage) (groups letterGroups, err error) {
	err = unlessBusy(p.get(&groups, nil, "dead-letters", "groups"))
	return groups, err
}

func askSendAllAgain(p *portalPage) error {
	groups, err := readLetterGroups(p)
	if err != nil {
		return err
	}
	return p.show(portalView{Template: "question", Title: p.say("failed.send_all"), Entry: "failed", Data: portalQuestion{
		Question: p.say("failed.send_all.question", "number", p.texts().more(groups.Counted, groups.More), "count", groups.Counted),
		Detail:   p.say("failed.send_all.detail"), Button: p.say("failed.send_all"), Back: portalPath("failed"),
	}})
}

func sendAllAgain(p *portalPage) error {
	err := p.create(nil, map[string]any{"source": "dead_letters"}, "replays")
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusUnprocessableEntity) || isStatus(err, http.StatusTooManyRequests) {
		return p.done(portalPath("failed"), p.say("form.not_now"))
	}
	if err != nil {
		return err
	}
	return p.done(portalPath("failed"), p.say("failed.sending"))
}

// Statuses are the event's counts as chips, for a message of many endpoints.
func (r portalMessageRow) Statuses(t portalInfo) []chip {
	var chips []chip
	for _, of := range []struct {
		n         int
		key, tone string
	}{
		{r.Outcomes.Delivered, "count.sent", toneGood}, {r.Outcomes.Waiting, "count.waiting", toneWait},
		{r.Outcomes.Failed, "count.failed", toneBad}, {r.Outcomes.Cancelled, "count.cancelled", toneQuiet},
	} {
		if of.n > 0 {
			chips = append(chips, chip{t.say(of.key, "count", of.n), of.tone})
		}
	}
	return chips
}

// Seen reports whether a type is among those that were seen.
func (v portalMessagesView) Seen(name string) bool {
	return slices.Contains(v.Types, strings.TrimSpace(name))
}
