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

// record writes the step. The status that the store returns is the result.
func (a *Activities) record(ctx context.Context, run *attemptRun, in AttemptInput, step webhook.Step) (AttemptResult, error) {
	if step.Attempt != nil {
		run.unrecorded = &step // from here on this process does not send it again
	}
	step.Owner = a.owner
	status, err := a.store.RecordStep(ctx, step)
	for rebased := 0; err == nil && isMissing(step, status); rebased++ {
		if rebased == maxRebases {
			return AttemptResult{}, fmt.Errorf("record %s: other steps were recorded before it %d times", in.DeliveryID, maxRebases)
		}
		step.Seq = status.Seq + 1
		status, err = a.store.RecordStep(ctx, step)
	}
	if err != nil {
		return AttemptResult{}, a.internalFault(ctx, fmt.Sprintf("record %s", in.DeliveryID), err)
	}
	if isRefused(step, status) {
		return a.busy(resultOf(in, status), status.OwnedUntil), nil
	}
	a.outage.end()
	run.unrecorded, run.settled = nil, true
	if step.Attempt != nil {
		a.observer.Attempted(in.Ref, step.Attempt, status.Progress)
	}
	a.forget(&step)
	a.notifyEnded(&step, status)
	result := resultOf(in, status)
	if step.Attempt != nil {
		result.LastOutcome = webhook.LastOutcomeOf(step.Attempt)
	}
	return result, nil
}

// notifyEnded reports a delivery that a step without an attempt has ended.
func (a *Activities) notifyEnded(step *webhook.Step, status webhook.DeliveryStatus) {
	applied := status.Run == step.Run && status.Seq == step.Seq && status.State == step.State
	if step.Attempt == nil && !step.State.Open() && applied {
		a.ended(step.Ref, status.Progress)
	}
}

// resultOf is the store's status as a result.
func resultOf(in AttemptInput, status webhook.DeliveryStatus) AttemptResult {
	return AttemptResult{Progress: status.Progress, Command: in.unhandled(status), WorkflowID: status.WorkflowID}
}

// isMissing reports that an attempt was made and the store does not count it, because the workflow
// recorded another step meanwhile: an internal fault, while the request was running or its outcome
// could not be recorded. The attempt is recorded after that step; otherwise it would be repeated.
func isMissing(step webhook.Step, status webhook.DeliveryStatus) bool {
	return step.Attempt != nil && status.Run == step.Run && status.State.Open() && status.Attempts < step.Attempts
}

// isRefused reports that the store has refused to end the delivery, because another process has
// the right to send: its request may be delivering just now.
func isRefused(step webhook.Step, status webhook.DeliveryStatus) bool {
	return step.Attempt == nil && !step.State.Open() && status.State.Open() && !status.OwnedUntil.IsZero()
}

// busy is the result while another process has the right to send. If that right has run out by
// this process's clock, or ended between two statements, the pause is busyPause.
func (a *Activities) busy(result AttemptResult, until time.Time) AttemptResult {
	result.BusyUntil = until
	if soonest := a.now().Add(busyPause); result.BusyUntil.Before(soonest) {
		result.BusyUntil = soonest
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
