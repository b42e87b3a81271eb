package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/webhook"
)

// drain takes all signals that are there, and the cancellation of the workflow.
func (d *delivery) drain(ctx workflow.Context) {
	for {
		command, asked, ok := d.signals.receive(d.looked)
		if !ok {
			break
		}
		d.obey(ctx, command, asked)
	}
	if ctx.Err() != nil && d.cancelled == nil {
		d.cancelled = &Asked{Reason: reasonWorkflowCancelled}
	}
}

// obey notes what is asked. What has been seen before, or makes no sense for a
// delivery under way, is passed over: the API has told the caller already. What is
// meant for the dead letter stays unanswered, and is handed over to it.
func (d *delivery) obey(ctx workflow.Context, command webhook.Command, asked Asked) {
	if asked.CommandID != 0 && asked.CommandID <= d.in.CommandDone {
		d.untold = d.untold || command != webhook.CommandNone
		return
	}
	switch command {
	case webhook.CommandCancel:
		d.cancelled = &asked
	case webhook.CommandRetry:
		d.in.DueAt, d.in.NotBefore, d.held = time.Time{}, time.Time{}, false
		d.in.Probe, d.in.Terminated = true, false
		if d.in.State != webhook.StateHeld {
			d.in.Reason = ""
		}
	case webhook.CommandReschedule:
		d.reschedule(ctx, asked)
	case webhook.CommandReplay, webhook.CommandDiscard:
		// It may be a dead letter already and this workflow not know of it, if its first request was eager.
		if d.in.State != webhook.StateDeadLettered && d.looked {
			return
		}
		if command == webhook.CommandReplay {
			d.replay = &asked
		} else {
			d.discard = &asked
		}
		return
	case webhook.CommandNone:
	}
	d.in.CommandDone = max(d.in.CommandDone, asked.CommandID)
}

// reschedule moves the next attempt, and before the first one the give-up time too,
// which counts from there. Without a time there is nothing to do; a time past the
// give-up time means then.
func (d *delivery) reschedule(ctx workflow.Context, asked Asked) {
	at, ok := asked.when()
	switch {
	case !ok:
		return
	case d.in.State == webhook.StatePending:
		from := d.in.NotBefore
		if from.IsZero() {
			from = workflow.Now(ctx)
		}
		d.in.GiveUpAt, d.in.NotBefore = d.in.GiveUpAt.Add(at.Sub(from)), at
	case at.After(d.in.GiveUpAt):
		at = d.in.GiveUpAt
	}
	d.waitUntil(at)
	d.untold = true
	d.in.Probe, d.in.Terminated = true, false
}
