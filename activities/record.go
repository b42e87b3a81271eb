package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/webhook"
)

// maxRebases bounds how often a step is moved behind one that was recorded meanwhile.
const maxRebases = 5

// record writes the step of an attempt, even while this process stops. The status that the store returns is the result.
func (a *Activities) record(att *attempt, step *webhook.Step) (AttemptResult, error) {
	exec, in := att.exec, &att.in
	ctx, cancel := context.WithTimeout(exec.span.In(a.records), queryTime)
	defer cancel()
	again := exec.unrecorded != nil // the outcome of an earlier write of the attempt is unknown
	if step.Attempt != nil {
		exec.unrecorded = step // from here on this process does not send it again
	}
	step.Claimant = a.claimant
	status, err := a.store.RecordStep(ctx, *step)
	for rebased := 0; err == nil && isMissing(step, &status); rebased++ {
		if rebased == maxRebases {
			return AttemptResult{}, fmt.Errorf("record %s: other steps were recorded before it %d times", in.DeliveryID, maxRebases)
		}
		moved := *step
		moved.Seq, moved.Overrides = status.Seq+1, status.Attempts >= step.Attempts
		step, exec.unrecorded = &moved, &moved
		status, err = a.store.RecordStep(ctx, moved)
	}
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		exec.unrecorded = nil
		return in.unknown(), nil
	}
	if err != nil {
		return AttemptResult{}, a.internalFault(ctx, fmt.Sprintf("record %s", in.DeliveryID), err)
	}
	if !status.ClaimedUntil.IsZero() { // the store has refused to end or hold the delivery
		return busy(resultOf(in, status), status.ClaimedUntil, a.now()), nil
	}
	a.outage.end()
	exec.unrecorded = nil
	exec.span.Text("everpost.state", status.State.String())
	exec.span.Text("everpost.reason", step.Reason)
	result := resultOf(in, status)
	if step.Attempt != nil {
		a.observer.Attempted(in.Ref, step.Attempt, status.Progress)
		result.LastOutcome = webhook.LastOutcomeOf(step.Attempt)
	}
	a.forget(step)
	a.count(step, status, again)
	return result, nil
}

// RecordStep writes a step that no attempt led to: the end of a delivery, or a new due time. The
// status that it returns is authoritative. If ClaimedUntil is set, another process is making an
// attempt, and the delivery must not end before that time.
//
// An error of the type ErrorGone says that the delivery does not exist any more, or is not the one that the step names.
func (a *Activities) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !step.Fits() || step.Attempt != nil { // only an attempt records an attempt
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	step.Claimant = a.claimant
	if status, recorded, err := a.recordAttemptFirst(ctx, step); recorded {
		return status, err
	}
	status, err := a.store.RecordStep(ctx, step)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.internalFault(ctx, fmt.Sprintf("record %s as %s", step.DeliveryID, step.State), err))
	}
	a.forget(&step)
	a.count(&step, status, false)
	return status, nil
}

// recordAttemptFirst records an attempt of the delivery before an end that no attempt led to. It is
// one that this process is making, eagerly or for another workflow, or could not record while the
// store was out of reach. It may have delivered. recorded is false if there is no such attempt.
func (a *Activities) recordAttemptFirst(ctx context.Context, step webhook.Step) (status webhook.DeliveryStatus, recorded bool, err error) {
	in := AttemptInput{Ref: step.Ref, Progress: step.Progress, CommandDone: step.CommandDone}
	in.Seq-- // the attempt follows the step that the end follows
	if step.State.Open() {
		return webhook.DeliveryStatus{}, false, nil
	}
	exec := a.executions.runningOf(in)
	if exec == nil {
		if !a.executions.isUnrecorded(in.key()) {
			return webhook.DeliveryStatus{}, false, nil
		}
		if exec, err = a.startOrJoin(in); err != nil { //nolint:contextcheck // an attempt outlives the activity that began it
			return webhook.DeliveryStatus{}, true, err
		}
	}
	limit := time.NewTimer(a.fastWait)
	defer limit.Stop()
	select {
	case <-exec.done:
		return webhook.DeliveryStatus{Progress: exec.result.Progress, Command: exec.result.Command, WorkflowID: exec.result.WorkflowID}, true, exec.err
	case <-limit.C: // the receiver is slow
		running := in.Progress
		running.State = webhook.StatePending // open, whatever the step says
		return webhook.DeliveryStatus{Progress: running, ClaimedUntil: a.now().Add(busyPause)}, true, nil
	case <-ctx.Done():
		return webhook.DeliveryStatus{}, true, fmt.Errorf("record %s: %w", step.DeliveryID, context.Cause(ctx))
	}
}

// count counts what the write of a step has added: nothing if the store had it before. If an earlier
// write of this process had an unknown outcome, that write may have added the step; then it counts now.
func (a *Activities) count(step *webhook.Step, status webhook.DeliveryStatus, again bool) {
	current := status.Run == step.Run && status.Attempts >= step.Attempts
	attempt := step.Attempt
	if current && !status.Applied && !again { // the store had it before
		attempt = nil
	}
	ended := !step.State.Open() && current && status.State == step.State && (status.Applied || again)
	if attempt != nil || ended {
		a.observer.Counted(step.Ref, attempt, status.Progress, ended)
	}
}

// resultOf is the store's status as a result.
func resultOf(in *AttemptInput, status webhook.DeliveryStatus) AttemptResult {
	return AttemptResult{Progress: status.Progress, Command: in.unhandled(&status), WorkflowID: status.WorkflowID}
}

// isMissing reports that an attempt was made and the store does not have it, because another step was recorded
// meanwhile. That is an internal fault, while the request was running or its outcome could not be recorded; or
// the same attempt, which another process has made as well, if only this one was delivered. The attempt is
// recorded after that step; otherwise it would be repeated.
func isMissing(step *webhook.Step, status *webhook.DeliveryStatus) bool {
	return step.Attempt != nil && status.Run == step.Run && status.State.Open() &&
		(status.Attempts < step.Attempts || step.State == webhook.StateDelivered)
}

// busy is the result while another process has a claim. If the claim has expired by this process's
// clock, or ended between two statements, the pause is busyPause.
func busy(result AttemptResult, until, now time.Time) AttemptResult {
	result.ClaimedUntil = until
	if soonest := now.Add(busyPause); result.ClaimedUntil.Before(soonest) {
		result.ClaimedUntil = soonest
	}
	return result
}

// ErrorGone is the type of the error that the delivery, or the replay, does not exist any more. It
// is not retryable.
const ErrorGone = "gone"

// gone gives an error of the code CodeNotFound the type ErrorGone.
func gone(err error) error {
	if webhook.CodeOf(err) != webhook.CodeNotFound {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), ErrorGone, nil)
}
