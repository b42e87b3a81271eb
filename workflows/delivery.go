package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// DeliveryInput is a delivery to be made, or to be continued.
type DeliveryInput struct {
	DeliveryState

	NotBefore time.Time `json:"not_before,omitzero"` // the event's deliver_at

	// HandedOver: another workflow may have made attempts.
	HandedOver bool `json:"handed_over,omitempty"`

	// Terminated: a person terminated the workflow that carried the delivery. The delivery is given
	// up, so that the store and the dead letters show it, unless there is a command for it.
	Terminated bool `json:"terminated,omitempty"`

	// Forced: a person requested the next attempt. It is made although the endpoint's circuit is open,
	// and its outcome decides whether the circuit closes.
	Forced bool `json:"probe,omitempty"`

	// Refused are signals of earlier runs that were ignored.
	Refused []Refusal `json:"refused,omitempty"`
}

// HandOverInput returns the input of the own workflow of a delivery that leaves a shared one.
func HandOverInput(s DeliveryState) DeliveryInput {
	return DeliveryInput{DeliveryState: s, HandedOver: true}
}

// DeliveryWorkflow carries one run of a delivery: attempt, durable timer, attempt, by the endpoint's policy. It
// ends when the delivery is delivered, cancelled or held, or the store names another run, and continues as
// DeadLetterWorkflow when it is given up.
//
// A held delivery is attempted at once, unless a command says otherwise.
func DeliveryWorkflow(ctx workflow.Context, in DeliveryInput) error {
	d := newDelivery(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, d.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return d.run(ctx)
}

// delivery is the state of a DeliveryWorkflow. A cancel that is not carried out yet stays in its Command.
type delivery struct {
	DeliveryInput

	began   int // the run of the delivery that this workflow carries
	signals signals
	replay  *CommandSignal // for the dead letter that this becomes
	discard *CommandSignal // likewise
	refused refusals       // signals that were ignored
	shown   shownState     // in the Web UI
	waited  bool           // it was shown while it waited
	runsIn  string         // the workflow of a later run, as the store says; "" if it is not known
	isHeld  bool           // the store holds the delivery: its release starts another workflow
	stuck   error          // why the end could not be stored: errGone or errLongHistory
	synced  bool           // the store's status of the delivery is known
}

// clockSlack is the least wait after an attempt that sent nothing and names no time: the clocks of the
// store, the worker and Temporal differ, and a delivery that is due by only one of them must not spin.
const clockSlack = time.Second

func newDelivery(ctx workflow.Context, in DeliveryInput) *delivery {
	return &delivery{
		DeliveryInput: in, began: in.Run, signals: newSignals(ctx), refused: in.Refused,
		synced: in.HandedOver || in.Unconfirmed || in.Run > 1 || in.Seq > 0,
	}
}

func (d *delivery) status() (Status, error) {
	return Status{Ref: d.Ref, Progress: d.Progress, LastError: d.LastError}, nil
}

func (d *delivery) run(ctx workflow.Context) error {
	if d.synced { // else it has the summary that it was started with
		d.describe(ctx)
	}
	d.finishHandOver(ctx)
	for {
		d.receiveSignals(ctx)
		switch {
		case d.refused.audit(ctx, d.TenantID, d.DeliveryID.String(), d.DeliveryID):
			d.describe(ctx)
		case errors.Is(d.stuck, errGone):
			workflow.GetLogger(ctx).Warn("a delivery ends that is no longer in the store", "delivery", d.DeliveryID.String())
			return nil
		case d.Run != d.began:
			workflow.SetCurrentDetails(ctx, explain.OtherRun(d.Run, d.runsIn)+"\n"+d.refused.details())
			d.shown.clear(ctx)
			return nil
		case d.stuck != nil:
			return d.continueAsNew(ctx)
		case d.isCancelled() && d.State.Open():
			d.cancel(ctx)
		case d.State == webhook.StateDeadLettered:
			return d.continueAsDeadLetter(ctx)
		case !d.State.Open(), d.isHeld:
			d.show(ctx)
			return nil // nothing has blocked since the signals were received: none is lost
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return d.continueAsNew(ctx)
		case d.waits(ctx):
			d.wait(ctx)
		case d.Terminated && d.Unconfirmed:
			d.confirmTerminated(ctx)
		case d.Terminated:
			d.giveUp(ctx, webhook.ReasonTerminated)
		case d.Faults > 0 && workflow.Now(ctx).After(d.GiveUpAt):
			d.giveUp(ctx, string(retry.ReasonInternal))
		default:
			d.attempt(ctx)
		}
	}
}

// finishHandOver continues what a shared workflow left unfinished. A request that is under way comes
// first: its outcome decides, whatever command came meanwhile (R5).
func (d *delivery) finishHandOver(ctx workflow.Context) {
	command := d.takeCommand()
	if d.Running {
		d.attempt(ctx)
	}
	d.receive(ctx, command.Command, signalOf(command))
}

// waits reports whether the next attempt is still to come.
func (d *delivery) waits(ctx workflow.Context) bool {
	return d.nextStep().After(workflow.Now(ctx))
}

// wait sleeps until the next attempt is due or a signal comes.
func (d *delivery) wait(ctx workflow.Context) {
	if d.Unconfirmed && d.confirm(ctx) {
		return // the store's answer may have changed the state
	}
	d.show(ctx)
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	span := d.nextStep().Sub(workflow.Now(ctx))
	if d.Unconfirmed { // the store was unavailable
		span = min(span, longestPause)
	}
	timer := workflow.NewTimerWithOptions(timerCtx, span, workflow.TimerOptions{Summary: d.waitSummary()})
	await(ctx, timer)
}

func (d *delivery) waitSummary() string {
	switch {
	case d.Faults > 0:
		return fmt.Sprintf("internal fault, next try (%d)", d.Faults)
	case d.Deferred():
		return fmt.Sprintf("attempt %d at %s: %s", d.Attempts+1, d.DueAt.UTC().Format(time.TimeOnly), explain.Wait(d.Reason))
	case d.Attempts == 0:
		return "until " + d.DueAt.UTC().Format(time.RFC3339)
	default:
		return fmt.Sprintf("retry %d at %s, after %s", d.RunAttempts, d.DueAt.UTC().Format(time.TimeOnly), d.LastOutcome)
	}
}

// attempt makes the next attempt and handles the command that its result brings.
func (d *delivery) attempt(ctx workflow.Context) {
	before := d.Attempts
	result, err := makeAttempt(ctx, d.DeliveryInput, func() { d.describeRunning(ctx) })
	d.Running, d.isHeld = d.Running && err != nil, false
	first := !d.synced
	d.synced = true
	if err != nil {
		if first {
			d.replay, d.discard = nil, nil // the relay signals them again
		}
		d.fault(ctx, err)
		return
	}
	d.apply(&result)
	d.runsIn = result.WorkflowID
	d.isHeld = d.State == webhook.StateHeld
	if first && d.State != webhook.StateDeadLettered {
		d.replay, d.discard = nil, nil // they do not apply: this is not a dead letter
	}
	d.Forced = d.Forced && !result.ClaimedUntil.IsZero()
	if d.State.Open() && !d.isHeld && d.Attempts == before && !d.waits(ctx) {
		d.DueAt = workflow.Now(ctx).Add(clockSlack)
	}
	command := d.takeCommand()
	d.handle(ctx, command.Command, signalOf(command))
}

// confirm stores which commands have been handled, when the next attempt is due after them, and that
// this workflow continues the delivery. Without it the relay would signal a command again, every few
// seconds, until the next attempt is stored. It reports whether the store was available; if not, the
// next signal repeats it.
func (d *delivery) confirm(ctx workflow.Context) bool {
	d.Unconfirmed = false
	step := d.step()
	step.LastError = d.LastError
	status, err := storeOnce(ctx, step, "workflow and handled commands")
	if err != nil {
		d.Unconfirmed = true
		return false
	}
	d.sync(ctx, status)
	return true
}

// fault waits after an internal fault.
func (d *delivery) fault(ctx workflow.Context, err error) {
	d.waitUntil(workflow.Now(ctx).Add(d.addFault(message(err))))
	workflow.GetLogger(ctx).Warn("an attempt could not be made", "delivery", d.DeliveryID.String(), "tries", d.Faults, "error", d.LastError)
	if d.Faults == 1 || d.Faults%10 == 0 { // shown with the delivery, if the store is available
		step := d.step()
		step.LastError = d.LastError
		if status, err := storeOnce(ctx, step, "internal fault"); err == nil {
			d.sync(ctx, status)
		}
	}
}

// cancel ends the delivery, unless the store has its end already: delivered wins. If the store was only
// at a later step, the cancel is still to be carried out.
func (d *delivery) cancel(ctx workflow.Context) {
	cancel, step := d.Command, d.step()
	step.State, step.Reason, step.DueAt = webhook.StateCancelled, cancel.Reason, time.Time{}
	if step.Reason == "" {
		step.Reason = webhook.ReasonCancelled
	}
	if d.end(ctx, step, "cancel") && !d.State.Open() {
		d.takeCommand()
	}
}

// confirmTerminated stores that this workflow continues a delivery whose workflow was terminated, and so
// finds the commands that came before and after that.
func (d *delivery) confirmTerminated(ctx workflow.Context) {
	d.Unconfirmed = false
	step := d.step()
	step.LastError = d.LastError
	d.end(ctx, step, "workflow, and pending commands")
}

// giveUp ends a delivery whose attempts something internal prevents.
func (d *delivery) giveUp(ctx workflow.Context, reason string) {
	step := d.step()
	step.SetDeadLettered(reason, "")
	step.LastError = d.LastError
	if d.end(ctx, step, "give up") {
		d.Faults, d.Terminated = 0, d.Terminated && d.State.Open()
	}
}

// end stores an end and syncs with the store's status; false when it could not.
func (d *delivery) end(ctx workflow.Context, step webhook.Step, why string) bool {
	status, err := storeStep(ctx, step, why)
	if err != nil {
		d.stuck = err
		return false
	}
	d.sync(ctx, status)
	return true
}

// sync updates the state with the store's status, which is authoritative.
func (d *delivery) sync(ctx workflow.Context, status webhook.DeliveryStatus) {
	d.Progress, d.isHeld, d.runsIn = status.Progress, status.State == webhook.StateHeld, status.WorkflowID
	if !status.State.Final() && d.isElsewhere(status.WorkflowID) {
		d.Unconfirmed = true // the step came too late: a shared workflow's attempt was before it
	}
	d.handle(ctx, status.Command.Command, signalOf(status.Command))
}

// continueAsNew continues with an empty history.
func (d *delivery) continueAsNew(ctx workflow.Context) error {
	d.shown.clear(ctx)
	d.Refused = d.refused
	return continueAs(ctx, DeliveryWorkflow, d.DeliveryInput)
}

// continueAsDeadLetter continues as the dead letter. The store says dead_lettered already.
//
// Cancelling the workflow in the Web UI at this moment means the dead letter that the person sees
// already: a continued run does not inherit the request, so it is handed on.
func (d *delivery) continueAsDeadLetter(ctx workflow.Context) error {
	d.describe(ctx)
	d.shown.clear(ctx)
	if ctx.Err() != nil && d.discard == nil {
		d.discard = &CommandSignal{Reason: reasonWorkflowCancelled}
	}
	dead := NewDeadLetter(d.DeliveryState)
	dead.Replay, dead.Discard = d.replay, d.discard
	return continueAs(ctx, DeadLetterWorkflow, DeadLetterInput{DeadLetters: []*DeadLetter{dead}, Refused: d.refused})
}

// show shows the state in the Web UI: in lists only off the happy path.
func (d *delivery) show(ctx workflow.Context) {
	d.describe(ctx)
	if d.Attempts == 1 && d.State == webhook.StateDelivered && !d.waited {
		return // a completed workflow without a state says enough
	}
	d.waited = true
	d.shown.show(ctx, d.State)
}

// describe sets the details.
func (d *delivery) describe(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, details(situation(ctx, &d.DeliveryState))+d.refused.details())
}

// describeRunning sets the details while a request is under way.
func (d *delivery) describeRunning(ctx workflow.Context) {
	running := situation(ctx, &d.DeliveryState)
	running.Delivery.ClaimedUntil = workflow.Now(ctx).Add(joinTimeout)
	workflow.SetCurrentDetails(ctx, details(running)+d.refused.details())
}
