package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// What the store is asked for dead letters.

// look finds out which dead letters the store still has, and has it name this workflow.
func (l *deadLetters) look(ctx workflow.Context) {
	in := activities.Keeping{WorkflowID: l.id, DeadLetters: make([]activities.DeliveryState, len(l.kept))}
	for i, m := range l.kept {
		in.DeadLetters[i] = activities.DeliveryState{Ref: m.Ref, Progress: m.Progress}
	}
	for _, m := range l.ask(ctx, slices.Clone(l.kept), "look at the store", acts.DeadLetters.Look, in) {
		m.Unconfirmed = false
	}
	l.lookAt = nextLook(l.first.GivenUpAt, workflow.Now(ctx))
	for _, m := range l.kept {
		if m.Faults > 0 {
			l.lookAt = workflow.Now(ctx).Add(longestPause)
		}
	}
}

// reopen opens the next runs, unless they are open already.
func (l *deadLetters) reopen(ctx workflow.Context, replayed []*DeadLetter) {
	all := make([]activities.Reopening, len(replayed))
	for i, m := range replayed {
		all[i] = activities.Reopening{Ref: m.Ref, Run: m.Run, Reason: m.Replay.Reason}
	}
	for _, m := range l.ask(ctx, replayed, "replay", acts.DeadLetters.Reopen, all) {
		m.Replay = nil
	}
}

// discard ends dead letters, unless the store says otherwise.
func (l *deadLetters) discard(ctx workflow.Context, discarded []*DeadLetter) {
	all := make([]webhook.Step, len(discarded))
	for i, m := range discarded {
		reason := webhook.ReasonRetention
		if m.Discard != nil {
			reason = m.Discard.Reason
		}
		step := webhook.Step{Ref: m.Ref, Progress: m.Progress, WorkflowID: l.id, CommandDone: m.CommandDone}
		step.Seq++
		step.State, step.Reason = webhook.StateDiscarded, reason
		if reason == "" {
			step.Reason = webhook.ReasonDiscarded
		}
		all[i] = step
	}
	for _, m := range l.ask(ctx, discarded, "discard", acts.Steps.RecordSteps, all) {
		if m.State != webhook.StateDeadLettered { // otherwise the store was one step ahead; the loop tries again
			m.Discard = nil
		}
	}
}

// ask asks the store for several dead letters, and takes over what it says of them. It returns those for which that succeeded; the others are
// tried again later.
func (l *deadLetters) ask(ctx workflow.Context, of []*DeadLetter, why string, activity, input any) (answered []*DeadLetter) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	statuses := []activities.StepResult{}
	err := workflow.ExecuteLocalActivity(localOptions(disconnected, why), activity, input).Get(disconnected, &statuses)
	for i, m := range of {
		switch {
		case err != nil:
			m.fault(ctx, message(err))
		case statuses[i].Fault != "":
			m.fault(ctx, statuses[i].Fault)
		default:
			m.sync(&statuses[i])
			answered = append(answered, m)
		}
	}
	if len(answered) < len(of) {
		workflow.GetLogger(ctx).Warn("dead letters wait for the store", "doing", why, "count", len(of)-len(answered))
	}
	return answered
}

// fault puts off what is to be asked for the dead letter.
func (m *DeadLetter) fault(ctx workflow.Context, what string) {
	m.tryAt = workflow.Now(ctx).Add(m.addFault(what))
}

// sync takes over what the store has, unless that is another run.
func (m *DeadLetter) sync(status *activities.StepResult) {
	m.tryAt, m.Faults, m.LastError = time.Time{}, 0, ""
	switch {
	case status.Gone:
		m.gone = true
	case status.Run != m.Run:
		m.opened = OpenedRun{Run: status.Run, WorkflowID: status.WorkflowID}
	default:
		m.Progress = status.Progress
	}
}
