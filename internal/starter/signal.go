package starter

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Signal tells a delivery's workflow what was asked of it. The command is in the
// record, so that it arrives in the end, whether or not this does.
func (d *Starter) Signal(_ context.Context, delivery webhook.Delivery, c webhook.PendingCommand) {
	d.callAsync(func(ctx context.Context) error { return d.signal(ctx, delivery, c) }) //nolint:contextcheck // the caller is answered before the signal is
}

func (d *Starter) signal(ctx context.Context, delivery webhook.Delivery, c webhook.PendingCommand) error {
	return d.signalCommand(ctx, webhook.CommandedDelivery{Delivery: delivery, Command: c})
}

// signalCommand is signal for a command that may have been signalled before.
func (d *Starter) signalCommand(ctx context.Context, commanded webhook.CommandedDelivery) error {
	delivery, c := commanded.Delivery, commanded.Command
	if c.Command == webhook.CommandReplay { // opened in the record: a run to begin
		return d.startDelivery(ctx, webhook.Start{Ref: delivery.Ref, Run: delivery.Run, CreatedAt: delivery.CreatedAt, GiveUpAt: delivery.GiveUpAt})
	}
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID()
	if id == "" { // no step is recorded yet, so nobody else has taken it over
		id = own
	}
	if commanded.Signalled > 0 { // look ends a workflow that is stuck: a signal to it would seem to arrive
		if c, err := d.inspect(ctx, id); err == nil && id != own && c.status == statusRunning && !d.hasMember(ctx, c, delivery.DeliveryID) {
			id = own // a shared workflow goes on with others, and lets pass what is meant for this one
		}
	}
	err := d.sendSignal(ctx, id, delivery.DeliveryID, c)
	if isGone(err) && id != own { // handed over, and the record does not know yet
		err = d.sendSignal(ctx, own, delivery.DeliveryID, c)
	}
	if isGone(err) && needsWorkflow(&delivery, commanded.Signalled) {
		return d.revive(ctx, &delivery, c)
	}
	return err
}

// needsWorkflow reports that a delivery that neither its own workflow nor the one in the
// record carries gets one at once, and not when the reconciler misses it: nobody keeps it any
// more, or it is held. Any other may be about to be started or handed over; but not any more
// when what was asked of it is told again.
func needsWorkflow(delivery *webhook.Delivery, told int) bool {
	return delivery.State == webhook.StateDeadLettered || delivery.State == webhook.StateHeld || told > 0 && delivery.State.Open()
}

// tell signals a command to a workflow that carries the delivery.
func (d *Starter) sendSignal(ctx context.Context, id string, of webhook.DeliveryID, c webhook.PendingCommand) error {
	name := ""
	switch c.Command {
	case webhook.CommandCancel:
		name = workflows.SignalCancel
	case webhook.CommandRetry:
		name = workflows.SignalRetryNow
	case webhook.CommandReschedule:
		name = workflows.SignalReschedule
	case webhook.CommandReplay:
		name = workflows.SignalReplay
	case webhook.CommandDiscard:
		name = workflows.SignalDiscard
	case webhook.CommandNone:
		return nil
	}
	asked := workflows.CommandSignal{CommandID: c.ID, Reason: c.Reason, At: c.At, DeliveryID: of}
	return d.client.SignalWorkflow(ctx, id, "", name, asked) //nolint:wrapcheck // note classifies it
}
