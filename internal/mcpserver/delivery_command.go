package mcpserver

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/client"
)

// deliveryCommandInput is the arguments of a command to a delivery.
type deliveryCommandInput struct {
	scope
	confirmation

	ID string `json:"id" jsonschema:"The delivery's id (dlv_…)."`
}

// reasonedCommandInput is the arguments of a command with a reason.
type reasonedCommandInput struct {
	deliveryCommandInput

	Reason string `json:"reason,omitempty" jsonschema:"A reason, stored with the delivery and in the audit log."`
}

// accepted is the result of a command to a delivery.
type accepted struct {
	delivery

	Command string `json:"command"`
}

func (s *Server) addDeliveryCommands() {
	add(s, tool{
		name: "retry_delivery", title: "Retry a delivery now", hints: hints{sends: true},
		description: "Makes the next attempt of an open delivery now, also while the endpoint's circuit is open.",
	}, func(ctx context.Context, c *call, in deliveryCommandInput) (intent, error) {
		return planCommand(ctx, c, in, "Make the next attempt of %s now? Its receiver gets a request.")
	}, func(ctx context.Context, c *call, in deliveryCommandInput) (string, accepted, error) {
		d, err := c.of.Deliveries.Retry(ctx, in.ID)
		return commanded("retry", d, err)
	})
	add(s, tool{
		name: "replay_delivery", title: "Replay a delivery", hints: hints{sends: true},
		description: "Sends a delivery that has ended (delivered, dead_lettered, cancelled or discarded) again, with new limits on attempts and time.",
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (intent, error) {
		return planCommand(ctx, c, in.deliveryCommandInput, "Send %s again? Its receiver gets the event once more.")
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (string, accepted, error) {
		d, err := c.of.Deliveries.Replay(ctx, in.ID, in.Reason)
		return commanded("replay", d, err)
	})
	add(s, tool{
		name: "cancel_delivery", title: "Cancel a delivery", hints: hints{destructive: true, idempotent: true},
		description: "Cancels an open delivery: nothing more is sent, unless it is replayed.",
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (intent, error) {
		return planCommand(ctx, c, in.deliveryCommandInput, "Cancel %s? Nothing more is sent, unless it is replayed.")
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (string, accepted, error) {
		d, err := c.of.Deliveries.Cancel(ctx, in.ID, in.Reason)
		return commanded("cancel", d, err)
	})
}

// planCommand says what a command would do. The question has a place for the delivery.
func planCommand(ctx context.Context, c *call, in deliveryCommandInput, ask string) (intent, error) {
	if err := checkDeliveryID(in.ID); err != nil {
		return intent{}, err
	}
	read, err := c.of.Deliveries.Get(ctx, in.ID)
	if err != nil {
		return intent{}, err
	}
	d := showDelivery(read)
	which := fmt.Sprintf("the delivery %s of tenant %s (%s to %s, %s after %s)", d.ID, c.tenant, quote(d.EventType, maxWord), d.EndpointID, d.State,
		plural(d.Attempts, "attempt", "attempts"))
	return intent{text: fmt.Sprintf(ask, which), what: "the event type of the delivery", expect: d.EventType}, nil
}

// commanded describes a delivery after a command, which its workflow carries out.
func commanded(verb string, read client.Delivery, err error) (string, accepted, error) {
	if err != nil {
		return "", accepted{}, err
	}
	d := showDelivery(read)
	text := fmt.Sprintf("The command %s for %s is stored and will be carried out; the delivery is %s now. explain shows how it goes on.\n", verb, d.ID, d.State)
	return text, accepted{delivery: d, Command: verb}, nil
}
