package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// DeliveryInput is a delivery to be made, or to be gone on with.
type DeliveryInput struct {
	webhook.Ref
	webhook.Progress

	NotBefore   time.Time `json:"not_before,omitzero"` // the event's deliver_at
	CommandDone int64     `json:"command_done,omitempty"`
	Told        string    `json:"told,omitempty"`   // what the receiver said last, in words
	Cancel      *Asked    `json:"cancel,omitempty"` // taken by the run before and not carried out
	Faults      int       `json:"faults,omitempty"` // our own failures in a row
	LastError   string    `json:"last_error,omitempty"`

	// Of a delivery that a shared workflow has handed over: see activities.Handover.
	HandedOver bool `json:"handed_over,omitempty"`

	Command  webhook.PendingCommand `json:"command,omitzero"`
	UnderWay bool                   `json:"under_way,omitempty"`
	TakeOver bool                   `json:"take_over,omitempty"`

	// Terminated: somebody has terminated the workflow that carried the delivery. It is
	// given up, so that the record and the queue of dead letters say so, unless something was
	// asked of it.
	Terminated bool `json:"terminated,omitempty"`

	// Probe: a person has asked for the next attempt. It goes although the endpoint's circuit
	// is open, and decides whether that closes.
	Probe bool `json:"probe,omitempty"`
}

// DeliveryWorkflow carries one delivery until it rests: attempt, durable timer,
// attempt, as the endpoint's policy says. It ends when the delivery is delivered,
// cancelled or held, and continues as DeadLetterWorkflow when it is given up.
//
// One that begins with a held delivery tries it at once, unless a command says otherwise.
func DeliveryWorkflow(ctx workflow.Context, in DeliveryInput) error {
	d := newDelivery(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, d.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return d.run(ctx)
}

// delivery is the state of a DeliveryWorkflow.
type delivery struct {
	in        DeliveryInput
	signals   signals
	cancelled *Asked        // a cancel that was taken and not yet carried out
	replay    *Asked        // for the dead letter that this becomes: they came before it was one
	discard   *Asked        //
	shown     webhook.State // of the search attribute; pending is not shown
	detailed  bool          // the Web UI has details, which must be kept true
	untold    bool          // the record does not know what this workflow has obeyed, or that it goes on with the delivery
	held      bool          // the record holds the delivery, and there is nothing to try: a release starts another workflow
	stuck     error         // why the end could not be recorded: errGone or errLongHistory
	looked    bool          // it was asked, or known from the start, where the delivery stands
}

// clockSlack is how long an attempt that sent nothing and says nothing of when to
// ask again waits all the same: the record's, the worker's and the server's clocks
// differ, and a delivery that is due by one and not by another must not spin.
const clockSlack = time.Second

func newDelivery(ctx workflow.Context, in DeliveryInput) *delivery {
	d := &delivery{in: in, signals: newSignals(ctx), cancelled: in.Cancel, untold: in.TakeOver}
	d.looked = in.HandedOver || in.TakeOver || in.Run > 1 || in.Seq > 0
	d.in.Cancel, d.in.TakeOver = nil, false
	return d
}

func (d *delivery) status() (Status, error) {
	return Status{Ref: d.in.Ref, Progress: d.in.Progress, LastError: d.in.LastError}, nil
}

func (d *delivery) run(ctx workflow.Context) error {
	d.takeUp(ctx)
	for {
		d.drain(ctx)
		switch {
		case errors.Is(d.stuck, errGone):
			workflow.GetLogger(ctx).Warn("a delivery ends that the record does not know any more", "delivery", d.in.DeliveryID.String())
			return nil
		case d.stuck != nil:
			return d.becomeItself(ctx)
		case d.cancelled != nil && d.in.State.Open():
			d.cancel(ctx)
		case d.in.State == webhook.StateDeadLettered:
			return d.becomeDeadLetter(ctx)
		case !d.in.State.Open(), d.held:
			d.show(ctx)
			return nil // nothing blocked since the drain: no signal is lost
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return d.becomeItself(ctx)
		case d.waits(ctx):
			d.wait(ctx)
		case d.in.Terminated && d.untold:
			d.askFirst(ctx)
		case d.in.Terminated:
			d.giveUp(ctx, webhook.ReasonTerminated)
		case d.in.Faults > 0 && workflow.Now(ctx).After(d.in.GiveUpAt):
			d.giveUp(ctx, string(retry.ReasonInternal))
		default:
			d.attempt(ctx)
		}
	}
}

// takeUp does what a shared workflow has left to be done. A request that is under way
// comes first: what it comes to decides, whatever was asked meanwhile (R5).
func (d *delivery) takeUp(ctx workflow.Context) {
	command := d.in.Command
	d.in.Command = webhook.PendingCommand{}
	if d.in.UnderWay {
		d.attempt(ctx)
	}
	d.obey(ctx, command.Command, askedBy(command))
}

// waits reports whether the next attempt is still to come.
func (d *delivery) waits(ctx workflow.Context) bool {
	return d.until().After(workflow.Now(ctx))
}

// until is when the delivery goes on by itself. One whose turn the gate keeps comes a
// little early and waits for it: durable timers are coarse, and a turn is kept for no more
// than a second.
func (d *delivery) until() time.Time {
	if d.in.Deferred() {
		return d.in.DueAt.Add(-activities.MaxEarly)
	}
	return d.in.DueAt
}

// wait sleeps until the next attempt is due or somebody asks for something.
func (d *delivery) wait(ctx workflow.Context) {
	if d.untold && d.answer(ctx) {
		return // to look again: the record may have told something new
	}
	d.show(ctx)
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	span := d.until().Sub(workflow.Now(ctx))
	if d.untold { // the record was out of reach
		span = min(span, longestPause)
	}
	timer := workflow.NewTimerWithOptions(timerCtx, span, workflow.TimerOptions{Summary: d.waitSummary()})
	selector := workflow.NewSelector(ctx)
	selector.AddFuture(timer, func(workflow.Future) {})
	selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	d.signals.wake(selector)
	selector.Select(ctx)
}

func (d *delivery) waitSummary() string {
	switch {
	case d.in.Faults > 0:
		return fmt.Sprintf("our own fault, try again (%d)", d.in.Faults)
	case d.in.Deferred():
		return fmt.Sprintf("attempt %d at %s: %s", d.in.Attempts+1, d.in.DueAt.UTC().Format(time.TimeOnly), plain(d.in.Reason))
	case d.in.Attempts == 0:
		return "until " + d.in.DueAt.UTC().Format(time.RFC3339)
	default:
		return fmt.Sprintf("retry %d at %s, after %s", d.in.RunAttempts, d.in.DueAt.UTC().Format(time.TimeOnly), d.in.Told)
	}
}

// attempt makes the next attempt and takes over what the record says after it.
func (d *delivery) attempt(ctx workflow.Context) {
	before := d.in.Attempts
	result, err := makeAttempt(ctx, d.in)
	d.in.UnderWay, d.held = false, false
	first := !d.looked
	d.looked = true
	if err != nil {
		if first {
			d.replay, d.discard = nil, nil // the relay signals them again
		}
		d.fault(ctx, err)
		return
	}
	d.in.Faults, d.in.LastError = 0, ""
	d.in.Progress, d.held = result.Progress, result.State == webhook.StateHeld
	if first && d.in.State != webhook.StateDeadLettered {
		d.replay, d.discard = nil, nil // of a delivery that is no dead letter
	}
	if !result.BusyUntil.IsZero() {
		d.waitUntil(result.BusyUntil)
	} else {
		d.in.Probe = false
	}
	if d.in.State.Open() && !d.held && d.in.Attempts == before && !d.waits(ctx) {
		d.in.DueAt = workflow.Now(ctx).Add(clockSlack)
	}
	if result.Told != "" {
		d.in.Told = result.Told
	}
	if d.in.Attempts > before {
		d.untold = false // the attempt's step has told the record
		if result.Command.Command == webhook.CommandRetry {
			// R7: this attempt was it. The next one keeps its time, and the record has to be
			// told: it keeps the command until a step says that it was seen.
			d.in.CommandDone, d.untold = max(d.in.CommandDone, result.Command.ID), true
			return
		}
	}
	if d.isElsewhere(result.WorkflowID) {
		d.untold = true // begun by a shared workflow, which has handed it over since
	}
	d.obey(ctx, result.Command.Command, askedBy(result.Command))
}

// answer tells the record which commands have been seen, when the next attempt is
// due after them, and who goes on with the delivery. Without it the relay would
// signal a command again, every few seconds, until the next attempt is recorded.
// It reports whether the record was in reach; if not, the next signal brings it up
// again.
func (d *delivery) answer(ctx workflow.Context) bool {
	d.untold = false
	step := d.next()
	step.LastError = d.in.LastError
	standing, err := recordOnce(ctx, step, "who goes on, and which commands were seen")
	if err != nil {
		d.untold = true
		return false
	}
	d.adopt(ctx, standing)
	return true
}

// fault waits after a failure of our own: 1 s doubling to 1 min. No attempt is
// counted and the receiver is not blamed.
func (d *delivery) fault(ctx workflow.Context, err error) {
	d.in.Faults++
	d.in.LastError = words(err)
	delay := min(time.Second<<min(d.in.Faults-1, 6), time.Minute)
	d.waitUntil(workflow.Now(ctx).Add(delay))
	workflow.GetLogger(ctx).Warn("an attempt could not be made", "delivery", d.in.DeliveryID.String(), "tries", d.in.Faults, "error", d.in.LastError)
	if d.in.Faults == 1 || d.in.Faults%10 == 0 {
		// Told to whoever asks for the delivery, if the record can be reached at all.
		step := d.next()
		step.LastError = d.in.LastError
		if standing, err := recordOnce(ctx, step, "own fault"); err == nil {
			d.adopt(ctx, standing)
		}
	}
}

// cancel ends the delivery, unless the record knows better: delivered wins. Where
// the record was only further on its way, the cancel is still to be carried out.
func (d *delivery) cancel(ctx workflow.Context) {
	step := d.next()
	step.State, step.Reason = webhook.StateCancelled, d.cancelled.Reason
	if step.Reason == "" {
		step.Reason = webhook.ReasonCancelled
	}
	step.DueAt = time.Time{}
	if !d.end(ctx, step, "cancel") {
		return
	}
	if !d.in.State.Open() || d.in.Run != step.Run {
		d.cancelled = nil
	}
}

// askFirst tells the record who goes on with a delivery whose workflow was terminated, and so
// finds what was asked of it before and after that.
func (d *delivery) askFirst(ctx workflow.Context) {
	d.untold = false
	step := d.next()
	step.LastError = d.in.LastError
	d.end(ctx, step, "who goes on, and what was asked")
}

// giveUp ends a delivery that something of ours keeps from its attempts.
func (d *delivery) giveUp(ctx workflow.Context, reason string) {
	step := d.next()
	step.State, step.Reason, step.LastError = webhook.StateDeadLettered, reason, d.in.LastError
	step.DueAt = time.Time{}
	if d.end(ctx, step, "give up") {
		d.in.Faults, d.in.Terminated = 0, d.in.Terminated && d.in.State.Open()
	}
}

// end records an end and adopts what the record says; false when it could not.
func (d *delivery) end(ctx workflow.Context, step webhook.Step, why string) bool {
	standing, err := recordStep(ctx, step, why)
	if err != nil {
		d.stuck = err
		return false
	}
	d.adopt(ctx, standing)
	return true
}

func (d *delivery) next() webhook.Step {
	step := webhook.Step{Ref: d.in.Ref, Progress: d.in.Progress, WorkflowID: d.in.WorkflowID(), CommandDone: d.in.CommandDone}
	step.Seq++
	return step
}

func (d *delivery) adopt(ctx workflow.Context, standing webhook.DeliveryStatus) {
	d.in.Progress, d.held = standing.Progress, standing.State == webhook.StateHeld
	if standing.State.Open() && d.isElsewhere(standing.WorkflowID) {
		d.untold = true // the step came too late: a shared workflow's attempt was before it
	}
	d.obey(ctx, standing.Command.Command, askedBy(standing.Command))
}

// isElsewhere reports that the record names another workflow, which goes on with the delivery no
// longer. Of a held one it names none.
func (d *delivery) isElsewhere(named string) bool { return named != "" && named != d.in.WorkflowID() }

// waitUntil puts the next attempt off. Why the delivery waited before does not matter any more.
func (d *delivery) waitUntil(at time.Time) {
	d.in.Progress = d.in.WaitingUntil(at)
	d.in.Reason, d.held = "", false
}

// becomeItself continues with a history of its own, and with a cancel that could not
// be carried out.
func (d *delivery) becomeItself(ctx workflow.Context) error {
	d.in.Cancel, d.in.TakeOver = d.cancelled, d.untold
	return workflow.NewContinueAsNewError(ctx, DeliveryWorkflow, d.in)
}

// becomeDeadLetter continues as the dead letter. The record says dead_lettered already.
//
// Cancelling the workflow in the Web UI at this moment means the dead letter that the
// person sees already: a continued run does not inherit the request, so it is handed on.
func (d *delivery) becomeDeadLetter(ctx workflow.Context) error {
	d.show(ctx)
	if ctx.Err() != nil && d.discard == nil {
		d.discard = &Asked{Reason: reasonWorkflowCancelled}
	}
	return workflow.NewContinueAsNewError(ctx, DeadLetterWorkflow, DeadLetterInput{
		Ref: d.in.Ref, Progress: d.in.Progress, CommandDone: d.in.CommandDone, Told: d.in.Told, Replay: d.replay, Discard: d.discard,
	})
}

// show tells the Web UI where the delivery stands. Off the happy path only: each
// upsert is an event of the history and a write of the visibility store.
func (d *delivery) show(ctx workflow.Context) {
	if d.in.Attempts == 1 && d.in.State == webhook.StateDelivered && !d.detailed {
		return // the happy path: a completed workflow without a state says enough
	}
	if d.shown != d.in.State {
		d.shown = d.in.State
		showState(ctx, d.in.State)
	}
	d.detailed = true
	workflow.SetCurrentDetails(ctx, details(d.in.Ref, d.in.Progress, d.in.Told, d.in.LastError))
}
