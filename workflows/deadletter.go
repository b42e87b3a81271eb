package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetterName is the type of DeadLetterWorkflow in Temporal.
const DeadLetterName = "DeadLetterWorkflow"

// DeadLetterInput is a delivery that was given up.
type DeadLetterInput struct {
	DeliveryState

	GivenUpAt time.Time      `json:"given_up_at,omitzero"` // zero: just now
	KeepUntil time.Time      `json:"keep_until,omitzero"`  // zero: not yet known
	Replay    *CommandSignal `json:"replay,omitempty"`     // received before it was a dead letter
	Discard   *CommandSignal `json:"discard,omitempty"`    // likewise
	Refused   []Refusal      `json:"refused,omitempty"`    // signals of earlier runs that were ignored
}

// NewDeadLetter returns the input of a delivery's dead letter, with the command that is pending for it.
// The store says dead_lettered already.
func NewDeadLetter(s DeliveryState) DeadLetterInput {
	in := DeadLetterInput{DeliveryState: DeliveryState{
		Ref: s.Ref, Progress: s.Progress, CommandDone: s.CommandDone, LastOutcome: s.LastOutcome, Trace: s.Trace,
	}}
	signal := signalOf(s.Command)
	switch s.Command.Command {
	case webhook.CommandReplay:
		in.Replay = &signal
	case webhook.CommandDiscard:
		in.Discard = &signal
	case webhook.CommandNone, webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule:
	}
	return in
}

// DeadLetterWorkflow keeps a delivery that was given up until it is replayed, which continues it as a
// DeliveryWorkflow, or discarded, or its retention has passed.
func DeadLetterWorkflow(ctx workflow.Context, in DeadLetterInput) error {
	l := beginDeadLetter(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, l.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return l.run(ctx)
}

// deadLetter is the state of a DeadLetterWorkflow.
type deadLetter struct {
	DeadLetterInput

	signals signals
	refused refusals       // signals that were ignored
	shown   shownState     // in the Web UI
	cancel  *CommandSignal // sent by hand, of the run that a replay has opened
	stuck   error          // why the result of a command could not be stored: errGone or errLongHistory
}

func beginDeadLetter(ctx workflow.Context, in DeadLetterInput) *deadLetter {
	l := &deadLetter{DeadLetterInput: in, signals: newSignals(ctx), refused: in.Refused, shown: shownAtStart(ctx)}
	l.Replay, l.Discard = nil, nil
	if in.Replay != nil {
		l.handle(ctx, webhook.CommandReplay, *in.Replay)
	}
	if in.Discard != nil {
		l.handle(ctx, webhook.CommandDiscard, *in.Discard)
	}
	if l.GivenUpAt.IsZero() {
		l.GivenUpAt = workflow.Now(ctx)
	}
	return l
}

func (l *deadLetter) status() (Status, error) {
	return Status{Ref: l.Ref, Progress: l.Progress}, nil
}

func (l *deadLetter) run(ctx workflow.Context) error {
	l.describe(ctx)
	l.shown.show(ctx, webhook.StateDeadLettered)
	if l.KeepUntil.IsZero() {
		l.KeepUntil = workflow.Now(ctx).Add(keepFor(ctx))
		l.describe(ctx)
	}
	for {
		l.receiveSignals(ctx)
		switch {
		case l.refused.audit(ctx, l.TenantID, l.DeliveryID.String(), l.DeliveryID):
			l.describe(ctx)
		case errors.Is(l.stuck, errGone):
			workflow.GetLogger(ctx).Warn("a dead letter ends that is no longer in the store", "delivery", l.DeliveryID.String())
			return nil
		case l.stuck != nil:
			return l.continueAsNew(ctx)
		case l.State.Open():
			return l.continueAsDelivery(ctx)
		case l.State != webhook.StateDeadLettered:
			l.describe(ctx)
			l.shown.show(ctx, l.State)
			return nil // nothing has blocked since the signals were received: none is lost
		case l.Replay != nil:
			l.reopen(ctx)
		case l.Discard != nil:
			l.end(ctx, *l.Discard)
		case !workflow.Now(ctx).Before(l.KeepUntil):
			l.end(ctx, CommandSignal{Reason: webhook.ReasonRetention})
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return l.continueAsNew(ctx)
		default:
			l.wait(ctx)
		}
	}
}

// wait sleeps until a signal comes or the retention has passed.
func (l *deadLetter) wait(ctx workflow.Context) {
	l.describe(ctx)
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	timer := workflow.NewTimerWithOptions(timerCtx, l.KeepUntil.Sub(workflow.Now(ctx)), workflow.TimerOptions{
		Summary: "kept until " + l.KeepUntil.UTC().Format(time.RFC3339),
	})
	await(ctx, timer)
}

// describe sets the details.
func (l *deadLetter) describe(ctx workflow.Context) {
	s := situation(ctx, &l.DeliveryState)
	if l.State == webhook.StateDeadLettered {
		s.Delivery.CompletedAt, s.Kept = l.GivenUpAt, max(l.KeepUntil.Sub(l.GivenUpAt), 0)
	}
	workflow.SetCurrentDetails(ctx, details(s)+l.refused.details())
}

// reopen opens the next run.
func (l *deadLetter) reopen(ctx workflow.Context) {
	l.cancel = nil // sent before there was anything to cancel
	status, err := reopen(ctx, activities.Reopening{Ref: l.Ref, Run: l.Run, Reason: l.Replay.Reason})
	if err != nil {
		l.stuck = err
		return
	}
	l.Progress, l.Replay = status.Progress, nil
}

// end discards the dead letter, unless the store says otherwise.
func (l *deadLetter) end(ctx workflow.Context, discard CommandSignal) {
	step := l.step()
	step.State, step.Reason = webhook.StateDiscarded, discard.Reason
	if step.Reason == "" {
		step.Reason = webhook.ReasonDiscarded
	}
	status, err := storeStep(ctx, step, "discard")
	if err != nil {
		l.stuck = err
		return
	}
	l.Progress = status.Progress
	if l.State != webhook.StateDeadLettered { // otherwise the store was one step ahead; the loop tries again
		l.Discard = nil
	}
}

// receiveSignals handles all signals that are there. Cancelling the workflow, as the Web UI can, means
// to discard.
func (l *deadLetter) receiveSignals(ctx workflow.Context) {
	l.signals.receiveAll(true, func(command webhook.Command, signal CommandSignal) { l.handle(ctx, command, signal) })
	receiveUnknown(ctx, l.signals.names(), func(name string) { l.refused.add(ctx, name, explain.UnknownSignal(l.signals.names())) })
	if ctx.Err() != nil && l.Discard == nil {
		l.Discard = &CommandSignal{Reason: reasonWorkflowCancelled}
	}
}

// handle keeps a command to a dead letter. A replay that has already been carried out is ignored, and so is
// a command to an earlier run.
// Commands to an open delivery are not acknowledged: if a replay has opened one, its first attempt finds
// them.
func (l *deadLetter) handle(ctx workflow.Context, command webhook.Command, signal CommandSignal) {
	if signal.CommandID != 0 && signal.CommandID <= l.CommandDone || signal.isOfEarlier(l.Run) {
		return
	}
	if why := l.refusal(command, signal); why != "" {
		l.refused.add(ctx, SignalName(command), why)
		return
	}
	switch command {
	case webhook.CommandReplay:
		if signal.Run == 0 || signal.Run > l.Run {
			l.Replay = &signal
		}
	case webhook.CommandDiscard:
		l.Discard = &signal
		l.CommandDone = max(l.CommandDone, signal.CommandID)
	case webhook.CommandCancel:
		if signal.CommandID == 0 {
			l.cancel = &signal
		}
	case webhook.CommandNone, webhook.CommandRetry, webhook.CommandReschedule:
	}
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (l *deadLetter) refusal(command webhook.Command, signal CommandSignal) string {
	switch {
	case signal.CommandID != 0 || signal.Run != 0:
		return ""
	case signal.isOfOther(l.DeliveryID):
		return explain.OtherDelivery
	case command == webhook.CommandReplay || command == webhook.CommandDiscard || l.State.Open():
		return ""
	}
	return explain.OnlyForOpen(l.State)
}

// continueAsNew continues with an empty history, and with the commands that are not carried out yet.
func (l *deadLetter) continueAsNew(ctx workflow.Context) error {
	for _, signal := range []*CommandSignal{l.Replay, l.Discard} {
		if signal != nil {
			signal.CommandID = 0 // it counts as handled: by its id it would be ignored
		}
	}
	l.shown.clear(ctx)
	l.Refused = l.refused
	return continueAs(ctx, DeadLetterWorkflow, l.DeadLetterInput)
}

// continueAsDelivery continues as the delivery that a replay has opened.
func (l *deadLetter) continueAsDelivery(ctx workflow.Context) error {
	l.describe(ctx)
	l.shown.clear(ctx)
	in := DeliveryInput{DeliveryState: DeliveryState{Ref: l.Ref, Progress: l.Progress, CommandDone: l.CommandDone, Trace: l.Trace}, Refused: l.refused}
	if l.cancel != nil {
		in.Command = webhook.PendingCommand{Command: webhook.CommandCancel, Reason: l.cancel.Reason}
	}
	return continueAs(ctx, DeliveryWorkflow, in)
}
