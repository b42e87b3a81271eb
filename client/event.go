package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Event is an event that Everpost has accepted.
type Event struct {
	ID          string          `json:"id"`
	ExternalID  *string         `json:"external_id"` // the caller's own id
	Type        string          `json:"type"`
	CreatedAt   Time            `json:"created_at"`
	DeliverAt   Time            `json:"deliver_at"`             // when the first attempts are due; null for at once
	EndpointIDs []string        `json:"endpoint_ids,omitempty"` // that it matched
	PayloadSize int             `json:"payload_size"`           // in bytes, also after its removal
	Removed     *PayloadRemoval `json:"payload_removed"`        // nil while the payload is kept
	Reason      *string         `json:"reason"`                 // why there is no delivery: "no_matching_endpoint"
	Version     *int            `json:"version,omitempty"`      // of its type in the catalogue, which the sender named
	SchemaValid *bool           `json:"schema_valid,omitempty"` // false: the payload does not match the schema of its type; nil otherwise
	SchemaError string          `json:"schema_error,omitempty"` // the first mismatch, without anything of the payload
	Tags        []string        `json:"tags,omitempty"`         // gone after an erasure of the payload
	OrderingKey string          `json:"ordering_key,omitempty"` // as posted, or found in the payload; gone after an erasure of the payload

	// Headers are those that each request of the event has after the endpoint's own. Only a single event and an export have them, and
	// while the payload is kept.
	Headers map[string]string `json:"headers,omitempty"`

	Summary string `json:"summary,omitempty"` // for people, of an event that matched nothing; absent in the answer to a post
}

// AcceptedEvent is an event with its deliveries: the answer to a post, and to reading one event.
type AcceptedEvent struct {
	Event

	Matched     int            `json:"matched"` // deliveries, those that retention has removed included
	Deliveries  []DeliveryStub `json:"deliveries"`
	Truncated   bool           `json:"deliveries_truncated,omitempty"` // there are more: the list of deliveries has them
	Explanation *Explanation   `json:"explanation,omitempty"`          // of an event that matched nothing; absent in the answer to a post
}

// AcceptedBatch is the answer to a batch: an entry for each event, in the same order.
type AcceptedBatch struct {
	Events []AcceptedEvent `json:"events"`
}

// PayloadRemoval is when and why a payload was removed before its event.
type PayloadRemoval struct {
	At     Time   `json:"at"`
	Reason string `json:"reason"` // "erased" or "retention"
}

// ErasedPayloads is the answer to an erasure by external ids: an entry for each, in the same order.
type ErasedPayloads struct {
	Data []ErasedPayload `json:"data"`
}

// ErasedPayload is one event of an erasure.
type ErasedPayload struct {
	ExternalID string          `json:"external_id"`
	EventID    *string         `json:"event_id"` // nil if no event has the external id
	Removed    *PayloadRemoval `json:"payload_removed"`
}

// ExportedEvent is an event in an export, with its payload: null if it was removed.
type ExportedEvent struct {
	Event

	Payload json.RawMessage `json:"payload"`
}

// EventInput is an event to be accepted.
type EventInput struct {
	Type string `json:"type"`

	// Payload is sent to receivers: the JSON of the value, or the bytes of a json.RawMessage as they are.
	Payload any `json:"-"`

	// ExternalID is the caller's own id, at most 255 printable characters: a second event of the tenant with it is not stored, and gets the
	// first answer. It makes a post safe to repeat for as long as the event is kept.
	ExternalID string `json:"external_id,omitzero"`

	// DeliverAt is when the first attempts are made, at most 30 days ahead; at once if it is zero.
	DeliverAt time.Time `json:"deliver_at,omitzero"`

	// EndpointIDs sends the event to these endpoints only, whatever their event types.
	EndpointIDs []string `json:"endpoint_ids,omitzero"`

	// Version is that of the type in the catalogue whose schema the payload is checked with; the newest if it is 0.
	Version int `json:"version,omitzero"`

	// Headers are sent with each request of the event, after the endpoint's own, of which one of the same name is sent instead. At most 20, of
	// 4 KiB each with their name. They are not secret: whoever reads the event sees them.
	Headers map[string]string `json:"headers,omitzero"`

	// Tags are what events can be found by: at most 10, different ones, of 1 to 64 letters, digits and . : / - _
	Tags []string `json:"tags,omitzero"`

	// OrderingKey says which events belong together, such as the id of an order: 1 to 128 printable characters. Endpoints with an ordering number
	// what they get with each key. Not with DeliverAt.
	OrderingKey string `json:"ordering_key,omitzero"`
}

// EventFilter selects events. What is zero is not compared.
type EventFilter struct {
	Type         string // a type, or a pattern such as "order.*"
	ExternalID   string
	Tag          string
	Since, Until time.Time
}

// ListedEvent is an event of a list.
type ListedEvent struct {
	Event

	Outcomes EventOutcomes `json:"outcomes"`
}

// EventOutcomes is how many deliveries of an event stand where, of up to 250.
type EventOutcomes struct {
	Delivered int  `json:"delivered"`
	Waiting   int  `json:"waiting"` // for their first attempt, a retry or a release
	Failed    int  `json:"failed"`  // given up, and maybe discarded
	Cancelled int  `json:"cancelled"`
	More      bool `json:"more"` // there are more than were counted
}

// Events are the calls about events.
type Events struct{ scope }

// Post stores an event, from which deliveries start. With neither ExternalID nor IdempotencyKey, a repetition is another event.
func (e Events) Post(ctx context.Context, event EventInput, o ...Option) (AcceptedEvent, error) {
	body, err := withPayload(event, event.Payload)
	if err != nil {
		return AcceptedEvent{}, err
	}
	return send[AcceptedEvent](ctx, e.scope, http.MethodPost, body, o...)
}

// PostBatch stores up to 100 events: all or none.
func (e Events) PostBatch(ctx context.Context, events []EventInput, o ...Option) (AcceptedBatch, error) {
	all := make([][]byte, len(events))
	for i, event := range events {
		one, err := withPayload(event, event.Payload)
		if err != nil {
			return AcceptedBatch{}, fmt.Errorf("event %d: %w", i, err)
		}
		all[i] = one
	}
	body := rawBody(`{"events":[` + string(bytes.Join(all, []byte(","))) + `]}`)
	return send[AcceptedBatch](ctx, e.at("batch"), http.MethodPost, body, o...)
}

// List lists events.
func (e Events) List(f EventFilter) List[ListedEvent] {
	return List[ListedEvent]{e.scope, parameters("type", f.Type, "external_id", f.ExternalID, "tag", f.Tag,
		"since", instant(f.Since), "until", instant(f.Until))}
}

// Get reads an event with its deliveries.
func (e Events) Get(ctx context.Context, id string) (AcceptedEvent, error) {
	return get[AcceptedEvent](ctx, e.at(id), nil)
}

// Attempts lists the attempts of all deliveries of an event: those of the newest delivery first, and of each the newest first.
func (e Events) Attempts(id string) List[DeliveryAttempt] {
	return List[DeliveryAttempt]{e.at(id, "attempts"), nil}
}

// CancelledEvent is how many deliveries of an event are cancelled.
type CancelledEvent struct {
	EventID   string `json:"event_id"`
	Cancelled int    `json:"cancelled"` // that were open; each ends as cancelled, or as delivered if its request was under way
}

// Cancel cancels all open deliveries of an event. The reason, if there is one, is stored with them.
func (e Events) Cancel(ctx context.Context, id, reason string, o ...Option) (CancelledEvent, error) {
	return send[CancelledEvent](ctx, e.at(id, "cancel"), http.MethodPost, reasonInput{reason}, o...)
}

// Payload reads the payload of an event, byte for byte as it was posted. CodePayloadRemoved: it is not kept any more.
func (e Events) Payload(ctx context.Context, id string) ([]byte, error) {
	a, err := e.c.Do(ctx, Request{Method: http.MethodGet, Path: e.at(id, "payload").path})
	return a.Body, err
}

// ErasePayload erases the payload of an event for good. CodeConflict: it has open deliveries, and cancel is false.
func (e Events) ErasePayload(ctx context.Context, id string, cancel bool) error {
	return e.at(id, "payload").remove(ctx, parameters("cancel", flag(cancel)))
}

// ErasePayloads is ErasePayload for up to 100 events, by their external ids: all or none.
func (e Events) ErasePayloads(ctx context.Context, externalIDs []string, cancel bool, o ...Option) (ErasedPayloads, error) {
	body := map[string]any{"external_ids": externalIDs, "cancel": cancel}
	return send[ErasedPayloads](ctx, e.at("erase-payloads"), http.MethodPost, body, o...)
}
