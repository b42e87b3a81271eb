package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/webhook"
)

// filterHandler tries filters, and says which endpoints match an event.
type filterHandler struct {
	events     Events
	endpoints  Endpoints
	tenants    tenantReader
	warnings   filterWarnings
	maxPayload int           // bytes
	work       time.Duration // after which a page of matches ends
}

// matchWork is how long a page of matches may take to explain filters. It ends with the batch that goes beyond.
const matchWork = time.Second

// filterTest is what a filter is tried with.
type filterTest struct {
	filter *filter.Filter
	event  *webhook.NewEvent // nil for a stored one
	id     webhook.EventID
	types  []string // of the endpoint; nil: that of the event
}

// test says whether a filter matches an event, which is given or stored.
func (h *filterHandler) test(c call) error {
	t, err := h.readTest(c)
	if err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	if t.event == nil {
		t.event, err = h.stored(c.Request().Context(), c, t.id)
	} else {
		if err = c.answer.reserve(len(t.event.Payload)); err == nil { // which the filter's view of the event copies
			err = h.complete(c.Request().Context(), t.event)
		}
	}
	if err != nil {
		return err
	}
	r := showFilterResult(t.filter.Explain(t.event.Filtered()))
	if t.types == nil {
		t.types = []string{t.event.Type}
	}
	r.Warnings = h.warnings.of(c.Request().Context(), t.filter, t.types)
	return c.json(http.StatusOK, r)
}

// complete gives an event that is not sent the ordering key that it would get from the catalogue.
func (h *filterHandler) complete(ctx context.Context, e *webhook.NewEvent) error {
	if e.OrderingKey != "" {
		return nil
	}
	t, err := h.warnings.types.EventType(ctx, e.Type)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return nil
	}
	catalogue.Complete(e, t.OrderingKey)
	return err
}

func (h *filterHandler) readTest(c call) (t filterTest, err error) {
	text, err := c.body()
	if err != nil {
		return t, err
	}
	named := false
	err = readObject(text, func(d *jsonDecoder, name string) {
		switch name {
		case "filter":
			set(d, &t.filter, nil, readFilter)
		case "event":
			t.event = readFilterEvent(d)
		case "event_id":
			named = true
			if text, ok := d.str(); ok {
				id, wrong := webhook.ParseEventID(text)
				if wrong != nil {
					d.note(wrong.Error())
				}
				t.id = id
			}
		case "event_types":
			set(d, &t.types, nil, readEventTypes)
		default:
			d.unknown()
		}
	}, "filter")
	switch {
	case err != nil:
		return t, err
	case named && t.event != nil:
		return t, webhook.Invalid("event", "cannot be given together with event_id")
	case !named && t.event == nil:
		return t, webhook.Invalid("event", "is required, or event_id in its place")
	case t.event != nil && len(t.event.Payload) > h.maxPayload:
		return t, tooLarge("event.payload", h.maxPayload, int64(len(t.event.Payload)))
	}
	return t, nil
}

// readFilterEvent reads an event that is not sent.
func readFilterEvent(d *jsonDecoder) *webhook.NewEvent {
	var e webhook.NewEvent
	d.object(func(name []byte) {
		if string(name) == "type" {
			e.Type = readTestType(d)
			return
		}
		readContent(d, &e, string(name))
	}, "type", "payload")
	return &e
}

// stored reads an event with its payload. CodeInvalid: there is no such event; CodeRemoved: it has no payload any more.
func (h *filterHandler) stored(ctx context.Context, c call, id webhook.EventID) (*webhook.NewEvent, error) {
	if err := c.answer.reserve(maxPageBytes); err != nil {
		return nil, err
	}
	e, _, err := h.events.Event(ctx, c.tenant, id)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return nil, webhook.Invalid("event_id", "names an event that does not exist")
	}
	if err != nil {
		return nil, err
	}
	return h.withPayload(ctx, c, e)
}

// withPayload reads the payload of a stored event, and returns what filters see of it.
func (h *filterHandler) withPayload(ctx context.Context, c call, e webhook.Event) (*webhook.NewEvent, error) {
	if err := c.answer.reserve(2 * e.PayloadSize); err != nil { // the filter's view of the event copies it
		return nil, err
	}
	payload, err := h.events.Payload(ctx, c.tenant, e.ID)
	if err != nil {
		return nil, err
	}
	return &webhook.NewEvent{Type: e.Type, ExternalID: e.ExternalID, OrderingKey: e.OrderingKey, Tags: e.Tags, Payload: payload}, nil
}

func showFilterResult(x filter.Explanation) client.FilterResult {
	r := client.FilterResult{Matched: x.Matched, Undecided: x.Undecided}
	if !x.Matched {
		r.Failure = showFilterFailure(x.Failure)
	}
	return r
}

func showFilterFailure(f filter.Failure) *client.FilterFailure {
	return &client.FilterFailure{
		Pointer: f.Pointer, Operator: f.Operator, Wanted: f.Wanted, Path: f.Path, Found: f.Found, Missing: f.Missing, Elements: f.Of, Summary: f.String() + ".",
	}
}

// Why an endpoint does not match.
const (
	missesType    = "event_type"
	missesFilter  = "filter"
	missesPayload = "payload_removed"
)

// matches lists the tenant's endpoints, and says of each whether its present event types and filter match an event.
func (h *filterHandler) matches(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	q := c.query("matches")
	q.batch = 25 // as in the list of endpoints
	if err := q.problem(); err != nil {
		return err
	}
	if err := c.answer.reserve(maxPageBytes); err != nil { // the event with its deliveries
		return err
	}
	event, deliveries, err := h.events.Event(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	m := &eventMatcher{h: h, c: c, event: event, sent: make(map[webhook.EndpointID]bool, len(event.EndpointIDs))}
	for _, endpoint := range event.EndpointIDs {
		m.sent[endpoint] = true
	}
	for i := range deliveries { // those of replays, too
		m.sent[deliveries[i].EndpointID] = true
	}
	fetch := func(limit int, after string) ([]webhook.Endpoint, string, error) {
		if m.spent > h.work {
			return nil, after, nil // the next page goes on
		}
		found, err := h.endpoints.ListEndpoints(c.Request().Context(), c.tenant, pageOf(limit, after))
		if err != nil {
			return nil, "", err
		}
		return found, "", m.expect(found)
	}
	return listAll(c, q, fetch, func(e webhook.Endpoint) string { return idPosition(e.ID) },
		func([]webhook.Endpoint) func(webhook.Endpoint) client.EventMatch { return m.show })
}

// eventMatcher matches an event with endpoints. It reads the payload once, if one of them has a filter.
type eventMatcher struct {
	h     *filterHandler
	c     call
	event webhook.Event
	sent  map[webhook.EndpointID]bool
	seen  *filter.Event // nil: not needed yet, or there is no payload
	spent time.Duration // for explaining filters
}

// expect reads the payload if one of the endpoints needs it.
func (m *eventMatcher) expect(endpoints []webhook.Endpoint) error {
	needed := slices.ContainsFunc(endpoints, func(e webhook.Endpoint) bool { return e.Filter != nil && e.Wants(m.event.Type) })
	if !needed || m.seen != nil || !m.event.Removed.IsZero() {
		return nil
	}
	e, err := m.h.withPayload(m.c.Request().Context(), m.c, m.event)
	if webhook.CodeOf(err) == webhook.CodeRemoved { // meanwhile
		return nil
	}
	if err == nil {
		m.seen = e.Filtered()
	}
	return err
}

func (m *eventMatcher) show(e webhook.Endpoint) client.EventMatch {
	v := client.EventMatch{EndpointID: e.ID.String(), URL: e.URL, State: stateOf(e.State), Sent: m.sent[e.ID]}
	reason := ""
	switch {
	case !e.Wants(m.event.Type):
		reason = missesType
	case e.Filter == nil:
	case m.seen == nil:
		reason = missesPayload
	default:
		begun := time.Now()
		if x := e.Filter.Explain(m.seen); !x.Matched {
			reason, v.Failure = missesFilter, showFilterFailure(x.Failure)
		}
		m.spent += time.Since(begun)
	}
	v.Matched, v.Reason = reason == "", nullable(reason)
	return v
}
