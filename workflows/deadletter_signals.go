package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// receiveSignals handles all signals that are there. Cancelling the workflow, as the Web UI can, means
// to discard.
func (l *deadLetters) receiveSignals(ctx workflow.Context) {
	l.signals.receive(ctx, &l.refused, l.refusal, func(command webhook.Command, signal CommandSignal) {
		for _, m := range l.kept {
			m.handle(command, signal)
		}
	})
	if ctx.Err() == nil {
		return
	}
	for _, m := range l.kept {
		if m.Discard == nil {
			m.Discard = &CommandSignal{Reason: reasonWorkflowCancelled}
		}
	}
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (l *deadLetters) refusal(command webhook.Command, signal CommandSignal) string {
	isOf := func(m *DeadLetter) bool { return !signal.isOfOther(m.DeliveryID) }
	switch {
	case !signal.byHand():
		return ""
	case signal.unreadable && !l.isOne(): // it may be meant for one, and must not reach all
		return explain.UnreadableInput
	case len(l.kept) > 0 && !slices.ContainsFunc(l.kept, isOf):
		return explain.OtherDelivery
	case len(l.kept) > 0 && signal.DeliveryID.IsZero() && l.tenant == "":
		return explain.SeveralTenants
	case command == webhook.CommandReplay || command == webhook.CommandDiscard:
		return ""
	}
	return explain.OnlyForOpen(webhook.StateDeadLettered)
}

// handle keeps a command to the dead letter. One that was carried out is ignored, and so is one to an earlier run. A replay that
// has opened a run already ends the dead letter here.
func (m *DeadLetter) handle(command webhook.Command, signal CommandSignal) {
	switch {
	case len(signal.Opened) > 0:
		for _, opened := range signal.Opened {
			if opened.DeliveryID == m.DeliveryID && opened.Run > m.Run {
				m.opened = opened
			}
		}
		return
	case signal.isOfOther(m.DeliveryID), signal.isOfEarlier(m.Run), signal.CommandID != 0 && signal.CommandID <= m.CommandDone:
		return
	}
	switch command {
	case webhook.CommandReplay:
		m.Replay = &signal
	case webhook.CommandDiscard:
		m.Discard = &signal
		m.CommandDone = max(m.CommandDone, signal.CommandID)
	case webhook.CommandNone, webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule:
	}
}
