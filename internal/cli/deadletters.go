package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// DeadLettersCommand lists, replays and discards dead letters.
type DeadLettersCommand struct {
	List    DeadLettersListCommand    `cmd:"" help:"List dead letters."`
	Replay  DeadLettersReplayCommand  `cmd:"" help:"Replay dead letters: by their ids, or with --all all that match the filters, at a rate."`
	Discard DeadLettersDiscardCommand `cmd:"" help:"Discard dead letters."`
}

// deadLetterFields returns the filters under their names in the API.
func deadLetterFields(f deliveryFilters, reason string, now time.Time) map[string]string {
	fields := f.fields(now)
	fields["reason"] = reason
	return fields
}

// DeadLettersListCommand lists dead letters.
type DeadLettersListCommand struct {
	remote          `embed:""`
	paging          `embed:""`
	deliveryFilters `embed:""`

	Reason string `help:"Only dead letters with this reason, such as max_attempts." placeholder:"REASON"`
}

// Run lists them.
func (c *DeadLettersListCommand) Run(ctx context.Context, p Process) error {
	r := request{path: []string{"dead-letters"}, query: queryOf(deadLetterFields(c.deliveryFilters, c.Reason, time.Now()))}
	return listOf(ctx, p, c, "dead letters", r, c.paging, []column[client.Delivery]{
		{"ID", func(d client.Delivery) string { return d.ID }},
		{"REASON", func(d client.Delivery) string { return text(d.Reason) }},
		{"LAST", last},
		{"EVENT TYPE", func(d client.Delivery) string { return d.EventType }},
		{"ENDPOINT", func(d client.Delivery) string { return d.EndpointID }},
		{"ATTEMPTS", func(d client.Delivery) string { return strconv.Itoa(d.Attempts) }},
		{"CREATED", func(d client.Delivery) string { return optionalTime(d.CreatedAt) }},
		{"GIVEN UP", func(d client.Delivery) string { return optionalTime(d.CompletedAt) }},
	})
}

// DeadLettersReplayCommand replays dead letters.
type DeadLettersReplayCommand struct {
	remote          `embed:""`
	deliveryFilters `embed:""`
	pace            `embed:""`

	IDs    []webhook.DeliveryID `arg:"" help:"Ids of dead letters, dlv_..." name:"id" optional:""`
	All    bool                 `help:"Replay all that match the filters, at a rate, like 'replays create'."`
	Reason string               `help:"With ids: a reason, stored with the delivery. With --all: only dead letters with this reason." placeholder:"TEXT"`
}

// Run replays them.
func (c *DeadLettersReplayCommand) Run(ctx context.Context, p Process) error {
	switch {
	case c.All && len(c.IDs) > 0:
		return usage("dead-letters replay: takes ids or --all, not both")
	case c.All:
		return c.startReplay(ctx, p, replayBody("dead_letters", deadLetterFields(c.deliveryFilters, c.Reason, time.Now()), c.pace))
	case len(c.IDs) == 0:
		return usage("dead-letters replay: say which: their ids, or --all (with --endpoint, --event-type, --reason, --status, " +
			"--since, --until, --ended-since, --ended-until)")
	case c.deliveryFilters != deliveryFilters{} || c.pace != pace{Ramp: true}:
		return usage("dead-letters replay: filters and a rate go with --all, not with ids")
	}
	return c.command(ctx, p, "dead-letters", c.IDs, "replay", object(map[string]any{"reason": c.Reason}))
}

// DeadLettersDiscardCommand discards dead letters.
type DeadLettersDiscardCommand struct {
	remote   `embed:""`
	many     `embed:""`
	reasoned `embed:""`
}

// Run discards them.
func (c *DeadLettersDiscardCommand) Run(ctx context.Context, p Process) error {
	return c.command(ctx, p, "dead-letters", c.IDs, "discard", object(map[string]any{"reason": c.Reason}))
}
