package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// FiltersCommand tries filters.
type FiltersCommand struct {
	Test FiltersTestCommand `cmd:"" help:"Say whether a filter matches an event, and why not."`
}

// FiltersTestCommand tries a filter.
type FiltersTestCommand struct {
	remote `embed:""`

	Filter  source          `help:"The filter: a JSON object, @file, or - for standard input." placeholder:"JSON" required:""`
	EventID webhook.EventID `help:"A stored event to try it with." name:"event-id" placeholder:"ID"`
	Payload source          `help:"The payload of an event to try it with: JSON, @file, or - for standard input." placeholder:"JSON"`
	Type    string          `help:"The type of that event." placeholder:"TYPE" default:"test"`
	Tag     []string        `help:"A tag of that event; may be repeated." placeholder:"TAG" sep:"none"`
}

// Run tries it.
func (c *FiltersTestCommand) Run(ctx context.Context, p Process) error {
	if c.EventID.IsZero() == (c.Payload == "") {
		return usage("filters test: name an event with --event-id, or give one with --payload")
	}
	text, err := c.Filter.read(p, "--filter")
	if err != nil {
		return err
	}
	body := map[string]any{"filter": json.RawMessage(text)}
	if c.EventID.IsZero() {
		payload, err := c.Payload.read(p, "--payload")
		if err != nil {
			return err
		}
		body["event"] = map[string]any{"type": c.Type, "payload": json.RawMessage(payload), "tags": c.Tag}
	} else {
		body["event_id"] = c.EventID.String()
	}
	return c.once(ctx, p, request{method: http.MethodPost, path: []string{"filters", "test"}, body: marshal(body)})
}

// EventsMatchesCommand lists which endpoints match an event.
type EventsMatchesCommand struct {
	remote `embed:""`
	paging `embed:""`

	ID webhook.EventID `arg:"" help:"The event's id, evt_..."`
}

// Run lists them.
func (c *EventsMatchesCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "endpoints", request{path: []string{"events", c.ID.String(), "matches"}}, c.paging, []column[client.EventMatch]{
		{"ENDPOINT", func(m client.EventMatch) string { return m.EndpointID }},
		{"MATCHES", func(m client.EventMatch) string { return strconv.FormatBool(m.Matched) }},
		{"SENT", func(m client.EventMatch) string { return strconv.FormatBool(m.Sent) }},
		{"STATE", func(m client.EventMatch) string { return string(m.State) }},
		{"WHY NOT", func(m client.EventMatch) string {
			if m.Failure != nil {
				return m.Failure.Summary
			}
			return text(m.Reason)
		}},
	})
}
