package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// FilterTest is a filter, and an event to try it with: Event, or the id of a stored one.
type FilterTest struct {
	Filter  json.RawMessage  `json:"filter"`
	Event   *FilterTestEvent `json:"event,omitzero"`
	EventID string           `json:"event_id,omitzero"`

	// EventTypes are those of the endpoint that is to have the filter: with whose schemas it is compared. The event's type, if empty.
	EventTypes []string `json:"event_types,omitempty"`
}

// FilterTestEvent is an event that is not sent.
type FilterTestEvent struct {
	Type        string          `json:"type"`
	Payload     json.RawMessage `json:"payload"`
	ExternalID  string          `json:"external_id,omitzero"`
	OrderingKey string          `json:"ordering_key,omitzero"`
	Tags        []string        `json:"tags,omitzero"`
}

// FilterResult is whether a filter matches an event.
type FilterResult struct {
	Matched   bool           `json:"matched"`
	Undecided bool           `json:"undecided"` // it matches, because deciding it takes too much work
	Failure   *FilterFailure `json:"failure"`   // nil if it matches
	Warnings  []FieldError   `json:"warnings"`  // fields that the schemas of the event types lack
}

// FilterFailure is the first condition of a filter that an event does not meet.
type FilterFailure struct {
	Summary  string `json:"summary"`  // for people
	Pointer  string `json:"pointer"`  // a JSON pointer into the filter
	Operator string `json:"operator"` // as it is written; "" for a plain value
	Wanted   string `json:"wanted"`   // JSON of the filter, or its beginning
	Path     string `json:"path"`     // a JSON pointer into the event; "" for the event
	Found    string `json:"found"`    // JSON of the event, or its beginning; "" if it is missing
	Missing  bool   `json:"missing"`  // there is nothing at Path
	Elements int    `json:"elements"` // of an array of which none matches; 0 without one
}

// EventMatch is whether an endpoint matches an event, by its present event types and filter.
type EventMatch struct {
	EndpointID string         `json:"endpoint_id"`
	URL        string         `json:"url"`
	State      EndpointState  `json:"state"`
	Sent       bool           `json:"sent"` // the event has a delivery to the endpoint
	Matched    bool           `json:"matched"`
	Reason     *string        `json:"reason"`  // why not: "event_type", "filter" or "payload_removed"
	Failure    *FilterFailure `json:"failure"` // of the filter
}

// Matches lists the tenant's endpoints, and whether each matches an event now.
func (e Events) Matches(id string) List[EventMatch] {
	return List[EventMatch]{e.at(id, "matches"), nil}
}

// TestFilter says whether a filter matches an event, and why not.
func (t TenantCalls) TestFilter(ctx context.Context, in FilterTest) (FilterResult, error) {
	return send[FilterResult](ctx, t.at("filters", "test"), http.MethodPost, in)
}
