package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// maxDeliverAhead is the longest time until deliver_at.
const maxDeliverAhead = 30 * 24 * time.Hour

const (
	notAType   = "must be a letter or digit, then letters, digits and . : / - _, at most 128 characters"
	notAFilter = `must be an event type, a prefix that ends with one of . : / - _ followed by "*", as "order.*", or "*"`
)

func showEvent(e webhook.Event) client.Event {
	view := client.Event{
		ID: e.ID.String(), ExternalID: nullable(e.ExternalID), Type: e.Type, CreatedAt: timestamp(e.CreatedAt),
		DeliverAt: timestamp(e.DeliverAt), PayloadSize: e.PayloadSize, Removed: showRemoval(e.Removed),
		Reason: nullable(e.Reason), EndpointIDs: make([]string, 0, len(e.EndpointIDs)), Tags: e.Tags, Headers: e.Headers,
		OrderingKey: e.OrderingKey,
	}
	if e.Version != 0 {
		view.Version = &e.Version
	}
	if e.SchemaError != nil {
		view.SchemaValid, view.SchemaError = new(false), *e.SchemaError
	}
	for _, id := range e.EndpointIDs {
		view.EndpointIDs = append(view.EndpointIDs, id.String())
	}
	return view
}

// showAccepted returns the response to a post. Every delivery in it is pending, also in the
// response to a repeated request, which equals the original one.
func showAccepted(a webhook.Accepted) client.AcceptedEvent {
	view := client.AcceptedEvent{Event: showEvent(a.Event), Matched: len(a.Deliveries), Deliveries: make([]client.DeliveryStub, 0, len(a.Deliveries))}
	for _, start := range a.Deliveries {
		view.Deliveries = append(view.Deliveries, client.DeliveryStub{
			ID: start.DeliveryID.String(), EndpointID: start.EndpointID.String(), State: client.DeliveryPending,
			Line: start.Sequence.Line, Sequence: start.Sequence.Number,
		})
	}
	return view
}

// eventHandler takes events in, and shows them.
type eventHandler struct {
	events       Events
	tenants      tenantReader
	starter      Starter
	explanations *explanations
	maxPayload   int // bytes
	now          func() time.Time
}

// post takes an event in.
func (h *eventHandler) post(c call) error {
	key, err := idempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	e, err := parseEvent(text, h.now(), h.maxPayload)
	if err != nil {
		return err
	}
	e.TenantID, e.IdempotencyKey, e.BodySHA256 = c.tenant, key, sha256.Sum256(text)
	all, err := h.accept(c, 1, func(ctx context.Context) ([]webhook.Accepted, error) {
		accepted, err := h.events.Accept(ctx, e)
		return []webhook.Accepted{accepted}, err
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusAccepted, showAccepted(all[0]))
}

// accept reserves room in the intake's queue before it stores events, so that stored events
// start soon. It responds only after the commit. A response header marks a repeated request, for
// which nothing new was stored.
func (h *eventHandler) accept(c call, n int, store func(context.Context) ([]webhook.Accepted, error)) ([]webhook.Accepted, error) {
	ctx := c.Request().Context()
	release, err := h.starter.ReserveRoom(ctx, c.tenant, n)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := store(ctx)
	if err != nil {
		return nil, err
	}
	fresh := make([]webhook.Accepted, 0, len(all))
	for _, a := range all {
		if !a.Repeated {
			fresh = append(fresh, a)
		}
	}
	if len(fresh) == 0 {
		c.Response().Header().Set(replayedHeader, "true")
	} else {
		h.starter.Accepted(fresh...)
	}
	return all, nil
}

// parseEvent parses the body of an event, without the fields that come from the path and the
// headers. The payload is a slice of text.
func parseEvent(text []byte, now time.Time, maxPayload int) (webhook.NewEvent, error) {
	if text == nil {
		return webhook.NewEvent{}, webhook.Invalid("body", "is required")
	}
	d := newJSONDecoder(text)
	e := readEvent(d, now)
	d.end()
	if len(e.Payload) > maxPayload {
		return webhook.NewEvent{}, tooLarge("payload", maxPayload, int64(len(e.Payload)))
	}
	if err := d.problem(); err != nil {
		return webhook.NewEvent{}, err
	}
	return e, nil
}

// readEvent reads an event. The payload is a slice of the text; the caller checks its size.
func readEvent(d *jsonDecoder, now time.Time) webhook.NewEvent {
	var e webhook.NewEvent
	d.object(func(name []byte) {
		switch string(name) {
		case "type":
			e.Type = readEventType(d)
		case "deliver_at":
			if !d.null() {
				e.DeliverAt = readDeliverAt(d, now)
				noteUnordered(d, &e)
			}
		case "endpoint_ids":
			if !d.null() {
				e.EndpointIDs = readEndpointIDs(d, webhook.MaxTargetEndpoints,
					"must name at least one endpoint; omit it to send to all endpoints with a matching filter")
			}
		case "version":
			if !d.null() {
				e.Version = d.integer(1, webhook.MaxEventTypeVersion)
			}
		case "headers":
			if !d.null() {
				e.Headers = readEventHeaders(d)
			}
		default:
			readContent(d, &e, string(name))
		}
	}, "type", "payload")
	return e
}

// readContent reads a field that filters see, whatever the event's type may be.
func readContent(d *jsonDecoder, e *webhook.NewEvent, name string) {
	switch name {
	case "payload":
		e.Payload = d.payload()
	case "external_id":
		if !d.null() {
			e.ExternalID = readPrintable(d, webhook.MaxExternalID)
		}
	case "tags":
		if !d.null() {
			e.Tags = readTags(d)
		}
	case "ordering_key":
		if !d.null() {
			e.OrderingKey = readPrintable(d, webhook.MaxOrderingKey)
			noteUnordered(d, e)
		}
	default:
		d.unknown()
	}
}

// noteUnordered notes that an event cannot both wait for a time and have a place among others.
func noteUnordered(d *jsonDecoder, e *webhook.NewEvent) {
	if e.OrderingKey != "" && !e.DeliverAt.IsZero() {
		d.note("cannot be given: an event has either a deliver_at or an ordering_key")
	}
}

// readEventType reads an event type of a caller; operational types are reserved.
func readEventType(d *jsonDecoder) string {
	eventType, ok := d.str()
	switch {
	case !ok:
	case !webhook.ValidType(eventType):
		d.note(notAType)
	case webhook.ReservedType(eventType):
		d.note(reservedTypes)
	}
	return eventType
}

// readDeliverAt reads when the first attempts are due. A time in the past means immediately, which
// is the zero time.
func readDeliverAt(d *jsonDecoder, now time.Time) time.Time {
	t, ok := d.instant()
	switch {
	case !ok || !t.After(now):
		return time.Time{}
	case t.Sub(now) > maxDeliverAhead:
		d.note("must be at most 30 days ahead")
	}
	return t
}

// readEndpointIDs reads a list of different endpoints, at most so many. empty is what is wrong with a list of none; "" for nothing.
func readEndpointIDs(d *jsonDecoder, most int, empty string) []webhook.EndpointID {
	var ids []webhook.EndpointID
	seen := make(map[webhook.EndpointID]bool)
	count := d.array(func(i int) {
		if i == most {
			d.noteParent("has more than " + strconv.Itoa(most) + " entries")
		}
		if i >= most {
			d.skip()
			return
		}
		text, ok := d.str()
		if !ok {
			return
		}
		id, err := webhook.ParseEndpointID(text)
		switch {
		case err != nil:
			d.note(err.Error())
		case seen[id]:
			d.note("is listed more than once")
		default:
			seen[id] = true
			ids = append(ids, id)
		}
	})
	if count == 0 && empty != "" {
		d.note(empty)
	}
	return ids
}

func (h *eventHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	if err := c.answer.reserve(maxPageBytes); err != nil {
		return err
	}
	event, deliveries, err := h.events.Event(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	shown := deliveries[:min(len(deliveries), webhook.MaxShownDeliveries)]
	// Matched includes deliveries that retention has removed.
	view := client.AcceptedEvent{
		Event: showEvent(event), Matched: len(event.EndpointIDs), Deliveries: make([]client.DeliveryStub, 0, len(shown)),
		Truncated: len(shown) < len(deliveries),
	}
	x := h.explanations.explainer(c)
	x.expect(shown)
	for _, d := range shown {
		place := event.SequenceOf(d.EndpointID)
		view.Deliveries = append(view.Deliveries, client.DeliveryStub{
			ID: d.DeliveryID.String(), EndpointID: d.EndpointID.String(), State: client.DeliveryState(d.State.String()), Summary: x.summary(d),
			Line: place.Line, Sequence: place.Number,
		})
	}
	if explained := x.event(event); explained != nil {
		view.Summary, view.Explanation = explained.Summary, showExplanation(*explained)
	}
	return c.json(http.StatusOK, view)
}

// payload writes the payload's original bytes.
func (h *eventHandler) payload(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	if err := c.answer.reserve(max(maxPageBytes, h.maxPayload)); err != nil {
		return err
	}
	payload, err := h.events.Payload(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, payload)
}

func (h *eventHandler) list(c call) error {
	q := c.query("events", "type", "external_id", "tag", "since", "until")
	q.batch = 100 // of up to some thousand endpoint_ids
	f := webhook.EventFilter{
		Type:       q.text("type", webhook.ValidFilter, notAFilter),
		ExternalID: q.externalID(),
		Tag:        q.text("tag", webhook.ValidTag, notATag),
		Since:      q.instant("since"),
		Until:      q.instant("until"),
	}
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	chats, position := chatsIn(f.Type), func(e webhook.Event) string { return idPosition(e.ID) }
	var outcomes map[webhook.EventID]webhook.EventOutcomes // of those that were fetched last
	fetch := func(limit int, after string) ([]webhook.Event, string, error) {
		found, searched, err := h.events.ListEvents(c.Request().Context(), c.tenant, f, pageOf(limit, after))
		if err != nil {
			return nil, "", err
		}
		found, next := without(chats, found, limit, searchedPosition(searched), func(e webhook.Event) string { return e.Type }, position)
		ids := make([]webhook.EventID, len(found))
		for i := range found {
			ids[i] = found[i].ID
		}
		outcomes, err = h.events.Outcomes(c.Request().Context(), c.tenant, ids)
		return found, next, err
	}
	show := func([]webhook.Event) func(webhook.Event) client.ListedEvent {
		x := h.explanations.explainer(c)
		return func(e webhook.Event) client.ListedEvent {
			view := client.ListedEvent{Event: showEvent(e), Outcomes: client.EventOutcomes(outcomes[e.ID])}
			if explained := x.event(e); explained != nil {
				view.Summary = explained.Summary
			}
			return view
		}
	}
	return listAll(c, q, fetch, position, show)
}
