package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetterInput is a delivery that was given up.
type DeadLetterInput struct {
	webhook.Ref
	webhook.Progress

	CommandDone int64     `json:"command_done,omitempty"`
	Told        string    `json:"told,omitempty"`      // what the receiver said last, in words
	KeepUntil   time.Time `json:"keep_until,omitzero"` // zero: not yet known
	Replay      *Asked    `json:"replay,omitempty"`    // asked when it was not a dead letter yet
	Discard     *Asked    `json:"discard,omitempty"`   // likewise
}

// DeadLetterWorkflow keeps a delivery that was given up until somebody replays
// it, which continues it as a DeliveryWorkflow, or discards it, or its retention
// has passed.
func DeadLetterWorkflow(ctx workflow.Context, in DeadLetterInput) error {
	l := newDeadLetter(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, l.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return l.run(ctx)
}

// deadLetter is the state of a DeadLetterWorkflow.
type deadLetter struct {
	in      DeadLetterInput
	signals signals
	replay  *Asked
	discard *Asked
	cancel  *Asked // sent by hand, of the run that a replay has opened
	stuck   error  // why what was asked could not be recorded: errGone or errLongHistory
}

func newDeadLetter(ctx workflow.Context, in DeadLetterInput) *deadLetter {
	l := &deadLetter{in: in, signals: newSignals(ctx)}
	if in.Replay != nil {
		l.obey(webhook.CommandReplay, *in.Replay)
	}
	if in.Discard != nil {
		l.obey(webhook.CommandDiscard, *in.Discard)
	}
	l.in.Replay, l.in.Discard = nil, nil
	return l
}

func (l *deadLetter) status() (Status, error) {
	return Status{Ref: l.in.Ref, Progress: l.in.Progress}, nil
}

func (l *deadLetter) run(ctx workflow.Context) error {
	workflow.SetCurrentDetails(ctx, details(l.in.Ref, l.in.Progress, l.in.Told, ""))
	if l.in.KeepUntil.IsZero() {
		l.in.KeepUntil = workflow.Now(ctx).Add(keepFor(ctx))
	}
	for {
		l.drain(ctx)
		switch {
		case errors.Is(l.stuck, errGone):
			workflow.GetLogger(ctx).Warn("a dead letter ends that the record does not know any more", "delivery", l.in.DeliveryID.String())
			return nil
		case l.stuck != nil:
			return l.becomeItself(ctx)
		case l.in.State.Open():
			return l.becomeDelivery(ctx)
		case l.in.State != webhook.StateDeadLettered:
			showState(ctx, l.in.State)
			return nil // nothing blocked since the drain: no signal is lost
		case l.replay != nil:
			l.reopen(ctx)
		case l.discard != nil:
			l.end(ctx, *l.discard)
		case !workflow.Now(ctx).Before(l.in.KeepUntil):
			l.end(ctx, Asked{Reason: webhook.ReasonRetention})
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return l.becomeItself(ctx)
		default:
			l.wait(ctx)
		}
	}
}

// wait sleeps until somebody asks for something or the retention has passed.
func (l *deadLetter) wait(ctx workflow.Context) {
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	timer := workflow.NewTimerWithOptions(timerCtx, l.in.KeepUntil.Sub(workflow.Now(ctx)), workflow.TimerOptions{
		Summary: "kept until " + l.in.KeepUntil.UTC().Format(time.RFC3339),
	})
	selector := workflow.NewSelector(ctx)
	selector.AddFuture(timer, func(workflow.Future) {})
	l.signals.wake(selector)
	selector.Select(ctx)
}

// reopen opens the next run.
func (l *deadLetter) reopen(ctx workflow.Context) {
	l.cancel = nil // asked before there was anything to cancel
	standing, err := reopen(ctx, l.in.Ref, l.replay.Reason)
	if err != nil {
		l.stuck = err
		return
	}
	l.in.Progress, l.replay = standing.Progress, nil
}

// end discards the dead letter, unless the record knows better.
func (l *deadLetter) end(ctx workflow.Context, asked Asked) {
	step := webhook.Step{Ref: l.in.Ref, Progress: l.in.Progress, WorkflowID: l.in.WorkflowID(), CommandDone: l.in.CommandDone}
	step.Seq++
	step.State, step.Reason = webhook.StateDiscarded, asked.Reason
	if step.Reason == "" {
		step.Reason = webhook.ReasonDiscarded
	}
	standing, err := recordStep(ctx, step, "discard")
	if err != nil {
		l.stuck = err
		return
	}
	l.in.Progress = standing.Progress
	if l.in.State != webhook.StateDeadLettered { // else the record was only further on: once more
		l.discard = nil
	}
}

// drain takes all signals that are there. Cancelling the workflow, as the Web UI
// can, means to discard.
func (l *deadLetter) drain(ctx workflow.Context) {
	for {
		command, asked, ok := l.signals.receive(true)
		if !ok {
			break
		}
		l.obey(command, asked)
	}
	if ctx.Err() != nil && l.discard == nil {
		l.discard = &Asked{Reason: reasonWorkflowCancelled}
	}
}

// obey notes what is asked of a dead letter. A replay that it has been through is
// passed over. What the record keeps for a delivery under way stays unanswered: if
// a replay has opened one, its first attempt finds it there.
func (l *deadLetter) obey(command webhook.Command, asked Asked) {
	if asked.CommandID != 0 && asked.CommandID <= l.in.CommandDone {
		return
	}
	switch command {
	case webhook.CommandReplay:
		if asked.Run == 0 || asked.Run > l.in.Run {
			l.replay = &asked
		}
	case webhook.CommandDiscard:
		l.discard = &asked
		l.in.CommandDone = max(l.in.CommandDone, asked.CommandID)
	case webhook.CommandCancel:
		if asked.CommandID == 0 {
			l.cancel = &asked
		}
	case webhook.CommandNone, webhook.CommandRetry, webhook.CommandReschedule:
	}
}

// becomeItself continues with a history of its own, and with what could not be
// carried out.
func (l *deadLetter) becomeItself(ctx workflow.Context) error {
	for _, asked := range []*Asked{l.replay, l.discard} {
		if asked != nil {
			asked.CommandID = 0 // counted already: by its id it would be passed over
		}
	}
	l.in.Replay, l.in.Discard = l.replay, l.discard
	return workflow.NewContinueAsNewError(ctx, DeadLetterWorkflow, l.in)
}

// becomeDelivery continues as the delivery that a replay has opened.
func (l *deadLetter) becomeDelivery(ctx workflow.Context) error {
	showState(ctx, l.in.State)
	return workflow.NewContinueAsNewError(ctx, DeliveryWorkflow, DeliveryInput{
		Ref: l.in.Ref, Progress: l.in.Progress, CommandDone: l.in.CommandDone, Cancel: l.cancel,
	})
}
