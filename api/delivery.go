package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// deliveryView is the API's view of a delivery.
type deliveryView struct {
	ID            webhook.DeliveryID `json:"id"`
	EventID       webhook.EventID    `json:"event_id"`
	EndpointID    webhook.EndpointID `json:"endpoint_id"`
	EventType     string             `json:"event_type"`
	State         webhook.State      `json:"state"`
	Reason        *string            `json:"reason"`
	Summary       string             `json:"summary"`
	Run           int                `json:"run"`
	Attempts      int                `json:"attempts"`
	LastOutcome   *outcomeView       `json:"last_outcome"`
	LastError     *string            `json:"last_error"`
	NextAttemptAt timestamp          `json:"next_attempt_at"`
	GiveUpAt      timestamp          `json:"give_up_at"`
	CreatedAt     timestamp          `json:"created_at"`
	CompletedAt   timestamp          `json:"completed_at"`
	WorkflowID    *string            `json:"workflow_id"`
	WorkflowURL   *string            `json:"workflow_url"`
	Explanation   *explanationView   `json:"explanation,omitempty"` // not in lists
}

type outcomeView struct {
	Decision     retry.Decision `json:"decision"`
	Reason       string         `json:"reason"`
	Status       *int           `json:"status"`
	LatencyMS    int64          `json:"latency_ms"`
	At           timestamp      `json:"at"`
	RetryAfterMS *int64         `json:"retry_after_ms"`
}

// attemptView is the API's view of an attempt.
type attemptView struct {
	Number            int               `json:"number"`
	Run               *int              `json:"run"` // null for a test
	StartedAt         timestamp         `json:"started_at"`
	LatencyMS         int64             `json:"latency_ms"`
	Times             *timesView        `json:"times"`
	WaitedFor         *string           `json:"waited_for"`
	LateMS            *int64            `json:"late_ms"`
	Status            *int              `json:"status"`
	Decision          retry.Decision    `json:"decision"`
	Reason            retry.Reason      `json:"reason"`
	Error             *string           `json:"error"`
	RetryAfterMS      *int64            `json:"retry_after_ms"`
	DelayMS           *int64            `json:"delay_ms"`
	DelaySource       *string           `json:"delay_source"`
	RequestHeaders    map[string]string `json:"request_headers"`
	ResponseHeaders   map[string]string `json:"response_headers"`
	ResponseBody      string            `json:"response_body"`
	ResponseTruncated bool              `json:"response_truncated"`
}

// timesView is the API's view of where the time of an attempt went.
type timesView struct {
	NamesMS   int64 `json:"names_ms"`
	ConnectMS int64 `json:"connect_ms"`
	TLSMS     int64 `json:"tls_ms"`
	WaitMS    int64 `json:"wait_ms"`
}

// showTimes returns nil if nothing is known.
func showTimes(t webhook.Times) *timesView {
	if t == (webhook.Times{}) {
		return nil
	}
	return &timesView{t.Names.Milliseconds(), t.Connecting.Milliseconds(), t.TLS.Milliseconds(), t.Waiting.Milliseconds()}
}

// explainedDelivery is the view of one delivery, with its explanation.
func (s *Server) explainedDelivery(c call, d webhook.Delivery) deliveryView {
	explained := s.explainer(c).delivery(d)
	view := c.showDelivery(d, explained.Summary)
	view.Explanation = showExplanation(explained)
	return view
}

func (c call) showDelivery(d webhook.Delivery, summary string) deliveryView {
	view := deliveryView{
		ID: d.DeliveryID, EventID: d.EventID, EndpointID: d.EndpointID, EventType: d.EventType,
		State: d.State, Reason: nullable(d.Reason), Summary: summary, Run: d.Run, Attempts: d.Attempts, LastError: nullable(d.LastError),
		GiveUpAt: timestamp(d.GiveUpAt), CreatedAt: timestamp(d.CreatedAt), CompletedAt: timestamp(d.CompletedAt),
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
		view.WorkflowURL = c.workflowURL(d.WorkflowID, ended)
	}
	if last := d.LastOutcome; last != nil {
		view.LastOutcome = &outcomeView{
			Decision: last.Decision, Reason: last.Reason, Status: nullable(last.Status),
			LatencyMS: last.Latency.Milliseconds(), At: timestamp(last.At), RetryAfterMS: milliseconds(last.RetryAfter),
		}
	}
	return view
}

func showAttempt(a webhook.Attempt) attemptView {
	view := attemptView{
		Number: a.Number, Run: nullable(a.Run), StartedAt: timestamp(a.StartedAt), LatencyMS: a.Latency.Milliseconds(), Times: showTimes(a.Times),
		WaitedFor: nullable(a.WaitedFor), LateMS: milliseconds(a.Late),
		Status: nullable(a.Outcome.Status), Decision: a.Outcome.Decision, Reason: a.Outcome.Reason, Error: nullable(a.Error),
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

func (s *Server) getDelivery(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	d, err := s.config.Deliveries.Delivery(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, s.explainedDelivery(c, d))
}

func (s *Server) listDeliveries(c call) error {
	q := c.query("deliveries", "state", "endpoint_id", "event_id", "event_type", "since", "until")
	f := deliveryFilter(q)
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
	return s.listByFilter(c, q, f)
}

// deliveryFilter reads the filters that lists of deliveries and of dead letters share.
func deliveryFilter(q *query) webhook.DeliveryFilter {
	return webhook.DeliveryFilter{
		EndpointID: queryID(q, "endpoint_id", webhook.ParseEndpointID),
		EventType:  q.text("event_type", webhook.ValidFilter, notAFilter),
		Since:      q.instant("since"),
		Until:      q.instant("until"),
	}
}

func (s *Server) listByFilter(c call, q *query, f webhook.DeliveryFilter) error {
	if err := q.problem(); err != nil {
		return err
	}
	if err := s.requireTenant(c); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Delivery, string, error) {
		found, searched, err := s.config.Deliveries.ListDeliveries(c.Request().Context(), c.tenant, f, pageOf(limit, after))
		return found, searchedPosition(searched), err
	}
	return listAll(c, q, fetch, func(d webhook.Delivery) string { return idPosition(d.DeliveryID) }, c.deliveryShower)
}

// deliveryShower returns a function that shows the deliveries of a page.
func (c call) deliveryShower(page []webhook.Delivery) func(webhook.Delivery) deliveryView {
	x := c.server.explainer(c)
	x.expect(page)
	return func(d webhook.Delivery) deliveryView { return c.showDelivery(d, x.summary(d)) }
}

func (s *Server) listAttempts(c call) error {
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
		return s.config.Deliveries.Attempts(c.Request().Context(), c.tenant, id, limit, numberAfter(after))
	}
	return list(c, q, fetch, func(a webhook.Attempt) string { return numberPosition(a.Number) }, showAttempt)
}

func (s *Server) listDeadLetters(c call) error {
	q := c.query("dead-letters", deadLetterFilters()...)
	return s.listByFilter(c, q, deadLetterFilter(q))
}

// deadLetterFilters are the filters of dead letters.
func deadLetterFilters() []string {
	return []string{"endpoint_id", "event_type", "reason", "status", "since", "until"}
}

func deadLetterFilter(q *query) webhook.DeliveryFilter {
	f := deliveryFilter(q)
	f.States = []webhook.State{webhook.StateDeadLettered}
	f.Reason = q.text("reason", func(v string) bool { return printable(v, maxReason) }, notPrintable(maxReason))
	if q.has("status") {
		n, err := strconv.Atoi(q.values.Get("status"))
		if err != nil || n < 100 || n > 999 {
			q.refuse("status", "must be a status code from 100 to 999")
		}
		f.Status = n
	}
	return f
}
