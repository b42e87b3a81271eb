package activities

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/internal/webhook"
)

// maxRebases bounds how often a step is moved behind one that was recorded meanwhile.
const maxRebases = 5

// record writes the step of an attempt, even while this process stops. The status that the store returns is the result.
func (att *attempt) record(step *webhook.Step) (AttemptResult, error) {
	exec, in := att.exec, &att.in
	ctx, cancel := context.WithTimeout(exec.span.In(att.records), queryTime)
	defer cancel()
	again := exec.unrecorded != nil // the outcome of an earlier write of the attempt is unknown
	if step.Attempt != nil {
		exec.unrecorded = step // from here on this process does not send it again
	}
	step.Claimant = att.claimant
	status, err := att.store.RecordStep(ctx, *step)
	for rebased := 0; err == nil && isMissing(step, &status); rebased++ {
		if rebased == maxRebases {
			return AttemptResult{}, fmt.Errorf("record %s: other steps were recorded before it %d times", in.DeliveryID, maxRebases)
		}
		moved := *step
		moved.Seq, moved.Overrides = status.Seq+1, status.Attempts >= step.Attempts
		step, exec.unrecorded = &moved, &moved
		status, err = att.store.RecordStep(ctx, moved)
	}
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		exec.unrecorded = nil
		return in.unknown(), nil
	}
	if err != nil {
		return AttemptResult{}, att.internalFault(ctx, fmt.Sprintf("record %s", in.DeliveryID), err)
	}
	if !status.ClaimedUntil.IsZero() { // the store has refused to end or hold the delivery
		return busy(resultOf(in, status), status.ClaimedUntil, att.now()), nil
	}
	att.outage.end()
	exec.unrecorded = nil
	exec.span.Text("everpost.state", status.State.String())
	exec.span.Text("everpost.reason", step.Reason)
	result := resultOf(in, status)
	if step.Attempt != nil {
		att.observer.Attempted(in.Ref, step.Attempt, status.Progress)
		result.LastOutcome = webhook.LastOutcomeOf(step.Attempt)
	}
	att.forget(step)
	att.count(step, status, again)
	return result, nil
}

// isMissing reports that an attempt was made and the store does not have it, because another step was recorded
// meanwhile. That is an internal fault, while the request was running or its outcome could not be recorded; or
// the same attempt, which another process has made as well, if only this one was delivered. The attempt is
// recorded after that step; otherwise it would be repeated.
func isMissing(step *webhook.Step, status *webhook.DeliveryStatus) bool {
	return step.Attempt != nil && status.Run == step.Run && status.State.Open() &&
		(status.Attempts < step.Attempts || step.State == webhook.StateDelivered)
}

// forget returns the reservation of a delivery that ends without an attempt.
func (p *process) forget(step *webhook.Step) {
	if step.Attempt == nil && !step.State.Open() {
		p.admission.Forget(step.EndpointID, step.DeliveryID)
	}
}

// count counts what the write of a step has added: nothing if the store had it before. If an earlier
// write of this process had an unknown outcome, that write may have added the step; then it counts now.
func (p *process) count(step *webhook.Step, status webhook.DeliveryStatus, again bool) {
	current := status.Run == step.Run && status.Attempts >= step.Attempts
	attempt := step.Attempt
	if current && !status.Applied && !again { // the store had it before
		attempt = nil
	}
	ended := !step.State.Open() && current && status.State == step.State && (status.Applied || again)
	if attempt != nil || ended {
		p.observer.Counted(step.Ref, attempt, status.Progress, ended)
	}
}
