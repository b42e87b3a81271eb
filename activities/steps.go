package activities

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// batchTime bounds an activity for many deliveries: less than the activity has, so that what was done counts. The next one does what is left.
	batchTime = 8 * time.Second
	// stepsAtOnce is how many steps of one workflow are written at a time.
	stepsAtOnce = 4
)

// Steps write steps that no attempt led to.
type Steps struct{ *process }

// StepResult is what the store has of a delivery after a step, which is authoritative; or that it has nothing; or a fault.
type StepResult struct {
	webhook.DeliveryStatus

	Gone  bool   `json:"gone,omitempty"`  // the store does not have the delivery, or it is not the one that was named
	Fault string `json:"fault,omitempty"` // why the store could not be asked, in words; the rest is not known then
}

// RecordSteps writes steps that no attempt led to: ends of deliveries, or new due times. If a result's ClaimedUntil is set, another process is
// making an attempt, and the delivery must not end before that time. It never fails: each result says its own fault.
func (s *Steps) RecordSteps(ctx context.Context, all []webhook.Step) ([]StepResult, error) {
	failpoint.Hit("steps-before")
	defer failpoint.Hit("steps-after")
	// All together wait for requests of this process for as long as an attempt would.
	patience := s.fastWait / time.Duration(1+len(all)/stepsAtOnce)
	return each(ctx, s.reporter, all, func(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
		return s.recordStep(ctx, step, patience)
	}), nil
}

// recordStep writes one of them, and waits for a request of this process for up to patience. An error of the code CodeNotFound: there is no
// such delivery.
func (s *Steps) recordStep(ctx context.Context, step webhook.Step, patience time.Duration) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if !step.Fits() || step.Attempt != nil { // only an attempt records an attempt
		return webhook.DeliveryStatus{}, webhook.NotFound("delivery")
	}
	step.Claimant = s.claimant
	if status, recorded, err := s.recordAttemptFirst(ctx, step, patience); recorded {
		return status, err
	}
	status, err := s.store.RecordStep(ctx, step)
	if err != nil {
		return webhook.DeliveryStatus{}, s.internalFault(ctx, fmt.Sprintf("record %s as %s", step.DeliveryID, step.State), err)
	}
	s.forget(&step)
	s.count(&step, status, false)
	return status, nil
}

// recordAttemptFirst records an attempt of the delivery before an end that no attempt led to. It is
// one that this process is making, eagerly or for another workflow, or could not record while the
// store was out of reach. It may have delivered. recorded is false if there is no such attempt.
func (s *Steps) recordAttemptFirst(
	ctx context.Context, step webhook.Step, patience time.Duration,
) (status webhook.DeliveryStatus, recorded bool, err error) {
	in := AttemptInput{Ref: step.Ref, Progress: step.Progress, CommandDone: step.CommandDone}
	if kept, dead := strings.CutPrefix(step.WorkflowID, webhook.DeadLettersPrefix); dead {
		in.Shared, in.KeptIn = kept[:max(strings.LastIndexByte(kept, '/'), 0)], step.WorkflowID
	} else if strings.HasPrefix(step.WorkflowID, webhook.SharedWorkflowPrefix) {
		in.Shared, in.KeptIn = step.WorkflowID, webhook.DeadLettersWorkflowID(step.WorkflowID, 0)
	}
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
	limit := time.NewTimer(patience)
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

// each asks the store for each delivery, a few at a time. A fault or a panic with one is not that of the others.
func each[T any](
	ctx context.Context, r *reporter, all []T, ask func(context.Context, T) (webhook.DeliveryStatus, error),
) []StepResult {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var (
		asked    sync.WaitGroup
		slots    = make(chan struct{}, stepsAtOnce)
		statuses = make([]StepResult, len(all))
	)
	for i := range all {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			status, err := guarded(r, func() (webhook.DeliveryStatus, error) { return ask(ctx, all[i]) })
			switch {
			case webhook.CodeOf(err) == webhook.CodeNotFound:
				statuses[i].Gone = true
			case err != nil:
				_, statuses[i].Fault = describeFault(err)
			default:
				statuses[i].DeliveryStatus = status
			}
		})
	}
	asked.Wait()
	return statuses
}

// guarded turns a panic into an error. Otherwise it would end the process.
func guarded(r *reporter, ask func() (webhook.DeliveryStatus, error)) (status webhook.DeliveryStatus, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.panicked("a step", p)
		}
	}()
	return ask()
}
