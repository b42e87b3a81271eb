package client

import (
	"context"
	"net/http"
	"time"
)

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of deliveries. docs/delivery-states.md says what leads from one to another.
const (
	DeliveryPending      DeliveryState = "pending"
	DeliveryRetrying     DeliveryState = "retrying"
	DeliveryHeld         DeliveryState = "held"
	DeliveryDelivered    DeliveryState = "delivered"
	DeliveryDeadLettered DeliveryState = "dead_lettered"
	DeliveryCancelled    DeliveryState = "cancelled"
	DeliveryDiscarded    DeliveryState = "discarded"
)

// Ended reports whether the delivery is over, unless it is replayed. A state that this version does not know is not.
func (s DeliveryState) Ended() bool {
	switch s {
	case DeliveryDelivered, DeliveryDeadLettered, DeliveryCancelled, DeliveryDiscarded:
		return true
	case DeliveryPending, DeliveryRetrying, DeliveryHeld:
	}
	return false
}

// Delivery is the delivery of one event to one endpoint.
type Delivery struct {
	ID            string        `json:"id"`
	EventID       string        `json:"event_id"`
	EndpointID    string        `json:"endpoint_id"`
	EventType     string        `json:"event_type"`
	ExternalID    *string       `json:"external_id"` // the event's; nil without one, and when the event is past its retention
	State         DeliveryState `json:"state"`
	Reason        *string       `json:"reason"`   // why it ended, was deferred or is held; nil when it was delivered, and if there is nothing to say
	Summary       string        `json:"summary"`  // for people: what happened, why, and what happens next
	Run           int           `json:"run"`      // 1 at first; each replay adds 1
	Attempts      int           `json:"attempts"` // in all runs
	LastOutcome   *Outcome      `json:"last_outcome"`
	LastError     *string       `json:"last_error"`      // a fault of Everpost that prevented an attempt
	NextAttemptAt Time          `json:"next_attempt_at"` // null when the delivery has ended
	GiveUpAt      Time          `json:"give_up_at"`      // when it is given up if nothing changes
	HeldAt        Time          `json:"held_at"`         // since when the clock towards that stands still; null: it runs
	CreatedAt     Time          `json:"created_at"`
	CompletedAt   Time          `json:"completed_at"`
	WorkflowID    *string       `json:"workflow_id"`           // nil while it is held
	WorkflowURL   *string       `json:"workflow_url"`          // in the Temporal Web UI; nil if the caller may not see it
	Explanation   *Explanation  `json:"explanation,omitempty"` // absent in lists
}

// DeliveryStub is a delivery in the answer about its event.
type DeliveryStub struct {
	ID         string        `json:"id"`
	EndpointID string        `json:"endpoint_id"`
	State      DeliveryState `json:"state"`
	Line       int64         `json:"line,omitempty"`     // of a numbered delivery: which line; numbers compare within a line
	Sequence   int64         `json:"sequence,omitempty"` // its number there: 1, 2, 3 and so on
	Summary    string        `json:"summary,omitempty"`  // for people; absent in the answer to a post
}

// Decision is what follows from the outcome of an attempt.
type Decision string

// The decisions.
const (
	DecisionDelivered Decision = "delivered"
	DecisionRetry     Decision = "retry"
	DecisionPermanent Decision = "permanent" // the delivery is given up
)

// Outcome is the outcome of the last attempt of a delivery.
type Outcome struct {
	Decision     Decision `json:"decision"`
	Reason       string   `json:"reason"`
	Status       *int     `json:"status"` // nil without an answer
	LatencyMS    int64    `json:"latency_ms"`
	At           Time     `json:"at"`
	RetryAfterMS *int64   `json:"retry_after_ms"`
}

// Attempt is one request to an endpoint.
type Attempt struct {
	Number            int               `json:"number"` // continues over all runs; 0 for a test
	Run               *int              `json:"run"`    // nil for a test
	StartedAt         Time              `json:"started_at"`
	LatencyMS         int64             `json:"latency_ms"`
	Times             *AttemptTimes     `json:"times"`      // nil if they are not known
	WaitedFor         *string           `json:"waited_for"` // what it waited for beyond its retry delay, such as "rate" or "circuit_open"
	LateMS            *int64            `json:"late_ms"`    // how long after its due time it began, without WaitedFor; nil if it was punctual
	Status            *int              `json:"status"`     // nil without an answer
	Decision          Decision          `json:"decision"`
	Reason            string            `json:"reason"`
	Error             *string           `json:"error"` // class and cause of a failure
	RetryAfterMS      *int64            `json:"retry_after_ms"`
	DelayMS           *int64            `json:"delay_ms"`        // until the next attempt; nil if there is none
	DelaySource       *string           `json:"delay_source"`    // "backoff", "retry_after", "deadline" or "ambiguous"
	RequestHeaders    map[string]string `json:"request_headers"` // without secrets
	ResponseHeaders   map[string]string `json:"response_headers"`
	ResponseBody      string            `json:"response_body"` // at most 16 KiB of valid UTF-8
	ResponseTruncated bool              `json:"response_truncated"`
}

// AttemptTimes is where the time of an attempt went, in milliseconds. What is missing to the latency went to an OAuth 2 token, or to Everpost.
type AttemptTimes struct {
	NamesMS   int64 `json:"names_ms"`   // the look-up of the host name
	ConnectMS int64 `json:"connect_ms"` // 0 over a kept connection
	TLSMS     int64 `json:"tls_ms"`
	WaitMS    int64 `json:"wait_ms"` // from the request's first byte to the end of the answer
}

// DeliveryAttempt is an attempt among those of several deliveries.
type DeliveryAttempt struct {
	Attempt

	DeliveryID string `json:"delivery_id"`
}

// DeliveryFilter selects deliveries. What is zero is not compared.
type DeliveryFilter struct {
	States       []DeliveryState // any of them
	EndpointID   string
	EventID      string
	ExternalID   string // of the event
	EventType    string // a type, or a pattern such as "order.*"
	Status       int    // of the last answer
	Since, Until time.Time

	EndedSince, EndedUntil time.Time // when it was delivered, given up, cancelled or discarded
}

// Deliveries are the calls about deliveries.
type Deliveries struct{ scope }

// List lists deliveries.
func (d Deliveries) List(f DeliveryFilter) List[Delivery] {
	query := parameters("endpoint_id", f.EndpointID, "event_id", f.EventID, "external_id", f.ExternalID, "event_type", f.EventType,
		"status", number(f.Status), "since", instant(f.Since), "until", instant(f.Until),
		"ended_since", instant(f.EndedSince), "ended_until", instant(f.EndedUntil))
	for _, state := range f.States {
		query.Add("state", string(state))
	}
	return List[Delivery]{d.scope, query}
}

// Get reads a delivery, with its explanation.
func (d Deliveries) Get(ctx context.Context, id string) (Delivery, error) {
	return get[Delivery](ctx, d.at(id), nil)
}

// Attempts lists the attempts of a delivery in all runs.
func (d Deliveries) Attempts(id string) List[Attempt] {
	return List[Attempt]{d.at(id, "attempts"), nil}
}

// Cancel stores a command to end an open delivery. The reason may be "". CodeConflict: its state does not allow it, as Problem.State says;
// that goes for each of the commands. Its workflow carries a command out a moment after the answer.
func (d Deliveries) Cancel(ctx context.Context, id, reason string, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(id, "cancel"), http.MethodPost, reasonInput{reason}, o...)
}

// Retry stores a command to make the next attempt now.
func (d Deliveries) Retry(ctx context.Context, id string, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(id, "retry"), http.MethodPost, nil, o...)
}

// Reschedule stores a command to make the next attempt at a time.
func (d Deliveries) Reschedule(ctx context.Context, id string, at time.Time, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(id, "reschedule"), http.MethodPost, map[string]string{"at": instant(at)}, o...)
}

// Replay stores a command to send a delivery that has ended once more. The reason may be "".
func (d Deliveries) Replay(ctx context.Context, id, reason string, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(id, "replay"), http.MethodPost, reasonInput{reason}, o...)
}

// reasonInput is the body of a command with a reason.
type reasonInput struct {
	Reason string `json:"reason,omitempty"`
}
