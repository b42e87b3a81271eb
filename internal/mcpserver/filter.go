package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// filterInput is the arguments of test_filter.
type filterInput struct {
	scope

	Filter  any          `json:"filter" jsonschema:"The filter, such as {\"payload\":{\"amount\":{\"$gte\":100}}}. The names at its top are type, external_id, ordering_key, tags and payload."` //nolint:lll // a struct tag cannot be wrapped
	EventID string       `json:"event_id,omitempty" jsonschema:"A stored event to try it with (evt_…)."`
	Event   *filterEvent `json:"event,omitempty" jsonschema:"An event to try it with, in place of event_id. It is not sent."`
}

// filterEvent is an event that is not sent.
type filterEvent struct {
	Type        string   `json:"type,omitempty" jsonschema:"The event type, test if absent."`
	Payload     any      `json:"payload"`
	ExternalID  string   `json:"external_id,omitempty"`
	OrderingKey string   `json:"ordering_key,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// filterResult is whether a filter matches an event, as tools show it: without what the event has, which is of its payload.
type filterResult struct {
	Matched   bool          `json:"matched"`
	Undecided bool          `json:"undecided,omitempty" jsonschema:"It matches because deciding it takes too much work."`
	Failed    *filterFailed `json:"failed,omitempty" jsonschema:"The first condition that the event does not meet."`
}

func (s *Server) addFilterTool() {
	add(s, tool{
		name: "test_filter", title: "Try a filter",
		description: "Says whether a filter matches an event, which is given or stored, and which condition is the first that the event does not meet. " +
			"It changes nothing, and does not show the payload of a stored event.",
	}, nil, testFilter)
}

func testFilter(ctx context.Context, c *call, in filterInput) (string, filterResult, error) {
	if (in.EventID == "") == (in.Event == nil) {
		return "", filterResult{}, badArgument("event_id", "is required, or event in its place")
	}
	text, err := json.Marshal(in.Filter)
	if err != nil {
		return "", filterResult{}, badArgument("filter", "is not JSON")
	}
	asked := client.FilterTest{Filter: text, EventID: in.EventID}
	if in.Event == nil {
		if _, err := webhook.ParseEventID(in.EventID); err != nil {
			return "", filterResult{}, badArgument("event_id", "is not the id of an event (evt_…)")
		}
	} else {
		payload, err := json.Marshal(in.Event.Payload)
		if err != nil {
			return "", filterResult{}, badArgument("event", "is not JSON")
		}
		asked.Event = &client.FilterTestEvent{
			Type: cmp.Or(in.Event.Type, "test"), Payload: payload, ExternalID: in.Event.ExternalID, OrderingKey: in.Event.OrderingKey, Tags: in.Event.Tags,
		}
	}
	read, err := c.of.TestFilter(ctx, asked)
	if err != nil {
		return "", filterResult{}, err
	}
	out := filterResult{Matched: read.Matched, Undecided: read.Undecided, Failed: showFailed(read.Failure)}
	return out.line() + "\n", out, nil
}

func (r filterResult) line() string {
	switch {
	case r.Undecided:
		return "It matches, because deciding it takes too much work."
	case r.Matched:
		return "It matches."
	case r.Failed == nil:
		return "It does not match."
	}
	text := fmt.Sprintf("It does not match: the condition at %s wants %s", quote(r.Failed.Pointer, maxURL), quote(r.Failed.Wanted, maxURL))
	if r.Failed.Missing {
		text += ", and the event has nothing there"
	}
	return text + "."
}
