package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// DeadLetterGroups are the newest dead letters that match, grouped by endpoint, reason and last status; the largest group first.
type DeadLetterGroups struct {
	Groups  []DeadLetterGroup `json:"groups"`
	Counted int               `json:"counted"` // in all groups, at most 10,000
	More    bool              `json:"more"`    // there are older ones that were not counted
}

// DeadLetterGroup is the dead letters of one endpoint with the same cause.
type DeadLetterGroup struct {
	EndpointID string `json:"endpoint_id"`
	Reason     string `json:"reason"`
	Status     *int   `json:"status"` // of the last attempt; nil without an answer
	Count      int    `json:"count"`
	OldestAt   Time   `json:"oldest_at"`
	NewestAt   Time   `json:"newest_at"`
	ExampleID  string `json:"example_id"` // the newest of them
}

// DeadLetterFilter selects dead letters: deliveries that were given up. What is zero is not compared.
type DeadLetterFilter struct {
	EndpointID   string
	EventType    string // a type, or a pattern such as "order.*"
	Reason       string // why it was given up, such as "max_attempts"
	Status       int    // of the last answer
	Since, Until time.Time

	EndedSince, EndedUntil time.Time // when it was given up
}

func (f DeadLetterFilter) query() url.Values {
	return parameters("endpoint_id", f.EndpointID, "event_type", f.EventType, "reason", f.Reason, "status", number(f.Status),
		"since", instant(f.Since), "until", instant(f.Until), "ended_since", instant(f.EndedSince), "ended_until", instant(f.EndedUntil))
}

// DeadLetters are the calls about dead letters.
type DeadLetters struct{ scope }

// List lists dead letters.
func (d DeadLetters) List(f DeadLetterFilter) List[Delivery] {
	return List[Delivery]{d.scope, f.query()}
}

// Groups groups the newest dead letters.
func (d DeadLetters) Groups(ctx context.Context, f DeadLetterFilter) (DeadLetterGroups, error) {
	return get[DeadLetterGroups](ctx, d.at("groups"), f.query())
}

// Replay is Deliveries.Replay for a dead letter only.
func (d DeadLetters) Replay(ctx context.Context, deliveryID, reason string, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(deliveryID, "replay"), http.MethodPost, reasonInput{reason}, o...)
}

// Discard stores a command to end a dead letter for good. The reason may be "".
func (d DeadLetters) Discard(ctx context.Context, deliveryID, reason string, o ...Option) (Delivery, error) {
	return send[Delivery](ctx, d.at(deliveryID, "discard"), http.MethodPost, reasonInput{reason}, o...)
}
