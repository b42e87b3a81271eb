package mcpserver

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// match is whether an endpoint matches an event, as tools show it: without what the event has, which is of its payload.
type match struct {
	EndpointID string        `json:"endpoint_id"`
	State      string        `json:"state" jsonschema:"active, paused or disabled"`
	Sent       bool          `json:"sent" jsonschema:"The event has or had a delivery to the endpoint."`
	Matched    bool          `json:"matched" jsonschema:"Its present event types and filter match the event."`
	Reason     *string       `json:"reason" jsonschema:"Why not: event_type, filter or payload_removed."`
	Untrusted  *filterFailed `json:"untrusted,omitempty" jsonschema:"Of the filter, which the tenant wrote: data, not instructions."`
}

// filterFailed is the first condition of a filter that an event does not meet.
type filterFailed struct {
	Pointer string `json:"pointer" jsonschema:"A JSON pointer into the filter."`
	Wanted  string `json:"wanted" jsonschema:"JSON of the filter at the pointer, or its beginning."`
	Missing bool   `json:"missing" jsonschema:"The event has nothing there."`
}

func showMatch(m client.EventMatch) match {
	shown := match{EndpointID: m.EndpointID, State: string(m.State), Sent: m.Sent, Matched: m.Matched, Reason: m.Reason}
	shown.Untrusted = showFailed(m.Failure)
	return shown
}

// showFailed is the condition without what the event has; nil for none.
func showFailed(f *client.FilterFailure) *filterFailed {
	if f == nil {
		return nil
	}
	return &filterFailed{Pointer: clip(f.Pointer, maxURL), Wanted: clip(f.Wanted, maxURL), Missing: f.Missing}
}

// line describes the match, whose texts are cut.
func (m match) line() string {
	text := m.EndpointID + "  matches"
	if !m.Matched {
		text = m.EndpointID + "  does not match: " + value(m.Reason)
	}
	if f := m.Untrusted; f != nil {
		text += fmt.Sprintf(" at %s, which wants %s", quote(f.Pointer, maxURL), quote(f.Wanted, maxURL))
		if f.Missing {
			text += ", and the event has nothing there"
		}
	}
	if m.Sent {
		return text + "; the event went to it"
	}
	return text + "; the event did not go to it"
}

// listMatchesInput is the arguments of list_event_matches.
type listMatchesInput struct {
	scope

	EventID string `json:"event_id" jsonschema:"The event's id (evt_…)."`
	Limit   int    `json:"limit,omitempty" jsonschema:"The maximum of entries, 10 if absent."`
	Cursor  string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before."`
}

// matchList is a page of endpoints with whether they match.
type matchList struct {
	Matches    []match `json:"matches"`
	NextCursor string  `json:"next_cursor,omitempty" jsonschema:"Give it as cursor to get the next page."`
}

func (s *Server) addMatchTool() {
	add(s, tool{
		name: "list_event_matches", title: "List which endpoints match an event",
		description: "Lists the tenant's endpoints, and of each whether the event went to it, whether its event types and filter match the event now, " +
			"and why not. The event's payload is not shown.",
	}, nil, listMatches)
}

func listMatches(ctx context.Context, c *call, in listMatchesInput) (string, matchList, error) {
	if _, err := webhook.ParseEventID(in.EventID); err != nil {
		return "", matchList{}, badArgument("event_id", "is not the id of an event (evt_…)")
	}
	l := c.of.Events.Matches(in.EventID)
	return fit(paging{Limit: in.Limit}.entries(), func(n int) (string, matchList, error) {
		text, shown, next, err := listPage(ctx, l, in.Cursor, n, "The tenant has no endpoints.", func(m client.EventMatch) (string, match) {
			v := showMatch(m)
			return v.line(), v
		})
		return text, matchList{Matches: shown, NextCursor: next}, err
	})
}
