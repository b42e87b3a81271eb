package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/everpost/everpost/internal/webhook"
)

// HeartbeatEvery is the interval of a Join's heartbeats. The heartbeat timeout must be several
// times as long.
const HeartbeatEvery = 3 * time.Second

// joinPoll is how often a Join looks whether another process has recorded the outcome that it
// waits for.
const joinPoll = time.Second

// Join waits for an attempt that Attempt left running: in this process; or in the store, which
// another process writes; or, if that process's claim has run out without an outcome, by sending
// again under the same number.
//
// R11: when its worker stops, it waits for a request of this process, which the process waits for
// anyway. It does not wait for another process's: it returns an error, and Temporal starts it
// again on another worker.
func (a *Activities) Join(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	stopping := activity.GetWorkerStopChannel(ctx)
	in.Running = true
	heartbeat := time.NewTicker(HeartbeatEvery)
	defer heartbeat.Stop()
	for {
		exec, err := a.startOrJoin(in)
		if err != nil {
			return AttemptResult{}, err
		}
		if err := await(ctx, exec.done, nil, heartbeat.C); err != nil {
			return AttemptResult{}, err
		}
		if exec.err != nil || exec.result.ClaimedUntil.IsZero() {
			return exec.result, exec.err
		}
		again, stop := context.WithTimeout(ctx, min(exec.result.ClaimedUntil.Sub(a.now()), joinPoll))
		err = await(ctx, again.Done(), stopping, heartbeat.C)
		stop()
		if err != nil {
			return AttemptResult{}, err
		}
	}
}

// findElsewhere looks for an attempt that another process makes or has made. elsewhere is false if there is none.
// Admission knows nothing of it: the other process has the permit.
func (a *Activities) findElsewhere(ctx context.Context, exec *execution, in AttemptInput) (result AttemptResult, elsewhere bool, err error) {
	status, err := a.store.ClaimStatus(ctx, in.DeliveryID, a.owner)
	switch {
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		return AttemptResult{}, false, nil
	case err != nil:
		return AttemptResult{}, false, a.internalFault(ctx, fmt.Sprintf("look for attempt %d of %s", in.Attempts+1, in.DeliveryID), err)
	}
	a.outage.end()
	result = resultOf(in, status)
	switch {
	case status.After(in.Progress), !status.State.Open():
		exec.settled = true
		return result, true, nil
	case !status.ClaimedUntil.IsZero():
		result.Progress = in.Progress
		return a.busy(result, status.ClaimedUntil), true, nil
	default:
		return AttemptResult{}, false, nil
	}
}

// RecordStep writes a step that no attempt led to: the end of a delivery, or a new due time. The
// status that it returns is authoritative. If ClaimedUntil is set, another process is making an
// attempt, and the delivery must not end before that time.
//
// An error of the type ErrorGone says that the delivery does not exist any more.
func (a *Activities) RecordStep(ctx context.Context, step webhook.Step) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	step.Owner = a.owner
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
	if step.Attempt != nil || step.State.Open() {
		return webhook.DeliveryStatus{}, false, nil
	}
	exec := a.executions.runningOf(in)
	if exec == nil {
		if !a.executions.isUnrecorded(in.key()) {
			return webhook.DeliveryStatus{}, false, nil
		}
		if exec, err = a.startOrJoin(in); err != nil {
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

// Reopening is the input of Reopen.
type Reopening struct {
	webhook.Ref

	Run    int    `json:"run"` // of the dead letter
	Reason string `json:"reason,omitempty"`
}

// Reopen opens the next run of a dead letter, unless it was opened already. The status that it
// returns is authoritative. Errors are RecordStep's.
func (a *Activities) Reopen(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	status, err := a.store.Reopen(ctx, in.Ref, in.Run, in.Reason)
	if err != nil {
		return webhook.DeliveryStatus{}, gone(a.internalFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err))
	}
	return status, nil
}

// KeepFor is how long dead letters are kept.
func (a *Activities) KeepFor(context.Context) (time.Duration, error) { return a.keepDeadLetters, nil }

// errWorkerStopping ends a Join whose worker is stopping.
var errWorkerStopping = errors.New("join: this worker is stopping; another one goes on waiting")

// await waits for done, and sends heartbeats meanwhile. It returns an error when stopping is
// closed. A nil channel is never closed.
func await(ctx context.Context, done, stopping <-chan struct{}, heartbeat <-chan time.Time) error {
	for {
		select {
		case <-stopping:
			return errWorkerStopping
		case <-done:
			if ctx.Err() == nil {
				return nil
			}
			return fmt.Errorf("join: %w", context.Cause(ctx))
		case <-heartbeat:
			activity.RecordHeartbeat(ctx)
		case <-ctx.Done():
			return fmt.Errorf("join: %w", context.Cause(ctx))
		}
	}
}
