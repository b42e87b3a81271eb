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

// DeadLetterWorkflow keeps a delivery that was given up until it is discarded, or its retention has passed, or another run is
// opened, which has another workflow. Everpost signals a replay to it, once, so that it ends at once. If that signal is lost,
// it ends when it next looks at the store: a day after it began, and each time after twice as long.
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
	refused refusals   // signals that were ignored
	shown   shownState // in the Web UI
	looked  time.Time  // when the store was looked at last
	next    int        // the run that was opened after this one; 0: none that is known
	stuck   error      // why the result of a command could not be stored: errGone or errLongHistory
}

func beginDeadLetter(ctx workflow.Context, in DeadLetterInput) *deadLetter {
	l := &deadLetter{DeadLetterInput: in, signals: newSignals(ctx), refused: in.Refused, shown: shownAtStart(ctx), looked: workflow.Now(ctx)}
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
		case l.next != 0:
			workflow.SetCurrentDetails(ctx, explain.OtherRun(l.next, l.WorkflowID(l.next))+l.refused.details())
			l.shown.clear(ctx)
			return nil // the other run has another workflow
		case l.State.Open(): // the store was restored from an older copy: the reconciler starts what goes on from there
			workflow.GetLogger(ctx).Warn("a dead letter ends that the store has as open", "delivery", l.DeliveryID.String())
			l.shown.clear(ctx)
			return nil
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
		case !workflow.Now(ctx).Before(l.nextLook()):
			l.look(ctx)
		default:
			l.wait(ctx)
		}
	}
}

// wait sleeps until a signal comes, the store is to be looked at, or the retention has passed.
func (l *deadLetter) wait(ctx workflow.Context) {
	l.describe(ctx)
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	until := l.KeepUntil
	if look := l.nextLook(); look.Before(until) {
		until = look
	}
	timer := workflow.NewTimerWithOptions(timerCtx, until.Sub(workflow.Now(ctx)), workflow.TimerOptions{
		Summary: "kept until " + l.KeepUntil.UTC().Format(time.RFC3339),
	})
	await(ctx, timer)
}

// firstLook is how long after a delivery was given up its workflow first looks at the store. The next looks are after twice
// as long each: five in 30 days.
const firstLook = 24 * time.Hour

// nextLook is when the store is to be looked at again.
func (l *deadLetter) nextLook() time.Time {
	after := firstLook
	for !l.GivenUpAt.Add(after).After(l.looked) {
		after *= 2
	}
	return l.GivenUpAt.Add(after)
}

// look finds out whether the store still has this dead letter.
func (l *deadLetter) look(ctx workflow.Context) {
	l.looked = workflow.Now(ctx)
	status, err := readStatus(ctx, l.Ref)
	l.sync(status, err)
}

// sync takes over what the store has, unless that is another run.
func (l *deadLetter) sync(status webhook.DeliveryStatus, err error) {
	switch {
	case err != nil:
		l.stuck = err
	case status.Run != l.Run:
		l.next = status.Run
	default:
		l.Progress = status.Progress
	}
}

// describe sets the details.
func (l *deadLetter) describe(ctx workflow.Context) {
	s := situation(ctx, &l.DeliveryState)
	if l.State == webhook.StateDeadLettered {
		s.Delivery.CompletedAt, s.Kept = l.GivenUpAt, max(l.KeepUntil.Sub(l.GivenUpAt), 0)
	}
	workflow.SetCurrentDetails(ctx, details(s)+l.refused.details())
}

// reopen opens the next run, unless it is open already.
func (l *deadLetter) reopen(ctx workflow.Context) {
	status, err := reopen(ctx, activities.Reopening{Ref: l.Ref, Run: l.Run, Reason: l.Replay.Reason})
	l.sync(status, err)
	if err == nil {
		l.Replay = nil
	}
}

// end discards the dead letter, unless the store says otherwise.
func (l *deadLetter) end(ctx workflow.Context, discard CommandSignal) {
	step := l.step()
	step.State, step.Reason = webhook.StateDiscarded, discard.Reason
	if step.Reason == "" {
		step.Reason = webhook.ReasonDiscarded
	}
	status, err := storeStep(ctx, step, "discard")
	l.sync(status, err)
	if err == nil && l.State != webhook.StateDeadLettered { // otherwise the store was one step ahead; the loop tries again
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
	case webhook.CommandNone, webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule:
	}
}

// refusal is why a signal that was sent by hand is ignored; "" if it is not.
func (l *deadLetter) refusal(command webhook.Command, signal CommandSignal) string {
	switch {
	case signal.CommandID != 0 || signal.Run != 0:
		return ""
	case signal.isOfOther(l.DeliveryID):
		return explain.OtherDelivery
	case command == webhook.CommandReplay || command == webhook.CommandDiscard:
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
