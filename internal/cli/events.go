package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// EventsCommand shows events.
type EventsCommand struct {
	List    EventsListCommand    `cmd:"" help:"List events."`
	Get     EventsGetCommand     `cmd:"" help:"Show an event and the state of its deliveries."`
	Payload EventsPayloadCommand `cmd:"" help:"Print an event's payload, byte for byte."`

	Attempts EventsAttemptsCommand `cmd:"" help:"List the attempts of all deliveries of an event, those of the newest delivery first."`
	Matches  EventsMatchesCommand  `cmd:"" help:"List the endpoints, and whether each matches an event now."`
	Cancel   EventsCancelCommand   `cmd:"" help:"Cancel all open deliveries of an event."`

	ErasePayload EventsErasePayloadCommand `cmd:"" help:"Erase the payload of an event, or of the events with certain external ids, permanently."`
}

// EventsListCommand lists events.
type EventsListCommand struct {
	remote `embed:""`
	paging `embed:""`

	Type       string  `help:"Only events of this type, or of types that match a pattern such as order.*." placeholder:"TYPE"`
	ExternalID string  `help:"Only the event with this external id." placeholder:"ID"`
	Tag        string  `help:"Only events with this tag." placeholder:"TAG"`
	Since      instant `help:"Only events created since: a time, or a duration ago such as 1h." placeholder:"WHEN"`
	Until      instant `help:"Only events created before." placeholder:"WHEN"`
}

// Run lists them.
func (c *EventsListCommand) Run(ctx context.Context, p Process) error {
	now := time.Now()
	filters := queryOf(map[string]string{"type": c.Type, "external_id": c.ExternalID, "tag": c.Tag, "since": c.Since.ago(now), "until": c.Until.ago(now)})
	return listOf(ctx, p, c, "events", request{path: []string{"events"}, query: filters}, c.paging, []column[client.Event]{
		{"ID", func(e client.Event) string { return e.ID }},
		{"TYPE", func(e client.Event) string { return e.Type }},
		{"EXTERNAL ID", func(e client.Event) string { return text(e.ExternalID) }},
		{"CREATED", func(e client.Event) string { return optionalTime(e.CreatedAt) }},
		{"ENDPOINTS", func(e client.Event) string { return strconv.Itoa(len(e.EndpointIDs)) }},
		{"BYTES", func(e client.Event) string { return strconv.Itoa(e.PayloadSize) }},
		{"TAGS", func(e client.Event) string { return printable.OrDash(strings.Join(e.Tags, " ")) }},
	})
}

// EventsGetCommand shows an event.
type EventsGetCommand struct {
	remote `embed:""`

	ID webhook.EventID `arg:"" help:"The event's id, evt_..."`
}

// Run shows it.
func (c *EventsGetCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, request{method: http.MethodGet, path: []string{"events", c.ID.String()}})
}

// EventsAttemptsCommand lists attempts.
type EventsAttemptsCommand struct {
	remote `embed:""`
	paging `embed:""`

	ID webhook.EventID `arg:"" help:"The event's id, evt_..."`
}

// Run lists them.
func (c *EventsAttemptsCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "attempts", request{path: []string{"events", c.ID.String(), "attempts"}}, c.paging, deliveryAttemptColumns())
}

// EventsCancelCommand cancels the deliveries of an event.
type EventsCancelCommand struct {
	remote   `embed:""`
	reasoned `embed:""`

	ID webhook.EventID `arg:"" help:"The event's id, evt_..."`
}

// Run cancels them.
func (c *EventsCancelCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, request{
		method: http.MethodPost, path: []string{"events", c.ID.String(), "cancel"}, body: object(map[string]any{"reason": c.Reason}),
	})
}

// EventsPayloadCommand prints a payload.
type EventsPayloadCommand struct {
	remote `embed:""`

	ID webhook.EventID `arg:"" help:"The event's id, evt_..."`
}

// Run prints the payload. It adds a line end only on a terminal, so that a file or a pipe
// gets exactly the payload.
func (c *EventsPayloadCommand) Run(ctx context.Context, p Process) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	a, err := s.do(ctx, request{method: http.MethodGet, path: []string{"events", c.ID.String(), "payload"}})
	if err != nil {
		return err
	}
	if file, ok := p.Stdout.(*os.File); ok {
		if about, err := file.Stat(); err == nil && about.Mode()&os.ModeCharDevice != 0 {
			a.Body = append(a.Body, '\n')
		}
	}
	if _, err := p.Stdout.Write(a.Body); err != nil {
		return fmt.Errorf("write the payload: %w", err)
	}
	return nil
}

// EventsErasePayloadCommand erases payloads.
type EventsErasePayloadCommand struct {
	remote `embed:""`

	ID         webhook.EventID `arg:"" help:"The event's id, evt_..." optional:""`
	ExternalID []string        `help:"Erase the payload of the event with this external id. Repeat it for several." placeholder:"ID" sep:"none"`
	Cancel     bool            `help:"Cancel open deliveries. Without it they are an error."`
}

// Run erases them.
func (c *EventsErasePayloadCommand) Run(ctx context.Context, p Process) error {
	if c.ID.IsZero() == (len(c.ExternalID) == 0) {
		return usage("events erase-payload: name an event, or external ids with --external-id")
	}
	if !c.ID.IsZero() {
		return c.once(ctx, p, request{
			method: http.MethodDelete, path: []string{"events", c.ID.String(), "payload"}, query: queryOf(map[string]string{"cancel": ifSet(c.Cancel)}),
		})
	}
	body := marshal(map[string]any{"external_ids": c.ExternalID, "cancel": c.Cancel})
	return c.once(ctx, p, request{method: http.MethodPost, path: []string{"events", "erase-payloads"}, body: body})
}

// once opens a session, makes one request and prints the response.
func (r *remote) once(ctx context.Context, p Process, req request) error {
	return with(p, r, func(s *session) error { return s.record(ctx, req) })
}

// queryOf returns a query with the filters that are not empty.
func queryOf(filters map[string]string) url.Values {
	query := url.Values{}
	for name, value := range filters {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// ifSet is "true" for a flag that is set, "" otherwise.
func ifSet(flag bool) string {
	if flag {
		return "true"
	}
	return ""
}

// text returns an optional text, "-" for none.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return printable.OrDash(*s)
}
