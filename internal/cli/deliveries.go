package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// DeliveriesCommand lists and controls deliveries.
type DeliveriesCommand struct {
	List       DeliveriesListCommand       `cmd:"" help:"List deliveries."`
	Get        DeliveriesGetCommand        `cmd:"" help:"Show a delivery."`
	Attempts   DeliveriesAttemptsCommand   `cmd:"" help:"List a delivery's attempts."`
	Cancel     DeliveriesCancelCommand     `cmd:"" help:"Cancel open deliveries."`
	Retry      DeliveriesRetryCommand      `cmd:"" help:"Make the next attempt now."`
	Reschedule DeliveriesRescheduleCommand `cmd:"" help:"Make the next attempt at another time."`
	Replay     DeliveriesReplayCommand     `cmd:"" help:"Replay deliveries that have ended."`
}

// last is the outcome of the last attempt.
func last(d client.Delivery) string {
	if d.LastOutcome == nil {
		return "-"
	}
	return d.LastOutcome.Reason
}

// partsOf lists the parts above 0 of an attempt's time: "names 3 ms, wait 20 ms". It is "-" when there is none.
func partsOf(t *client.AttemptTimes) string {
	if t == nil {
		return "-"
	}
	var parts []string
	for _, part := range [...]struct {
		name string
		ms   int64
	}{{"names", t.NamesMS}, {"connect", t.ConnectMS}, {"tls", t.TLSMS}, {"wait", t.WaitMS}} {
		if part.ms > 0 {
			parts = append(parts, part.name+" "+strconv.FormatInt(part.ms, 10)+" ms")
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// number formats a number that may be unknown.
func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func latency(a client.Attempt) string { return strconv.FormatInt(a.LatencyMS, 10) + " ms" }

// nextIn is the delay before the next attempt and its source.
func nextIn(a client.Attempt) string {
	if a.DelayMS == nil {
		return "-"
	}
	waits := (time.Duration(*a.DelayMS) * time.Millisecond).String()
	if a.DelaySource != nil {
		waits += " (" + *a.DelaySource + ")"
	}
	return waits
}

// waitedFor is why the attempt came later than its retry delay.
func waitedFor(a client.Attempt) string {
	waited := text(a.WaitedFor)
	if a.LateMS == nil {
		return waited
	}
	late := (time.Duration(*a.LateMS) * time.Millisecond).String() + " late"
	if a.WaitedFor == nil {
		return late
	}
	return waited + ", " + late
}

// summary describes the attempt in one line.
func summary(a client.Attempt) string {
	line := explain.Label(a.Reason)
	switch {
	case a.Status == nil:
		line += ", ended after " + latency(a)
	case a.Decision == client.DecisionDelivered:
		line = number(a.Status) + " " + line + ", " + latency(a)
	default:
		line += ", " + latency(a)
	}
	if a.DelayMS != nil {
		line += ", next in " + nextIn(a)
	}
	return line
}

// deliveryFilters are the filters of a list of deliveries.
type deliveryFilters struct {
	Endpoint  webhook.EndpointID `help:"Only deliveries to this endpoint." placeholder:"ID"`
	EventType string             `help:"Only deliveries of events of this type, or of types that match a pattern such as order.*." placeholder:"TYPE"`
	Status    int                `help:"Only deliveries whose last answer had this status." placeholder:"CODE"`

	Since      instant `help:"Only deliveries created since: a time, or a duration ago such as 1h or 7d." placeholder:"WHEN"`
	Until      instant `help:"Only deliveries created before." placeholder:"WHEN"`
	EndedSince instant `help:"Only deliveries that ended since: delivered, given up, cancelled or discarded." placeholder:"WHEN"`
	EndedUntil instant `help:"Only deliveries that ended before." placeholder:"WHEN"`
}

// fields returns the filters under their names in the API.
func (f *deliveryFilters) fields(now time.Time) map[string]string {
	fields := map[string]string{
		"event_type": f.EventType, "since": f.Since.ago(now), "until": f.Until.ago(now),
		"ended_since": f.EndedSince.ago(now), "ended_until": f.EndedUntil.ago(now),
	}
	if f.Status != 0 {
		fields["status"] = strconv.Itoa(f.Status)
	}
	if !f.Endpoint.IsZero() {
		fields["endpoint_id"] = f.Endpoint.String()
	}
	return fields
}

// DeliveriesListCommand lists deliveries.
type DeliveriesListCommand struct {
	remote          `embed:""`
	paging          `embed:""`
	deliveryFilters `embed:""`

	State []string        `enum:"pending,retrying,held,delivered,dead_lettered,cancelled,discarded" help:"Only deliveries in this state, or in one of several: pending, retrying, held, delivered, dead_lettered, cancelled, discarded." placeholder:"STATE"` //nolint:lll // a struct tag cannot be wrapped
	Event webhook.EventID `help:"Only deliveries of this event." placeholder:"ID"`

	ExternalID string `help:"Only deliveries of the event with this external id." placeholder:"ID"`
}

// Run lists them.
func (c *DeliveriesListCommand) Run(ctx context.Context, p Process) error {
	query := queryOf(c.fields(time.Now()))
	if len(c.State) > 0 {
		query["state"] = c.State
	}
	if !c.Event.IsZero() {
		query.Set("event_id", c.Event.String())
	}
	if c.ExternalID != "" {
		query.Set("external_id", c.ExternalID)
	}
	return listOf(ctx, p, c, "deliveries", request{path: []string{"deliveries"}, query: query}, c.paging, []column[client.Delivery]{
		{"ID", func(d client.Delivery) string { return d.ID }},
		{"STATE", func(d client.Delivery) string { return string(d.State) }},
		{"EVENT TYPE", func(d client.Delivery) string { return d.EventType }},
		{"ENDPOINT", func(d client.Delivery) string { return d.EndpointID }},
		{"ATTEMPTS", func(d client.Delivery) string { return strconv.Itoa(d.Attempts) }},
		{"CREATED", func(d client.Delivery) string { return optionalTime(d.CreatedAt) }},
		{"SUMMARY", func(d client.Delivery) string { return printable.OrDash(d.Summary) }},
	})
}

// DeliveriesGetCommand shows a delivery.
type DeliveriesGetCommand struct {
	remote `embed:""`

	ID webhook.DeliveryID `arg:"" help:"The delivery's id, dlv_..."`
}

// Run shows it.
func (c *DeliveriesGetCommand) Run(ctx context.Context, p Process) error {
	r := request{method: http.MethodGet, path: []string{"deliveries", c.ID.String()}}
	return readable(ctx, p, c, r, func(s *session, body []byte, about explained) error {
		fields, err := printable.Fields(body)
		if err != nil {
			return errNotEverpost
		}
		var others [][2]string
		for _, f := range fields {
			if f.Name != "summary" && f.Name != "explanation" {
				others = append(others, [2]string{f.Name, printable.JSON(f.Value)})
			}
		}
		return s.explain(about, others)
	})
}

// DeliveriesAttemptsCommand lists attempts.
type DeliveriesAttemptsCommand struct {
	remote `embed:""`
	paging `embed:""`

	ID webhook.DeliveryID `arg:"" help:"The delivery's id, dlv_..."`
}

// Run lists them.
func (c *DeliveriesAttemptsCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "attempts", request{path: []string{"deliveries", c.ID.String(), "attempts"}}, c.paging, attemptColumns())
}

// attemptColumns describe an attempt.
func attemptColumns() []column[client.Attempt] {
	return []column[client.Attempt]{
		{"ATTEMPT", func(a client.Attempt) string { return strconv.Itoa(a.Number) }},
		{"RUN", func(a client.Attempt) string { return number(a.Run) }},
		{"STARTED", func(a client.Attempt) string { return optionalTime(a.StartedAt) }},
		{"STATUS", func(a client.Attempt) string { return number(a.Status) }},
		{"REASON", func(a client.Attempt) string { return a.Reason }},
		{"TOOK", latency},
		{"OF WHICH", func(a client.Attempt) string { return partsOf(a.Times) }},
		{"WAITED FOR", waitedFor},
		{"NEXT IN", nextIn},
		{"ERROR", func(a client.Attempt) string { return text(a.Error) }},
	}
}

// deliveryAttemptColumns describe an attempt among those of several deliveries.
func deliveryAttemptColumns() []column[client.DeliveryAttempt] {
	all := []column[client.DeliveryAttempt]{{"DELIVERY", func(a client.DeliveryAttempt) string { return a.DeliveryID }}}
	for _, of := range attemptColumns() {
		all = append(all, column[client.DeliveryAttempt]{of.title, func(a client.DeliveryAttempt) string { return of.cell(a.Attempt) }})
	}
	return all
}

// many are the ids of the deliveries that a command applies to.
type many struct {
	IDs []webhook.DeliveryID `arg:"" help:"Ids of deliveries, dlv_..." name:"id"`
}

// reasoned is the flag for the reason of a command.
type reasoned struct {
	Reason string `help:"A reason, stored with the delivery and in the audit log." placeholder:"TEXT"`
}

// DeliveriesCancelCommand cancels deliveries.
type DeliveriesCancelCommand struct {
	remote   `embed:""`
	many     `embed:""`
	reasoned `embed:""`
}

// Run cancels them.
func (c *DeliveriesCancelCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "cancel", object(map[string]any{"reason": c.Reason}))
}

// DeliveriesRetryCommand makes the next attempt now.
type DeliveriesRetryCommand struct {
	remote `embed:""`
	many   `embed:""`
}

// Run requests the attempts.
func (c *DeliveriesRetryCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "retry", nil)
}

// DeliveriesRescheduleCommand moves the next attempt.
type DeliveriesRescheduleCommand struct {
	remote `embed:""`
	many   `embed:""`

	At instant `help:"When: a time, or a duration from now such as 2h." placeholder:"WHEN" required:""`
}

// Run moves the attempts.
func (c *DeliveriesRescheduleCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "reschedule", object(map[string]any{"at": c.At.fromNow(time.Now())}))
}

// DeliveriesReplayCommand replays deliveries that have ended.
type DeliveriesReplayCommand struct {
	remote   `embed:""`
	many     `embed:""`
	reasoned `embed:""`
}

// Run replays them.
func (c *DeliveriesReplayCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "replay", object(map[string]any{"reason": c.Reason}))
}

// command sends a command for each delivery. When one delivery rejects it, the others still
// get it; the error names all that rejected it.
func (r *remote) command(ctx context.Context, p Process, list string, ids []webhook.DeliveryID, verb string, body []byte) error {
	s, err := r.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	var not []error
	for _, id := range ids {
		a, err := s.do(ctx, request{method: http.MethodPost, path: []string{list, id.String(), verb}, body: body})
		if refused, ok := errors.AsType[*apiError](err); ok && (refused.status == http.StatusNotFound || refused.status == http.StatusConflict) {
			not = append(not, fmt.Errorf("%s: %w", id, err))
			continue
		}
		if err != nil { // the next one would fail in the same way
			return errors.Join(append(not, fmt.Errorf("%s: %w", id, err))...)
		}
		if err := s.printAccepted(a, verb); err != nil {
			return err
		}
	}
	return errors.Join(not...)
}

// printAccepted prints that a command is stored; the workflow executes it later.
func (s *session) printAccepted(a client.Answer, verb string) error {
	if s.json {
		return s.show(a)
	}
	d, err := decode[client.Delivery](a)
	if err != nil {
		return err
	}
	return s.line(fmt.Sprintf("%s  %s accepted, %s", printable.Text(d.ID), verb, printable.Text(string(d.State))))
}
