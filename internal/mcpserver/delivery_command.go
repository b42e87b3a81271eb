package mcpserver

import (
	"context"
	"fmt"
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
		return command(ctx, c, in.ID, "retry", "")
	})
	add(s, tool{
		name: "replay_delivery", title: "Replay a delivery", hints: hints{sends: true},
		description: "Sends a delivery that has ended (delivered, dead_lettered, cancelled or discarded) again, with new limits on attempts and time.",
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (intent, error) {
		return planCommand(ctx, c, in.deliveryCommandInput, "Send %s again? Its receiver gets the event once more.")
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (string, accepted, error) {
		return command(ctx, c, in.ID, "replay", in.Reason)
	})
	add(s, tool{
		name: "cancel_delivery", title: "Cancel a delivery", hints: hints{destructive: true, idempotent: true},
		description: "Cancels an open delivery: nothing more is sent, unless it is replayed.",
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (intent, error) {
		return planCommand(ctx, c, in.deliveryCommandInput, "Cancel %s? Nothing more is sent, unless it is replayed.")
	}, func(ctx context.Context, c *call, in reasonedCommandInput) (string, accepted, error) {
		return command(ctx, c, in.ID, "cancel", in.Reason)
	})
}

// planCommand says what a command would do. The question has a place for the delivery.
func planCommand(ctx context.Context, c *call, in deliveryCommandInput, ask string) (intent, error) {
	if err := checkDeliveryID(in.ID); err != nil {
		return intent{}, err
	}
	d, err := get[delivery](ctx, c, nil, "deliveries", in.ID)
	if err != nil {
		return intent{}, err
	}
	d = d.bound()
	which := fmt.Sprintf("the delivery %s of tenant %s (%s to %s, %s after %s)", d.ID, c.tenant, quote(d.EventType, maxWord), d.EndpointID, d.State,
		plural(d.Attempts, "attempt", "attempts"))
	return intent{text: fmt.Sprintf(ask, which), what: "the event type of the delivery", expect: d.EventType}, nil
}

// command sends a command, which the delivery's workflow carries out.
func command(ctx context.Context, c *call, id, verb, reason string) (string, accepted, error) {
	body := map[string]any{}
	if reason != "" {
		body["reason"] = reason
	}
	d, err := post[delivery](ctx, c, body, "deliveries", id, verb)
	if err != nil {
		return "", accepted{}, err
	}
	d = d.bound()
	text := fmt.Sprintf("The command %s for %s is stored and will be carried out; the delivery is %s now. explain shows how it goes on.\n", verb, d.ID, d.State)
	return text, accepted{delivery: d, Command: verb}, nil
}
