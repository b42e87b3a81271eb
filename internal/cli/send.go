package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// SendCommand posts an event.
type SendCommand struct {
	remote `embed:""`

	Type    string `arg:"" help:"The event's type, such as order.paid."`
	Payload source `arg:"" default:"{}" help:"Its payload: JSON, @file, or - for standard input. The receiver gets the same bytes." optional:""`

	ExternalID     string               `help:"Your own id, unique within the tenant: an event that is sent twice is stored once." placeholder:"ID"`
	IdempotencyKey string               `help:"Like --external-id, but not part of the event, and only kept for a day." placeholder:"KEY"`
	DeliverAt      instant              `help:"When to deliver: a time, or a duration from now such as 10m." placeholder:"WHEN"`
	Endpoint       []webhook.EndpointID `help:"Send to this endpoint only, whatever types it subscribes to; may be repeated." placeholder:"ID"`
	Header         []string             `help:"A header of its requests, as 'Name: value'; may be repeated. An endpoint's own of that name wins." placeholder:"HEADER" sep:"none"` //nolint:lll // a struct tag cannot be wrapped
	Tag            []string             `help:"A tag to find the event by: letters, digits and . : / - _; may be repeated." placeholder:"TAG" sep:"none"`
	OrderingKey    string               `help:"Which events it belongs to, such as the id of an order." placeholder:"KEY"`
	Wait           bool                 `help:"Wait until every delivery has ended and print each attempt; exit with 1 if one is not delivered."`
	Timeout        time.Duration        `default:"2m" help:"How long to wait." placeholder:"DURATION"`
}

// Run posts the event.
func (c *SendCommand) Run(ctx context.Context, p Process) error {
	if c.Timeout <= 0 {
		return usage("--timeout: must be more than 0s")
	}
	payload, err := c.Payload.read(p, "payload")
	if err != nil {
		return err
	}
	body, err := c.body(payload)
	if err != nil {
		return err
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	r := request{method: http.MethodPost, path: []string{"events"}, body: body}
	if c.IdempotencyKey != "" {
		r.header = map[string]string{"Idempotency-Key": c.IdempotencyKey}
	}
	posted, err := s.do(ctx, r)
	if err != nil {
		return c.withConsequence(err)
	}
	event, err := decode[client.AcceptedEvent](posted)
	if err != nil {
		return err
	}
	switch {
	case c.Wait:
		return s.await(ctx, event, posted, c.Timeout)
	case s.json:
		return s.show(posted)
	}
	return s.printStored(event, posted)
}

// body returns the request's body.
func (c *SendCommand) body(payload []byte) ([]byte, error) {
	fields := map[string]any{"type": c.Type, "external_id": c.ExternalID, "ordering_key": c.OrderingKey, "deliver_at": c.DeliverAt.fromNow(time.Now())}
	if len(c.Endpoint) > 0 {
		fields["endpoint_ids"] = c.Endpoint
	}
	if len(c.Header) > 0 {
		headers, err := headersOf(c.Header)
		if err != nil {
			return nil, err
		}
		fields["headers"] = headers
	}
	if len(c.Tag) > 0 {
		fields["tags"] = c.Tag
	}
	return withPayload(object(fields), payload), nil
}

// withConsequence adds to an error what it means for the event.
func (c *SendCommand) withConsequence(err error) error {
	silent, ok := errors.AsType[*client.NoResponseError](err)
	switch {
	case !ok || silent.NotSent:
		return err
	case c.ExternalID != "" || c.IdempotencyKey != "":
		return fmt.Errorf("%w; the event may be stored: send exactly the same again, it is stored once", err)
	}
	return fmt.Errorf("%w; the event may be stored: sent again it may be delivered twice (--external-id and --idempotency-key prevent that)", err)
}

// printStored prints what was stored.
func (s *session) printStored(event client.AcceptedEvent, posted client.Answer) error {
	if posted.Header.Get("Idempotent-Replayed") != "" {
		_, _ = fmt.Fprintln(s.Stderr, "this was sent before: below is the first answer, and nothing new is sent")
	}
	if len(event.Deliveries) == 0 {
		reason := "no delivery"
		if event.Reason != nil {
			reason += ": " + *event.Reason
		}
		return s.line(fmt.Sprintf("%s  stored  %s", printable.Text(event.ID), printable.Text(reason)))
	}
	if err := s.line(printable.Text(event.ID) + "  stored"); err != nil {
		return err
	}
	for _, d := range event.Deliveries {
		if err := s.line(fmt.Sprintf("%s  to %s  %s", printable.Text(d.ID), printable.Text(d.EndpointID), printable.Text(string(d.State)))); err != nil {
			return err
		}
	}
	return nil
}
