package activities

import (
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// judge is the step that an attempt leads to.
func (a *Activities) judge(in AttemptInput, target *webhook.Target, made webhook.Attempt) webhook.Step {
	outcome, ended := made.Outcome, made.StartedAt.Add(made.Latency)
	step := in.next()
	step.Attempts++
	step.RunAttempts++
	step.Ambiguous = 0
	if outcome.Ambiguous {
		step.Ambiguous = in.Ambiguous + 1
	}
	policy, _ := target.PolicyInForce()
	verdict := policy.Next(retry.Progress{
		Attempts: step.RunAttempts, Ambiguous: step.Ambiguous, Previous: in.Delay, Outcome: outcome, Now: ended, GiveUpAt: in.GiveUpAt,
		Random: retry.Random(step.Attempts, in.DeliveryID.String(), strconv.Itoa(in.Run)),
	})
	made.Run = in.Run
	step.Attempt = &made
	switch verdict.Action {
	case retry.Deliver:
		step.State = webhook.StateDelivered
	case retry.Wait:
		step.State, step.DueAt, step.Delay = webhook.StateRetrying, verdict.At.Truncate(time.Microsecond), verdict.Delay
		step.Attempt.Delay, step.Attempt.DelaySource, step.Attempt.Nominal = verdict.Delay, verdict.Source.String(), verdict.Nominal
	case retry.GiveUp:
		step.State, step.Reason, step.WorkflowID = webhook.StateDeadLettered, string(verdict.Reason), in.WorkflowID()
	}
	return step
}

// next is the step after the present one, without any change yet.
func (in *AttemptInput) next() webhook.Step {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.holder(), CommandDone: in.CommandDone}
	step.Seq++
	step.Reason, step.DueAt, step.Delay = "", time.Time{}, 0
	return step
}

// end is a step into rest. A dead letter has a workflow of its own.
func (in *AttemptInput) end(state webhook.State, reason string) webhook.Step {
	step := in.next()
	step.State, step.Reason = state, reason
	if state == webhook.StateDeadLettered {
		step.WorkflowID = in.WorkflowID()
	}
	return step
}

func (in *AttemptInput) waitUntil(due time.Time) webhook.Step {
	step := in.next()
	step.DueAt = due
	return step
}

// held is a step into waiting for a release. No workflow carries a held delivery.
func (in *AttemptInput) held(reason string) webhook.Step {
	step := in.waitUntil(time.Time{})
	step.State, step.Reason, step.WorkflowID = webhook.StateHeld, reason, ""
	return step
}
