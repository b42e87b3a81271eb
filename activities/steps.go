package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Steps write steps that no attempt led to.
type Steps struct{ *process }

// RecordStep writes a step that no attempt led to: the end of a delivery, or a new due time. The
// status that it returns is authoritative. If ClaimedUntil is set, another process is making an
// attempt, and the delivery must not end before that time.
//
// An error of the type ErrorGone says that the delivery does not exist any more, or is not the one that the step names.
func (s *Steps) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !step.Fits() || step.Attempt != nil { // only an attempt records an attempt
		return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
	}
	step.Claimant = s.claimant
	if status, recorded, err := s.recordAttemptFirst(ctx, step); recorded {
		return status, err
	}
	status, err := s.store.RecordStep(ctx, step)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(s.internalFault(ctx, fmt.Sprintf("record %s as %s", step.DeliveryID, step.State), err))
	}
	s.forget(&step)
	s.count(&step, status, false)
	return status, nil
}

// recordAttemptFirst records an attempt of the delivery before an end that no attempt led to. It is
// one that this process is making, eagerly or for another workflow, or could not record while the
// store was out of reach. It may have delivered. recorded is false if there is no such attempt.
func (s *Steps) recordAttemptFirst(ctx context.Context, step webhook.Step) (status webhook.DeliveryStatus, recorded bool, err error) {
	in := AttemptInput{Ref: step.Ref, Progress: step.Progress, CommandDone: step.CommandDone}
	in.Seq-- // the attempt follows the step that the end follows
	if step.State.Open() {
		return webhook.DeliveryStatus{}, false, nil
	}
	exec := s.executions.runningOf(in)
	if exec == nil {
		if !s.executions.isUnrecorded(in.key()) {
			return webhook.DeliveryStatus{}, false, nil
		}
		if exec, err = s.startOrJoin(in); err != nil {
			return webhook.DeliveryStatus{}, true, err
		}
	}
	limit := time.NewTimer(s.fastWait)
	defer limit.Stop()
	select {
	case <-exec.done:
		return webhook.DeliveryStatus{Progress: exec.result.Progress, Command: exec.result.Command, WorkflowID: exec.result.WorkflowID}, true, exec.err
	case <-limit.C: // the receiver is slow
		running := in.Progress
		running.State = webhook.StatePending // open, whatever the step says
		return webhook.DeliveryStatus{Progress: running, ClaimedUntil: s.now().Add(busyPause)}, true, nil
	case <-ctx.Done():
		return webhook.DeliveryStatus{}, true, fmt.Errorf("record %s: %w", step.DeliveryID, context.Cause(ctx))
	}
}
