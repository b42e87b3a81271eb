package activities

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// queryTime bounds what an attempt does besides the request: queries and writes.
	queryTime = 20 * time.Second
	// earlyEnough is how much before its due time an attempt may start: timers and clocks
	// are not exact.
	earlyEnough = 50 * time.Millisecond
	// MaxEarly is how much before its due time an attempt may be asked for: it waits for as
	// long, so that attempts that share a timer still start one after another.
	MaxEarly = time.Second
	// busyPause is the least pause before another process's claim is looked at again.
	busyPause = time.Second
	// checkPause is the least time after which a shared workflow asks again for a running
	// request.
	checkPause = 4 * time.Second
)

// AttemptInput says which attempt is to be made: the next one after Progress.
type AttemptInput struct {
	webhook.Ref
	webhook.Progress

	NotBefore   time.Time `json:"not_before,omitzero"` // the event's deliver_at
	CommandDone int64     `json:"command_done,omitempty"`

	// FirstTask says that the delivery's workflow is in its very first task: no task before
	// it can have been lost together with a request that it sent. Only then may a fresh
	// token stand for a claim.
	FirstTask bool `json:"first_task,omitempty"`

	// Running says that the attempt has begun, perhaps in another process. Its claim or its outcome is
	// looked for before admission is asked.
	Running bool `json:"running,omitempty"`

	// Forced: a person has asked for the attempt. It is made although the circuit is open,
	// unless another probe is running.
	Forced bool `json:"probe,omitempty"`

	// Shared is the shared workflow that makes the attempt; "" means the delivery's own workflow.
	Shared string `json:"shared,omitempty"`

	// Faults counts the consecutive internal faults that a shared workflow has met with this
	// delivery.
	Faults int `json:"faults,omitempty"`

	// Faulted says that the delivery's own workflow has met an internal fault with the attempt.
	Faulted bool `json:"faulted,omitempty"`

	reused bool // the attempt before it met the end of a kept connection, see reused.go

	// Trace says where the attempt's span belongs; "" begins a new trace, if there are traces.
	Trace webhook.Trace `json:"trace,omitempty"`

	known bool // see webhook.Step
}

// AttemptResult is the status of the delivery after the attempt.
type AttemptResult struct {
	webhook.Progress

	// Running: the receiver is slow, and the request is still running. A shared workflow
	// asks for it again at CheckAt; a delivery's own workflow waits for it with Join.
	Running bool      `json:"running,omitempty"`
	CheckAt time.Time `json:"check_at,omitzero"`
	// ClaimedUntil: another process has a claim until then; nothing was sent.
	ClaimedUntil time.Time `json:"busy_until,omitzero"` // the name in recorded histories
	// Command is the pending command, if any.
	Command webhook.PendingCommand `json:"command,omitzero"`
	// Found: the attempt was recorded before this activity looked, so that Command may have come after it.
	Found bool `json:"found,omitempty"`
	// LastOutcome is the outcome of this attempt; nil if none was made.
	LastOutcome *webhook.LastOutcome `json:"last_outcome,omitempty"`
	// WorkflowID is the workflow that drives the delivery, as the store says; "" if the
	// store was not asked.
	WorkflowID string `json:"workflow_id,omitempty"`
}

// key identifies the attempt. Its number counts within the run: a run that begins does not know how many attempts
// there were before it.
func (in *AttemptInput) key() attemptKey {
	return attemptKey{in.Ref, in.Run, in.RunAttempts + 1}
}

// ownWorkflowID is the workflow that the delivery's run has for itself.
func (in *AttemptInput) ownWorkflowID() string { return in.WorkflowID(in.Run) }

// workflowID is the workflow that makes the attempt.
func (in *AttemptInput) workflowID() string {
	if in.Shared != "" {
		return in.Shared
	}
	return in.ownWorkflowID()
}

// Attempt makes the next attempt of a delivery, or finds out that it was made: it loads the
// endpoint, asks admission, signs, sends, classifies and records. It waits for the receiver at
// most FastWait, and before that as long again for admission. A slower request runs on, and the
// result says Running.
//
// An error is an internal fault; no attempt is counted.
func (a *Activities) Attempt(ctx context.Context, in AttemptInput) (AttemptResult, error) {
	exec, err := a.startOrJoin(in) //nolint:contextcheck // an attempt outlives the activity that began it
	if err != nil {
		return AttemptResult{}, err
	}
	limit := time.NewTimer(a.waitFor(in))
	defer limit.Stop()
	select {
	case <-exec.done:
		failpoint.Hit("attempt-result")
		return exec.result, exec.err
	case <-limit.C:
		return a.leaveRunning(ctx, exec, in)
	}
}

// waitFor is how long a workflow task waits for an attempt.
func (a *Activities) waitFor(in AttemptInput) time.Duration {
	wait := a.fastWait
	if a.admission.LikelySlow(in.EndpointID) {
		wait = min(slowWait, wait)
	}
	return wait + untilDue(&in, a.now())
}

// leaveRunning leaves an attempt that takes longer running, and claims it. It returns the result
// if the attempt has ended by now.
func (a *Activities) leaveRunning(ctx context.Context, exec *execution, in AttemptInput) (AttemptResult, error) {
	if !a.awaitAdmission(exec) {
		return exec.result, exec.err
	}
	if a.executions.markClaimed(exec) {
		// From here on other processes must know that the request is running, and where.
		if err := a.writeClaim(ctx, exec, in, false); err != nil {
			a.log.WarnContext(ctx, "a slow attempt could not be claimed yet", "delivery", in.DeliveryID, "error", err)
			a.executions.goFor(exec, func() { a.keepClaiming(exec, in) })
		}
	}
	select {
	case <-exec.done: // it ended while the claim was written
		return exec.result, exec.err
	default:
		result := AttemptResult{Progress: in.Progress, Running: true}
		if in.Shared != "" {
			result.CheckAt = a.checkAt(exec)
		}
		return result, nil
	}
}

// checkAt is when a shared workflow asks again for a running request: after checkPause, then after
// as long as the request has taken, or when its timeout is over. So a retry is late by no more
// than that. When a request without a permit will end is not known.
func (a *Activities) checkAt(exec *execution) time.Time {
	now := a.now()
	pause := checkPause
	select {
	case <-exec.admitted:
		taken := now.Sub(exec.began)
		pause = min(max(taken, checkPause), max(exec.timeout-taken, 0)+time.Second)
	default:
	}
	return now.Add(pause)
}

// awaitAdmission waits for an execution that has no permit yet. It will either be deferred, in which
// case a claim would be wrong, or be sent. False: the execution has ended.
func (a *Activities) awaitAdmission(exec *execution) bool {
	select {
	case <-exec.admitted: // admitted: the wait for the receiver is over
	default:
		limit := time.NewTimer(a.fastWait)
		defer limit.Stop()
		select {
		case <-exec.done:
		case <-limit.C: // the store is slow, or the receiver is
		}
	}
	select { // it may have ended by now
	case <-exec.done:
		return false
	default:
		return true
	}
}

// untilDue is how long an attempt that was asked for a little early has to wait.
func untilDue(in *AttemptInput, now time.Time) time.Duration {
	return min(max(in.DueAt.Sub(now), 0), MaxEarly)
}

// startOrJoin returns the attempt's execution: the running one, the remembered one, or a new one.
func (a *Activities) startOrJoin(in AttemptInput) (*execution, error) {
	exec, isNew, err := a.executions.enter(in, a.now())
	if err != nil {
		return nil, fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err)
	}
	if isNew {
		a.attempts.Go(func() { a.runAttempt(a.newAttempt(exec, in)) })
	}
	return exec, nil
}

// runAttempt runs an attempt, in a goroutine of its own, because it may outlive the activity that
// began it.
func (a *Activities) runAttempt(att *attempt) {
	exec, in := att.exec, &att.in
	defer a.executions.end(in.key(), in.Progress, exec)
	exec.span = a.tracer.Start(in.Trace, "attempt")
	exec.span.Delivery(in.Ref)
	exec.span.Number("everpost.attempt.number", in.Attempts+1)
	exec.span.Number("everpost.run", in.Run)
	defer func() {
		if p := recover(); p != nil { // while the outcome was recorded
			exec.err = a.panicked(att.in, p)
		}
		exec.span.End(exec.err)
		if exec.err != nil {
			a.observer.InternalFault(exec.err)
		}
	}()
	exec.result, exec.err = a.execute(att)
}

// panicked logs a panic and makes it an error. The value of a panic may be anything, even a
// payload: unless the runtime made it, it is not logged.
func (a *Activities) panicked(in AttemptInput, value any) error {
	text := fmt.Sprintf("a value of type %T", value)
	if runtimeError, ok := value.(runtime.Error); ok {
		text = runtimeError.Error()
	}
	a.log.Error("an attempt panicked", "delivery", in.DeliveryID, "panic", text, "stack", string(debug.Stack()))
	return fmt.Errorf("attempt %d of %s: panic: %s", in.Attempts+1, in.DeliveryID, text)
}
