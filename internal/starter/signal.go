package starter

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

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
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID()
	if id == "" { // no step is recorded yet, so no other workflow has taken it over
		id = own
	}
	if commanded.Signalled > 0 { // inspect ends a workflow that is stuck, which would accept the signal
		if w, err := s.inspect(ctx, id); err == nil && id != own && w.status == statusRunning && !s.hasMember(ctx, w, delivery.DeliveryID) {
			id = own // a shared workflow that runs without the delivery ignores the signal
		}
		if err := s.signalReplayOfRun(ctx, &delivery); err != nil {
			return err
		}
	}
	err := s.sendCommand(ctx, id, delivery.Ref, delivery.Run, c)
	if isGone(err) && id != own { // handed over, which the store does not know yet
		err = s.sendCommand(ctx, own, delivery.Ref, delivery.Run, c)
	}
	if isGone(err) && needsWorkflow(&delivery, commanded.Signalled) {
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

// signalReplayOfRun signals the replay that opened the run of an open delivery to the delivery's own workflow. That of a
// dead letter of an earlier run, which would wait for as long as dead letters are kept, then continues as this run. Any
// other workflow ignores the signal.
func (s *Starter) signalReplayOfRun(ctx context.Context, delivery *webhook.Delivery) error {
	if !delivery.State.Open() || delivery.Run == 1 {
		return nil
	}
	err := s.client.SignalWorkflow(ctx, delivery.Ref.WorkflowID(), "", workflows.SignalReplay, workflows.CommandSignal{Run: delivery.Run})
	if isGone(err) {
		return nil
	}
	return err //nolint:wrapcheck // classifyResult handles it
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
