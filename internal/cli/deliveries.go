package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// DeliveriesCommand shows deliveries and says what is to become of them.
type DeliveriesCommand struct {
	List       DeliveriesListCommand       `cmd:"" help:"List deliveries."`
	Get        DeliveriesGetCommand        `cmd:"" help:"Show a delivery."`
	Attempts   DeliveriesAttemptsCommand   `cmd:"" help:"List a delivery's attempts."`
	Cancel     DeliveriesCancelCommand     `cmd:"" help:"End deliveries that are under way."`
	Retry      DeliveriesRetryCommand      `cmd:"" help:"Make the next attempt now."`
	Reschedule DeliveriesRescheduleCommand `cmd:"" help:"Make the next attempt at another time."`
	Replay     DeliveriesReplayCommand     `cmd:"" help:"Send deliveries that have ended again."`
}

// delivery is a delivery as the API shows it, as far as a table needs it.
type delivery struct {
	ID          string  `json:"id"`
	EndpointID  string  `json:"endpoint_id"`
	EventType   string  `json:"event_type"`
	State       string  `json:"state"`
	Reason      *string `json:"reason"`
	Attempts    int     `json:"attempts"`
	LastOutcome *struct {
		Reason string `json:"reason"`
	} `json:"last_outcome"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	CreatedAt     *time.Time `json:"created_at"`
	CompletedAt   *time.Time `json:"completed_at"`
}

// resting reports whether nothing happens any more by itself. A state that this
// version does not know is taken for an open one.
func (d delivery) resting() bool {
	state, known := webhook.ParseState(d.State)
	return known && !state.Open()
}

func (d delivery) reason() string {
	if d.Reason == nil {
		return ""
	}
	return *d.Reason
}

// last is what the last attempt came to.
func (d delivery) last() string {
	if d.LastOutcome == nil {
		return "-"
	}
	return d.LastOutcome.Reason
}

// attempt is an attempt as the API shows it, as far as a table needs it.
type attempt struct {
	Number      int        `json:"number"`
	Run         int        `json:"run"`
	StartedAt   *time.Time `json:"started_at"`
	LatencyMS   int64      `json:"latency_ms"`
	Status      *int       `json:"status"`
	Reason      string     `json:"reason"`
	Error       *string    `json:"error"`
	DelayMS     *int64     `json:"delay_ms"`
	DelaySource *string    `json:"delay_source"`
}

func (a attempt) status() string {
	if a.Status == nil {
		return "-"
	}
	return strconv.Itoa(*a.Status)
}

func (a attempt) latency() string { return strconv.FormatInt(a.LatencyMS, 10) + " ms" }

// wait is how long the next attempt waits, and because of what.
func (a attempt) wait() string {
	if a.DelayMS == nil {
		return "-"
	}
	waits := (time.Duration(*a.DelayMS) * time.Millisecond).String()
	if a.DelaySource != nil {
		waits += " (" + *a.DelaySource + ")"
	}
	return waits
}

// inWords is the attempt in one line.
func (a attempt) inWords() string {
	line := a.Reason
	if a.Status != nil {
		line = a.status() + " " + a.Reason
	}
	line += ", " + a.latency()
	if a.DelayMS != nil {
		line += ", next in " + a.wait()
	}
	return line
}

// deliveryFilters choose deliveries in a list.
type deliveryFilters struct {
	Endpoint  webhook.EndpointID `help:"Only deliveries to this endpoint." placeholder:"ID"`
	EventType string             `help:"Only deliveries of events of this type, or of those that a pattern such as order.* fits." placeholder:"TYPE"`
	Since     instant            `help:"Only what was created since: a time, or a duration ago such as 1h." placeholder:"WHEN"`
	Until     instant            `help:"Only what was created before." placeholder:"WHEN"`
}

// fields are the filters under the names of the API.
func (f *deliveryFilters) fields(now time.Time) map[string]string {
	fields := map[string]string{"event_type": f.EventType, "since": f.Since.ago(now), "until": f.Until.ago(now)}
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
}

// Run lists them.
func (c *DeliveriesListCommand) Run(ctx context.Context, p Process) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	query := given(c.fields(time.Now()))
	if len(c.State) > 0 {
		query["state"] = c.State
	}
	if !c.Event.IsZero() {
		query.Set("event_id", c.Event.String())
	}
	return listOf(ctx, s, "deliveries", request{path: []string{"deliveries"}, query: query}, c.paging, []column[delivery]{
		{"ID", func(d delivery) string { return d.ID }},
		{"STATE", func(d delivery) string { return d.State }},
		{"EVENT TYPE", func(d delivery) string { return d.EventType }},
		{"ENDPOINT", func(d delivery) string { return d.EndpointID }},
		{"ATTEMPTS", func(d delivery) string { return strconv.Itoa(d.Attempts) }},
		{"LAST", delivery.last},
		{"NEXT ATTEMPT", func(d delivery) string { return moments(d.NextAttemptAt) }},
		{"CREATED", func(d delivery) string { return moments(d.CreatedAt) }},
	})
}

// DeliveriesGetCommand shows a delivery.
type DeliveriesGetCommand struct {
	remote `embed:""`

	ID webhook.DeliveryID `arg:"" help:"The delivery's id, dlv_..."`
}

// Run shows it.
func (c *DeliveriesGetCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, request{method: http.MethodGet, path: []string{"deliveries", c.ID.String()}})
}

// DeliveriesAttemptsCommand lists attempts.
type DeliveriesAttemptsCommand struct {
	remote `embed:""`
	paging `embed:""`

	ID webhook.DeliveryID `arg:"" help:"The delivery's id, dlv_..."`
}

// Run lists them.
func (c *DeliveriesAttemptsCommand) Run(ctx context.Context, p Process) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	return listOf(ctx, s, "attempts", request{path: []string{"deliveries", c.ID.String(), "attempts"}}, c.paging, []column[attempt]{
		{"ATTEMPT", func(a attempt) string { return strconv.Itoa(a.Number) }},
		{"RUN", func(a attempt) string { return strconv.Itoa(a.Run) }},
		{"STARTED", func(a attempt) string { return moments(a.StartedAt) }},
		{"STATUS", attempt.status},
		{"REASON", func(a attempt) string { return a.Reason }},
		{"TOOK", attempt.latency},
		{"NEXT IN", attempt.wait},
		{"ERROR", func(a attempt) string { return text(a.Error) }},
	})
}

// many are the deliveries that a command is for.
type many struct {
	IDs []webhook.DeliveryID `arg:"" help:"Ids of deliveries, dlv_..." name:"id"`
}

// reasoned is a command that a reason may be given for.
type reasoned struct {
	Reason string `help:"Why; kept with the delivery and in the audit log." placeholder:"TEXT"`
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

// DeliveriesRetryCommand tries deliveries now.
type DeliveriesRetryCommand struct {
	remote `embed:""`
	many   `embed:""`
}

// Run tries them.
func (c *DeliveriesRetryCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "retry", nil)
}

// DeliveriesRescheduleCommand moves the next attempt.
type DeliveriesRescheduleCommand struct {
	remote `embed:""`
	many   `embed:""`

	At instant `help:"When: a time, or a duration from now such as 2h." placeholder:"WHEN" required:""`
}

// Run moves it.
func (c *DeliveriesRescheduleCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "reschedule", object(map[string]any{"at": c.At.ahead(time.Now())}))
}

// DeliveriesReplayCommand sends deliveries again.
type DeliveriesReplayCommand struct {
	remote   `embed:""`
	many     `embed:""`
	reasoned `embed:""`
}

// Run sends them.
func (c *DeliveriesReplayCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "deliveries", c.IDs, "replay", object(map[string]any{"reason": c.Reason}))
}

// command gives a command to each delivery. One that does not take it keeps no other
// from it; the error names all that did not.
func (r *remote) command(ctx context.Context, p Process, list string, ids []webhook.DeliveryID, verb string, body []byte) error {
	s, err := r.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	var not []error
	for _, id := range ids {
		a, err := s.do(ctx, request{method: http.MethodPost, path: []string{list, id.String(), verb}, body: body})
		if refused, ok := errors.AsType[*refusal](err); ok && (refused.status == http.StatusNotFound || refused.status == http.StatusConflict) {
			not = append(not, fmt.Errorf("%s: %w", id, err))
			continue
		}
		if err != nil { // it would be the same with the next
			return errors.Join(append(not, fmt.Errorf("%s: %w", id, err))...)
		}
		if err := s.commanded(a, verb); err != nil {
			return err
		}
	}
	return errors.Join(not...)
}

// commanded says that a command is stored; the workflow carries it out.
func (s *session) commanded(a answer, verb string) error {
	if s.json {
		return s.show(a)
	}
	d, err := decode[delivery](a)
	if err != nil {
		return err
	}
	return s.line(fmt.Sprintf("%s  %s accepted, %s", plain(d.ID), verb, plain(d.State)))
}
