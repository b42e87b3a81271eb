package engine

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// Commands signals commands to the workflows of deliveries.
type Commands struct {
	workflows *Workflows
	revivals  *Revivals
	starts    *Starts
	calls     *Calls
}

// Commanded passes a command that has just been stored to the delivery's workflow, without waiting for the signal. If the
// signal fails, the relay repeats it from the store.
func (c *Commands) Commanded(_ context.Context, delivery webhook.Delivery, command webhook.PendingCommand) {
	c.calls.Async(func(ctx context.Context) error { return c.passNew(ctx, delivery, command) }) //nolint:contextcheck // the caller is answered before
}

// passNew is Pass for a command that has not been signalled yet.
func (c *Commands) passNew(ctx context.Context, delivery webhook.Delivery, command webhook.PendingCommand) error {
	return c.Pass(ctx, webhook.CommandedDelivery{Delivery: delivery, Command: command})
}

// Pass signals a command, which may have been signalled before, to the workflow that has the delivery. A delivery
// without a workflow may get one, which carries out the command. A replay starts the next run instead.
func (c *Commands) Pass(ctx context.Context, commanded webhook.CommandedDelivery) error {
	delivery, command := commanded.Delivery, commanded.Command
	if command.Command == webhook.CommandReplay { // the store has the new run, which is to be started
		return c.starts.Own(ctx, webhook.Start{
			Ref: delivery.Ref, Run: delivery.Run, CreatedAt: delivery.CreatedAt, GiveUpAt: delivery.GiveUpAt, Earlier: command.Earlier,
		})
	}
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID(delivery.Run)
	if id == "" { // no step is recorded yet, so no other workflow has taken it over
		id = own
	}
	if commanded.Signalled > 0 { // Inspect ends a workflow that is stuck, which would accept the signal
		if w, err := c.workflows.Inspect(ctx, id); err == nil && id != own && w.Status == StatusRunning &&
			!c.workflows.hasMember(ctx, w, delivery.DeliveryID) {
			id = own // a shared workflow that runs without the delivery ignores the signal
		}
	}
	err := c.workflows.signal(ctx, id, delivery.Ref, delivery.Run, command)
	if isGone(err) && id != own { // it has another one, which the store does not know yet
		err = c.workflows.signal(ctx, own, delivery.Ref, delivery.Run, command)
	}
	if isGone(err) && !commanded.Waiting && needsWorkflow(&delivery, commanded.Signalled) {
		return c.revivals.Revive(ctx, &delivery, command)
	}
	return err
}

// needsWorkflow reports that a delivery without a workflow gets one at once, and not only from the
// reconciler: it is a dead letter or held. Any other may be about to be started, unless its
// command was signalled before.
func needsWorkflow(delivery *webhook.Delivery, signalled int) bool {
	return delivery.State == webhook.StateDeadLettered || delivery.State == webhook.StateHeld || signalled > 0 && delivery.State.Open()
}
