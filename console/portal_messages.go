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

// portalMessageRow is an event in the list of messages: where it went, and what became of it there.
type portalMessageRow struct {
	client.ListedEvent

	To    []portalDelivery // by endpoint, if what became of each is known and there are at most shownEndpoints; else the counts and Names say it
	Names []string         // of some of its endpoints
	More  int              // endpoints that are not named
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
		if unlessBusy(err) == nil { // nothing is wrong with what was looked for
			return err
		}
		p.typed = typed
		if v.Filter.Form, err = p.refused(v.Filter.Form, err); err != nil {
			return err
		}
	}
	v.Next = found.NextCursor
	if v.Rows, err = messageRows(p, found.Data, v.Filter.query); err != nil {
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

// messageRows adds to events where they went. asked is the filter that has found them.
func messageRows(p *portalPage, events []client.ListedEvent, asked url.Values) ([]portalMessageRow, error) {
	events = slices.DeleteFunc(events, func(e client.ListedEvent) bool { return e.Type == webhook.NotificationType }) // of the operators' chats
	if len(events) == 0 {
		return nil, nil
	}
	read, err := readMixed(p, events, asked)
	if err != nil {
		return nil, err
	}
	to := make([][]client.Delivery, len(events))
	var ids []string // of the endpoints that are named
	for i, e := range events {
		to[i] = settled(e)
		if of := read[e.ID]; len(to[i]) == 0 && len(of) == deliveriesOf(e) && few(e) {
			to[i] = of
		}
		for _, d := range to[i] {
			ids = append(ids, d.EndpointID)
		}
		if len(to[i]) == 0 {
			ids = append(ids, firstEndpoints(e)...)
		}
	}
	names, err := readNamesOf(p.page, ids, func(id string) string { return id })
	if err != nil {
		return nil, err
	}
	rows, t := make([]portalMessageRow, len(events)), p.texts()
	for i, e := range events {
		row := portalMessageRow{ListedEvent: e}
		for _, d := range to[i] {
			row.To = append(row.To, portalDelivery{Delivery: d, Chip: t.deliveryChip(d.State), Endpoint: names.Short(d.EndpointID)})
		}
		slices.SortStableFunc(row.To, func(a, b portalDelivery) int { return strings.Compare(a.Endpoint, b.Endpoint) })
		if len(row.To) == 0 {
			for _, id := range firstEndpoints(e) {
				row.Names = append(row.Names, names.Short(id))
			}
			row.More = len(e.EndpointIDs) - len(row.Names)
		}
		rows[i] = row
	}
	return rows, nil
}

// outcome is how many deliveries of an event stand in a state that lists tell apart.
type outcome struct {
	n     int
	state client.DeliveryState // one of those that are counted together
	key   string               // of the text
}

// outcomesOf are the counts of an event that are not zero.
func outcomesOf(e client.ListedEvent) []outcome {
	all := []outcome{
		{e.Outcomes.Delivered, client.DeliveryDelivered, "count.sent"}, {e.Outcomes.Waiting, client.DeliveryPending, "count.waiting"},
		{e.Outcomes.Failed, client.DeliveryDeadLettered, "count.failed"}, {e.Outcomes.Cancelled, client.DeliveryCancelled, "count.cancelled"},
	}
	return slices.DeleteFunc(all, func(o outcome) bool { return o.n == 0 })
}

// Statuses are the event's counts as chips.
func (r portalMessageRow) Statuses(t portalInfo) []chip {
	var chips []chip
	for _, o := range outcomesOf(r.ListedEvent) {
		chips = append(chips, chip{t.say(o.key, "count", o.n), t.deliveryChip(o.state).Tone})
	}
	return chips
}

// deliveriesOf is how many deliveries of an event its counts have.
func deliveriesOf(e client.ListedEvent) (n int) {
	for _, o := range outcomesOf(e) {
		n += o.n
	}
	return n
}

// few reports whether a row has room for each of the event's deliveries.
func few(e client.ListedEvent) bool {
	n := deliveriesOf(e)
	return n > 0 && n <= shownEndpoints && !e.Outcomes.More
}

// settled are the deliveries of an event, as far as a row shows them, if its counts alone tell where each stands.
func settled(e client.ListedEvent) (deliveries []client.Delivery) {
	all := outcomesOf(e)
	if !few(e) || len(all) != 1 || all[0].n != len(e.EndpointIDs) {
		return nil
	}
	for _, id := range e.EndpointIDs {
		deliveries = append(deliveries, client.Delivery{EventID: e.ID, EndpointID: id, State: all[0].state})
	}
	return deliveries
}

// firstEndpoints are the endpoints of an event that its row names.
func firstEndpoints(e client.ListedEvent) []string {
	return e.EndpointIDs[:min(len(e.EndpointIDs), shownEndpoints)]
}

// readMixed reads the deliveries of those events whose counts do not tell where each stands, one page of them: the newest. None if they cannot be read now.
func readMixed(p *portalPage, events []client.ListedEvent, asked url.Values) (map[string][]client.Delivery, error) {
	of := map[string][]client.Delivery{}
	events = slices.DeleteFunc(slices.Clone(events), func(e client.ListedEvent) bool { return !few(e) || settled(e) != nil })
	if len(events) == 0 {
		return of, nil
	}
	var found client.Page[client.Delivery]
	if err := p.get(&found, url.Values{
		"limit": {strconv.Itoa(maxListed)}, "event_type": asked["type"], "external_id": asked["external_id"],
		"since": {events[len(events)-1].CreatedAt.Format(time.RFC3339Nano)},
		"until": {events[0].CreatedAt.Add(time.Microsecond).Format(time.RFC3339Nano)},
	}, "deliveries"); err != nil {
		return nil, unlessBusy(err)
	}
	for _, d := range found.Data {
		of[d.EventID] = append(of[d.EventID], d)
	}
	return of, nil
}

// portalMessageView is the page of a message.
type portalMessageView struct {
	shownPayload

	Event      client.AcceptedEvent
	Deliveries []portalFate
	More       int // that are not shown
	Missed     portalMisses
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
		if v.Missed, err = readMisses(p, v.Event, names); err != nil {
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
