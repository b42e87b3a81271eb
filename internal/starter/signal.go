package starter

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Signal tells a delivery's workflow what was asked of it. The command is in the
// record, so that it arrives in the end, whether or not this does.
func (d *Starter) Signal(_ context.Context, delivery webhook.Delivery, c webhook.PendingCommand) {
	d.aside(func(ctx context.Context) error { return d.signal(ctx, delivery, c) }) //nolint:contextcheck // the caller is answered before the signal is
}

// aside makes a call beside its caller, if it is not too late and not too many are
// under way: the relay makes up for it.
func (d *Starter) aside(f func(context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping() {
		return
	}
	select {
	case d.signals <- struct{}{}:
	default:
		return
	}
	d.workers.Go(func() {
		defer func() { <-d.signals }()
		d.call(f)
	})
}

func (d *Starter) signal(ctx context.Context, delivery webhook.Delivery, c webhook.PendingCommand) error {
	return d.signalTimes(ctx, webhook.CommandedDelivery{Delivery: delivery, Command: c})
}

// signalTimes is signal for a command that may have been signalled before.
func (d *Starter) signalTimes(ctx context.Context, commanded webhook.CommandedDelivery) error {
	delivery, c := commanded.Delivery, commanded.Command
	if c.Command == webhook.CommandReplay { // opened in the record: a run to begin
		return d.begin(ctx, webhook.Start{Ref: delivery.Ref, Run: delivery.Run, CreatedAt: delivery.CreatedAt, GiveUpAt: delivery.GiveUpAt})
	}
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID()
	if id == "" { // no step is recorded yet, so nobody else has taken it over
		id = own
	}
	if commanded.Signalled > 0 { // look ends a workflow that is stuck: a signal to it would seem to arrive
		if c, err := d.look(ctx, id); err == nil && id != own && c.fate == fateRuns && !d.has(ctx, c, delivery.DeliveryID) {
			id = own // a shared workflow goes on with others, and lets pass what is meant for this one
		}
	}
	err := d.tell(ctx, id, delivery.DeliveryID, c)
	if isGone(err) && id != own { // handed over, and the record does not know yet
		err = d.tell(ctx, own, delivery.DeliveryID, c)
	}
	if isGone(err) && forsaken(&delivery, commanded.Signalled) {
		return d.revive(ctx, &delivery, c)
	}
	return err
}

// forsaken reports that a delivery that neither its own workflow nor the one in the
// record carries gets one at once, and not when the reconciler misses it: nobody keeps it any
// more, or it is held. Any other may be about to be started or handed over; but not any more
// when what was asked of it is told again.
func forsaken(delivery *webhook.Delivery, told int) bool {
	return delivery.State == webhook.StateDeadLettered || delivery.State == webhook.StateHeld || told > 0 && delivery.State.Open()
}

// tell signals a command to a workflow that carries the delivery.
func (d *Starter) tell(ctx context.Context, id string, of webhook.DeliveryID, c webhook.PendingCommand) error {
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
	return d.Client.SignalWorkflow(ctx, id, "", name, asked) //nolint:wrapcheck // note classifies it
}
