package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// receiveSignals handles all signals that are there, and the cancellation of the workflow. A delivery
// with a command leaves, and takes it along.
func (f *fanout) receiveSignals(ctx workflow.Context) {
	f.signals.receiveAll(true, func(command webhook.Command, signal CommandSignal) {
		if why := f.refusal(command, signal); why != "" {
			f.refused.add(ctx, SignalName(command), why)
			return
		}
		f.handle(ctx, command, signal)
	})
	receiveUnknown(ctx, f.signals.names(), func(name string) { f.refused.add(ctx, name, explain.UnknownSignal(f.signals.names())) })
	if ctx.Err() != nil {
		for _, m := range f.members {
			m.markLeaving()
		}
	}
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (f *fanout) refusal(command webhook.Command, signal CommandSignal) string {
	_, hasTime := signal.when()
	switch {
	case !signal.byHand():
		return ""
	case signal.unreadable: // it may be meant for one delivery, and must not reach all
		return explain.UnreadableInput
	case command == webhook.CommandReschedule && !hasTime:
		return explain.InputWithoutTime
	case command == webhook.CommandReplay || command == webhook.CommandDiscard:
		return f.refusalToOpen(command, signal)
	case !signal.DeliveryID.IsZero() && !f.has(signal.DeliveryID):
		return explain.OtherDelivery
	case len(f.members) > 0 && !slices.ContainsFunc(f.members, func(m *Member) bool { return !m.GivenUp && !signal.isOfOther(m.DeliveryID) }):
		return explain.OnlyForOpen(webhook.StateDeadLettered)
	}
	return ""
}

// refusalToOpen is why a command for dead letters is ignored.
func (f *fanout) refusalToOpen(command webhook.Command, signal CommandSignal) string {
	state := webhook.StatePending
	for _, m := range f.members {
		if !signal.isOfOther(m.DeliveryID) {
			if m.mayBeDeadLetter() {
				return ""
			}
			state = m.State
		}
	}
	if !signal.DeliveryID.IsZero() && !f.has(signal.DeliveryID) {
		return explain.OtherDelivery
	}
	return explain.OnlyForDeadLetters(command, state)
}

// mayBeDeadLetter reports a member that takes a command for dead letters along: it is one, and about to leave,
// or nothing is known of it yet, because the task in which it became one was lost (R3).
func (m *Member) mayBeDeadLetter() bool { return m.State == webhook.StateDeadLettered || m.Seq == 0 }

func (f *fanout) has(id webhook.DeliveryID) bool {
	for _, m := range f.members {
		if m.DeliveryID == id {
			return true
		}
	}
	return false
}

// handle gives a command to the delivery that it names, or to all.
func (f *fanout) handle(ctx workflow.Context, command webhook.Command, signal CommandSignal) {
	if signal.unreadable || len(signal.Opened) > 0 { // a run that was opened is nothing to open deliveries
		return
	}
	forDeadLetters := command == webhook.CommandReplay || command == webhook.CommandDiscard
	for _, m := range f.members {
		switch {
		case signal.isOfOther(m.DeliveryID), signal.byHand() && forDeadLetters && !m.mayBeDeadLetter():
		case command == webhook.CommandCancel && signal.Reason == webhook.ReasonEndpointDeleted && !m.Leaving:
			m.DueAt, m.CheckAt = workflow.Now(ctx), time.Time{} // an attempt finds the endpoint gone, and ends it here
		case m.GivenUp && !forDeadLetters: // it has no next attempt
		case forDeadLetters && m.mayBeDeadLetter(): // it takes the command along if it is one, or turns out to be
			m.addCommand(command, signal)
		default:
			m.addCommand(command, signal)
			m.markLeaving()
		}
	}
}
