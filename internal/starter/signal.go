package starter

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// tellTimeout bounds a signal that need not arrive.
const tellTimeout = time.Second

// Commanded passes a command that has just been stored to the delivery's workflow, without waiting for the signal. If the
// signal fails, the relay repeats it from the store.
func (s *Starter) Commanded(_ context.Context, delivery webhook.Delivery, c webhook.PendingCommand) {
	s.callAsync(func(ctx context.Context) error { return s.passNewCommand(ctx, delivery, c) }) //nolint:contextcheck // the caller is answered before
}

// passNewCommand is passCommand for a command that has not been signalled yet.
func (s *Starter) passNewCommand(ctx context.Context, delivery webhook.Delivery, c webhook.PendingCommand) error {
	return s.passCommand(ctx, webhook.CommandedDelivery{Delivery: delivery, Command: c})
}

// passCommand signals a command, which may have been signalled before, to the workflow that has the delivery. A delivery
// without a workflow may get one, which carries out the command. A replay starts the next run instead.
func (s *Starter) passCommand(ctx context.Context, commanded webhook.CommandedDelivery) error {
	delivery, c := commanded.Delivery, commanded.Command
	if c.Command == webhook.CommandReplay { // the store has the new run, which is to be started
		return s.startDelivery(ctx, webhook.Start{Ref: delivery.Ref, Run: delivery.Run, CreatedAt: delivery.CreatedAt, GiveUpAt: delivery.GiveUpAt})
	}
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID(delivery.Run)
	if id == "" { // no step is recorded yet, so no other workflow has taken it over
		id = own
	}
	if commanded.Signalled > 0 { // inspect ends a workflow that is stuck, which would accept the signal
		if w, err := s.inspect(ctx, id); err == nil && id != own && w.status == statusRunning && !s.hasMember(ctx, w, delivery.DeliveryID) {
			id = own // a shared workflow that runs without the delivery ignores the signal
		}
	}
	err := s.sendCommand(ctx, id, delivery.Ref, delivery.Run, c)
	if isGone(err) && id != own { // handed over, which the store does not know yet
		err = s.sendCommand(ctx, own, delivery.Ref, delivery.Run, c)
	}
	if isGone(err) && !commanded.Waiting && needsWorkflow(&delivery, commanded.Signalled) {
		return s.revive(ctx, &delivery, c)
	}
	return err
}

// needsWorkflow reports that a delivery without a workflow gets one at once, and not only from the
// reconciler: it is a dead letter or held. Any other may be about to be started or handed over, unless its
// command was signalled before.
func needsWorkflow(delivery *webhook.Delivery, signalled int) bool {
	return delivery.State == webhook.StateDeadLettered || delivery.State == webhook.StateHeld || signalled > 0 && delivery.State.Open()
}

// endEarlierRun signals to the workflow that keeps the dead letter of the run before that another one has been started. It
// does so once: a workflow that does not get the signal finds out from the store.
func (s *Starter) endEarlierRun(ctx context.Context, start *webhook.Start) {
	if start.Run == 1 || start.Resume != nil || start.Relayed > 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	err := s.client.SignalWorkflow(ctx, start.Ref.WorkflowID(start.Run-1), "", workflows.SignalReplay, workflows.CommandSignal{Run: start.Run})
	if err != nil && !isGone(err) {
		s.log.DebugContext(ctx, "the workflow of a replayed dead letter could not be told", "delivery", start.DeliveryID, "error", err)
	}
}

// sendCommand sends the signal of a command for a run of a delivery to a workflow; without a command it does nothing.
func (s *Starter) sendCommand(ctx context.Context, id string, of webhook.Ref, run int, c webhook.PendingCommand) error {
	switch c.Command {
	case webhook.CommandNone:
		return nil
	case webhook.CommandReplay: // by hand; it opens the next run, whichever that is
		run = 0
	case webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule, webhook.CommandDiscard:
	}
	signal := workflows.CommandSignal{CommandID: c.ID, Reason: c.Reason, Run: run, At: c.At, DeliveryID: of.DeliveryID}
	return s.client.SignalWorkflow(ctx, id, "", workflows.SignalName(c.Command), signal) //nolint:wrapcheck // classifyResult handles it
}
