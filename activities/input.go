package activities

import (
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// earlyEnough is how much before its due time an attempt may start: timers and clocks
	// are not exact.
	earlyEnough = 50 * time.Millisecond
	// MaxEarly is how much before its due time an attempt may be asked for: it waits for as
	// long, so that attempts that share a timer still start one after another.
	MaxEarly = time.Second
	// busyPause is the least pause before another process's claim is looked at again.
	busyPause = time.Second
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

	// KeptIn is the workflow that keeps the delivery if this attempt makes it a dead letter; "" means the delivery's own.
	KeptIn string `json:"kept_in,omitempty"`

	// Faults counts the consecutive internal faults that the workflow has met with this delivery.
	Faults int `json:"faults,omitempty"`

	reused bool // the attempt before it met the end of a kept connection, see reused.go

	// Trace says where the attempt's span belongs; "" begins a new trace, if there are traces.
	Trace webhook.Trace `json:"trace,omitempty"`

	known bool // see webhook.Step
}

// attemptKey identifies an attempt. The number counts from 1 in each run.
type attemptKey struct {
	delivery    webhook.Ref // all of it: who names another tenant does not get the result
	run, number int
}

// key identifies the attempt. Its number counts within the run: a run that begins does not know how many attempts
// there were before it.
func (in *AttemptInput) key() attemptKey {
	return attemptKey{in.Ref, in.Run, in.RunAttempts + 1}
}

// title names the attempt in logs and errors.
func (in *AttemptInput) title() string {
	return fmt.Sprintf("attempt %d of %s", in.Attempts+1, in.DeliveryID)
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

// untilDue is how long an attempt that was asked for a little early has to wait.
func untilDue(in *AttemptInput, now time.Time) time.Duration {
	return min(max(in.DueAt.Sub(now), 0), MaxEarly)
}

// unhandled is the status's command, unless the workflow has handled it.
func (in *AttemptInput) unhandled(status *webhook.DeliveryStatus) webhook.PendingCommand {
	if status.Command.Command == webhook.CommandNone || status.Command.ID <= in.CommandDone {
		return webhook.PendingCommand{}
	}
	return status.Command
}

// AttemptResult is the status of the delivery after the attempt.
type AttemptResult struct {
	webhook.Progress

	// Running: the receiver is slow, and the request is still running. The workflow asks for it again at CheckAt.
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

// resultOf is the store's status as a result.
func resultOf(in *AttemptInput, status webhook.DeliveryStatus) AttemptResult {
	return AttemptResult{Progress: status.Progress, Command: in.unhandled(&status), WorkflowID: status.WorkflowID}
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
