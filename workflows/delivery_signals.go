package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// receiveSignals receives all signals that are there, and the cancellation of the workflow, and carries out the commands for which the time
// has come.
func (d *openDeliveries) receiveSignals(ctx workflow.Context) {
	d.signals.receive(ctx, &d.refused, d.refusal, d.receive)
	for _, m := range d.members {
		if d.own && ctx.Err() != nil && !m.isDead() && !m.isCancelled() {
			m.receive(webhook.PendingCommand{Command: webhook.CommandCancel, Reason: reasonWorkflowCancelled})
		}
		d.guarded(ctx, m, func(m *Member) { m.carryOut(workflow.Now(ctx)) })
	}
}

// receive gives a command to the delivery that it names, or to all.
func (d *openDeliveries) receive(command webhook.Command, signal CommandSignal) {
	if len(signal.Opened) > 0 || signal.unreadable && !d.own { // a run that was opened is nothing to open deliveries
		return
	}
	forDeadLetters := command == webhook.CommandReplay || command == webhook.CommandDiscard
	for _, m := range d.members {
		isMeant := !forDeadLetters || m.isDead() || !m.Synced // a dead letter that it may become later is not meant
		if isMeant && !signal.isOfOther(m.DeliveryID) && !signal.isOfEarlier(m.Run) {
			m.receive(signal.pending(command))
		}
	}
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (d *openDeliveries) refusal(command webhook.Command, signal CommandSignal) string {
	_, hasTime := signal.when()
	isMeant := func(m *Member) bool { return !signal.isOfOther(m.DeliveryID) }
	switch {
	case !signal.byHand() || len(d.members) == 0:
		return ""
	case signal.unreadable && !d.own: // it may be meant for one delivery, and must not reach all
		return explain.UnreadableInput
	case !slices.ContainsFunc(d.members, isMeant):
		return explain.OtherDelivery
	case signal.DeliveryID.IsZero() && d.tenant == "":
		return explain.SeveralTenants
	case command == webhook.CommandReplay || command == webhook.CommandDiscard:
		return d.refusalToOpen(command, isMeant)
	case !slices.ContainsFunc(d.members, func(m *Member) bool { return isMeant(m) && m.State.Open() }):
		return explain.OnlyForOpen(d.members[slices.IndexFunc(d.members, isMeant)].State)
	case command == webhook.CommandReschedule && !hasTime:
		return explain.InputWithoutTime
	}
	return ""
}

// refusalToOpen is why a command for dead letters is ignored: all that are meant are open. What a delivery is of which nothing is known yet,
// because the task in which it became a dead letter was lost (R3), is not known.
func (d *openDeliveries) refusalToOpen(command webhook.Command, isMeant func(*Member) bool) string {
	state := webhook.StatePending
	for _, m := range d.members {
		if isMeant(m) {
			if m.isDead() || !m.Synced {
				return ""
			}
			state = m.State
		}
	}
	return explain.OnlyForDeadLetters(command, state)
}
