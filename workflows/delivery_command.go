package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// receiveSignals handles all signals that are there, and the cancellation of the workflow.
func (d *delivery) receiveSignals(ctx workflow.Context) {
	d.signals.receiveAll(d.synced, func(command webhook.Command, signal CommandSignal) { d.receive(ctx, command, signal) })
	receiveUnknown(ctx, d.signals.names(), func(name string) { d.refused.add(ctx, name, explain.UnknownSignal(d.signals.names())) })
	if ctx.Err() != nil && !d.isCancelled() {
		d.keepCancel(reasonWorkflowCancelled)
	}
}

// receive handles a signal, or notes that it is ignored.
func (d *delivery) receive(ctx workflow.Context, command webhook.Command, signal CommandSignal) {
	if why := d.refusal(command, signal); why != "" {
		d.refused.add(ctx, SignalName(command), why)
		return
	}
	d.handle(ctx, command, signal)
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (d *delivery) refusal(command webhook.Command, signal CommandSignal) string {
	_, hasTime := signal.when()
	dead := d.State == webhook.StateDeadLettered || !d.synced // what it is, is not known before it is synced
	switch {
	case command == webhook.CommandNone, !signal.byHand():
		return ""
	case signal.isOfOther(d.DeliveryID):
		return explain.OtherDelivery
	case command == webhook.CommandReplay || command == webhook.CommandDiscard:
		if !dead {
			return explain.OnlyForDeadLetters(command, d.State)
		}
	case !d.State.Open():
		return explain.OnlyForOpen(d.State)
	case command == webhook.CommandReschedule && !hasTime:
		return explain.InputWithoutTime
	}
	return ""
}

// handle changes the state as a command says. It ignores commands that have been handled, are for an earlier
// run, or make no sense for an open delivery: the API has refused those already. Commands to the dead letter are
// not acknowledged, and handed over to it.
func (d *delivery) handle(ctx workflow.Context, command webhook.Command, signal CommandSignal) {
	switch {
	case signal.isOfEarlier(d.Run):
		return
	case signal.CommandID != 0 && signal.CommandID <= d.CommandDone:
		d.Unconfirmed = d.Unconfirmed || command != webhook.CommandNone
		return
	}
	switch command {
	case webhook.CommandCancel:
		d.keepCancel(signal.Reason)
	case webhook.CommandRetry:
		d.DueAt, d.NotBefore, d.isHeld = time.Time{}, time.Time{}, false
		d.Forced, d.Terminated = true, false
		if d.State != webhook.StateHeld {
			d.Reason = ""
		}
	case webhook.CommandReschedule:
		d.reschedule(ctx, signal)
	case webhook.CommandReplay, webhook.CommandDiscard:
		// If its first request was eager, it may be a dead letter already without this workflow knowing it.
		if d.State != webhook.StateDeadLettered && d.synced {
			return
		}
		if command == webhook.CommandReplay {
			d.replay = &signal
		} else {
			d.discard = &signal
		}
		return
	case webhook.CommandNone:
	}
	d.CommandDone = max(d.CommandDone, signal.CommandID)
}

// keepCancel keeps a cancel until it is carried out, even in a later run of the workflow. It keeps no id,
// because the id counts as handled.
func (d *delivery) keepCancel(reason string) {
	d.Command = webhook.PendingCommand{Command: webhook.CommandCancel, Reason: reason}
}

func (d *delivery) isCancelled() bool { return d.Command.Command == webhook.CommandCancel }

// takeCommand removes the pending command from the state.
func (d *delivery) takeCommand() webhook.PendingCommand {
	command := d.Command
	d.Command = webhook.PendingCommand{}
	return command
}

// reschedule moves the next attempt, and before the first one the give-up time too, which counts from
// there. Without a time nothing changes; a time past the give-up time means the give-up time.
func (d *delivery) reschedule(ctx workflow.Context, signal CommandSignal) {
	at, ok := signal.when()
	switch {
	case !ok:
		return
	case d.State == webhook.StatePending:
		from := d.NotBefore
		if from.IsZero() {
			from = workflow.Now(ctx)
		}
		d.GiveUpAt, d.NotBefore = d.GiveUpAt.Add(at.Sub(from)), at
	case at.After(d.GiveUpAt):
		at = d.GiveUpAt
	}
	d.waitUntil(at)
	d.isHeld, d.Unconfirmed = false, true
	d.Forced, d.Terminated = true, false
}
