package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// showTimes returns nil if nothing is known.
func showTimes(t webhook.Times) *client.AttemptTimes {
	if t == (webhook.Times{}) {
		return nil
	}
	return &client.AttemptTimes{
		NamesMS: t.Names.Milliseconds(), ConnectMS: t.Connecting.Milliseconds(), TLSMS: t.TLS.Milliseconds(), WaitMS: t.Waiting.Milliseconds(),
	}
}

func showAttempt(a webhook.Attempt) client.Attempt {
	view := client.Attempt{
		Number: a.Number, Run: nullable(a.Run), StartedAt: timestamp(a.StartedAt), LatencyMS: a.Latency.Milliseconds(), Times: showTimes(a.Times),
		WaitedFor: nullable(a.WaitedFor), LateMS: milliseconds(a.Late),
		Status: nullable(a.Outcome.Status), Decision: client.Decision(a.Outcome.Decision.String()), Reason: string(a.Outcome.Reason), Error: nullable(a.Error),
		RetryAfterMS: milliseconds(a.Outcome.RetryAfter), DelaySource: nullable(a.DelaySource),
		RequestHeaders: orEmpty(a.RequestHeaders), ResponseHeaders: make(map[string]string, len(a.ResponseHeaders)),
		ResponseBody: strings.ToValidUTF8(string(a.ResponseBody), "�"), ResponseTruncated: a.Truncated,
	}
	if a.DelaySource != "" {
		delay := a.Delay.Milliseconds()
		view.DelayMS = &delay
	}
	for name, values := range a.ResponseHeaders { // RFC 9110 §5.2: a list may be combined into one value
		view.ResponseHeaders[name] = strings.Join(values, ", ")
	}
	return view
}

// deliveryViews shows deliveries, with explanations.
type deliveryViews struct {
	explanations *explanations
	events       EventLists
	workflowURLs *workflowURLs
}

// externalIDs reads those of the events of deliveries, in one read.
func (v *deliveryViews) externalIDs(ctx context.Context, tenantID string, of ...webhook.Delivery) (map[webhook.EventID]string, error) {
	ids := make([]webhook.EventID, 0, len(of))
	for i := range of {
		ids = append(ids, of[i].EventID)
	}
	slices.SortFunc(ids, func(a, b webhook.EventID) int { return bytes.Compare(a[:], b[:]) })
	return v.events.ExternalIDs(ctx, tenantID, slices.Compact(ids))
}

// explained is the view of one delivery, with its explanation.
func (v *deliveryViews) explained(c call, d webhook.Delivery) client.Delivery {
	x := v.explanations.explainer(c)
	explained := x.delivery(d)
	view := v.show(c, d, explained.Summary)
	view.Explanation = showExplanation(explained)
	externalIDs, err := v.externalIDs(c.Request().Context(), c.tenant, d)
	x.noted("external id", err) // a command is stored already: its answer is no error
	view.ExternalID = nullable(externalIDs[d.EventID])
	return view
}

// page returns what shows each delivery of a page, given the external ids of their events.
func (v *deliveryViews) page(c call, page []webhook.Delivery, externalIDs map[webhook.EventID]string) func(webhook.Delivery) client.Delivery {
	x := v.explanations.explainer(c)
	x.expect(page)
	return func(d webhook.Delivery) client.Delivery {
		view := v.show(c, d, x.summary(d))
		view.ExternalID = nullable(externalIDs[d.EventID])
		return view
	}
}

func (v *deliveryViews) show(c call, d webhook.Delivery, summary string) client.Delivery {
	view := client.Delivery{
		ID: d.DeliveryID.String(), EventID: d.EventID.String(), EndpointID: d.EndpointID.String(), EventType: d.EventType,
		State: client.DeliveryState(d.State.String()), Reason: nullable(d.Reason), Summary: summary,
		Run: d.Run, Attempts: d.Attempts, LastError: nullable(d.LastError),
		GiveUpAt: timestamp(d.Expires()), HeldAt: timestamp(d.HeldAt), CreatedAt: timestamp(d.CreatedAt), CompletedAt: timestamp(d.CompletedAt),
		WorkflowID: nullable(d.WorkflowID),
	}
	if d.State.Open() {
		view.NextAttemptAt = timestamp(d.DueAt)
	}
	if d.WorkflowID != "" {
		ended := d.CompletedAt
		if d.State == webhook.StateDeadLettered { // its workflow is open until replay, discard or retention
			ended = time.Time{}
		}
		view.WorkflowURL = v.workflowURLs.of(c, d.WorkflowID, ended)
	}
	if last := d.LastOutcome; last != nil {
		view.LastOutcome = &client.Outcome{
			Decision: client.Decision(last.Decision.String()), Reason: last.Reason, Status: nullable(last.Status),
			LatencyMS: last.Latency.Milliseconds(), At: timestamp(last.At), RetryAfterMS: milliseconds(last.RetryAfter),
		}
	}
	return view
}

// deliveryHandler shows deliveries, dead letters and attempts.
type deliveryHandler struct {
	deliveries Deliveries
	groups     DeadLetterGroups
	endpoints  Endpoints
	events     Events
	tenants    tenantReader
	views      *deliveryViews
}

func (h *deliveryHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	d, err := h.deliveries.Delivery(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, h.views.explained(c, d))
}

func (h *deliveryHandler) list(c call) error {
	q := c.query("deliveries", append([]string{"state", "event_id", "external_id"}, deliveryFilters()...)...)
	f := deliveryFilter(q)
	f.ExternalID = q.externalID()
	f.EventID = queryID(q, "event_id", webhook.ParseEventID)
	for _, name := range q.values["state"] {
		state, ok := webhook.ParseState(name)
		if !ok {
			q.refuse("state", "is not a state of a delivery")
		}
		f.States = append(f.States, state)
	}
	if len(f.States) > len(webhook.States()) {
		q.refuse("state", "is given too many times")
	}
	return h.listByFilter(c, q, f)
}

// deliveryFilters are the filters that lists of deliveries and of dead letters share.
func deliveryFilters() []string {
	return []string{"endpoint_id", "event_type", "status", "since", "until", "ended_since", "ended_until"}
}

// deliveryFilter reads deliveryFilters.
func deliveryFilter(q *query) webhook.DeliveryFilter {
	f := webhook.DeliveryFilter{
		EndpointID: queryID(q, "endpoint_id", webhook.ParseEndpointID),
		EventType:  q.text("event_type", webhook.ValidFilter, notAFilter),
		Since:      q.instant("since"), Until: q.instant("until"),
		EndedSince: q.instant("ended_since"), EndedUntil: q.instant("ended_until"),
	}
	if q.has("status") {
		n, err := strconv.Atoi(q.values.Get("status"))
		if err != nil || n < 100 || n > 999 {
			q.refuse("status", "must be a status code from 100 to 999")
		}
		f.Status = n
	}
	return f
}

func (h *deliveryHandler) listByFilter(c call, q *query, f webhook.DeliveryFilter) error {
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	chats, position := chatsIn(f.EventType), func(d webhook.Delivery) string { return idPosition(d.DeliveryID) }
	chats.shown = chats.shown || !f.EventID.IsZero()
	var externalIDs map[webhook.EventID]string // of the events of those that were fetched last
	fetch := func(limit int, after string) ([]webhook.Delivery, string, error) {
		ctx := c.Request().Context()
		found, searched, err := h.deliveries.ListDeliveries(ctx, c.tenant, f, pageOf(limit, after))
		if err != nil {
			return nil, "", err
		}
		found, next := without(chats, found, limit, searchedPosition(searched), func(d webhook.Delivery) string { return d.EventType }, position)
		externalIDs, err = h.views.externalIDs(ctx, c.tenant, found...)
		return found, next, err
	}
	show := func(page []webhook.Delivery) func(webhook.Delivery) client.Delivery {
		return h.views.page(c, page, externalIDs)
	}
	return listAll(c, q, fetch, position, show)
}

// attemptsOf lists the attempts that a filter selects, with their deliveries. known finds out whether the resource in the path exists.
func (h *deliveryHandler) attemptsOf(c call, name string, f webhook.AttemptFilter, known func(context.Context) error) error {
	q := c.query("attempts of " + name)
	q.batch = 25 // of up to 40 KiB
	if err := q.problem(); err != nil {
		return err
	}
	if err := known(c.Request().Context()); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.DeliveryAttempt, string, error) {
		found, searched, err := h.deliveries.ListAttempts(c.Request().Context(), c.tenant, f, limit, attemptAfter(after))
		if searched.IsZero() {
			return found, "", err
		}
		return found, attemptPosition(webhook.DeliveryAttempt{DeliveryID: searched}), err
	}
	show := func([]webhook.DeliveryAttempt) func(webhook.DeliveryAttempt) client.DeliveryAttempt {
		return func(a webhook.DeliveryAttempt) client.DeliveryAttempt {
			return client.DeliveryAttempt{Attempt: showAttempt(a.Attempt), DeliveryID: a.DeliveryID.String()}
		}
	}
	return listAll(c, q, fetch, attemptPosition, show)
}

// ofEndpoint lists the attempts to an endpoint.
func (h *deliveryHandler) ofEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	return h.attemptsOf(c, id.String(), webhook.AttemptFilter{EndpointID: id}, func(ctx context.Context) error {
		_, err := h.endpoints.Endpoint(ctx, c.tenant, id)
		return err
	})
}

// ofEvent lists the attempts of all deliveries of an event.
func (h *deliveryHandler) ofEvent(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	return h.attemptsOf(c, id.String(), webhook.AttemptFilter{EventID: id}, func(ctx context.Context) error {
		_, _, err := h.events.Event(ctx, c.tenant, id)
		return err
	})
}

func (h *deliveryHandler) attempts(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	q := c.query("attempts of " + id.String())
	q.batch = 25 // of up to 40 KiB
	if err := q.problem(); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Attempt, error) {
		return h.deliveries.Attempts(c.Request().Context(), c.tenant, id, limit, numberAfter(after))
	}
	return list(c, q, fetch, func(a webhook.Attempt) string { return numberPosition(a.Number) }, showAttempt)
}
