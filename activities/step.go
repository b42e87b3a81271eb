package activities

import (
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// stepAfter is the step that an attempt leads to, by the endpoint's retry policy. leastDelay is Config.LeastRetryDelay.
func (in *AttemptInput) stepAfter(target *webhook.Target, made webhook.Attempt, leastDelay time.Duration) webhook.Step {
	outcome, ended := made.Outcome, made.StartedAt.Add(made.Latency)
	step := in.next()
	step.Attempts++
	made.Run = in.Run
	step.Attempt = &made
	if isReused(&made) {
		step.State, step.DueAt, step.Delay = webhook.StateRetrying, made.StartedAt.Add(-dueBefore).UTC().Truncate(time.Microsecond), in.Delay
		return step
	}
	step.RunAttempts++
	step.Ambiguous = 0
	if outcome.Ambiguous {
		step.Ambiguous = in.Ambiguous + 1
	}
	policy, source := target.PolicyInForce()
	if source != webhook.PolicyOfInstallation {
		policy.MinDelay = max(policy.MinDelay, leastDelay)
	}
	decision := policy.Next(retry.Progress{
		Attempts: step.RunAttempts, Ambiguous: step.Ambiguous, Previous: in.Delay, Outcome: outcome, Now: ended, GiveUpAt: in.GiveUpAt,
		Random: retry.Random(step.Attempts, in.DeliveryID.String(), strconv.Itoa(in.Run)),
	})
	switch decision.Action {
	case retry.Deliver:
		step.State = webhook.StateDelivered
	case retry.Wait:
		step.State, step.DueAt, step.Delay = webhook.StateRetrying, decision.At.Truncate(time.Microsecond), decision.Delay
		step.Attempt.Delay, step.Attempt.DelaySource, step.Attempt.Nominal = decision.Delay, string(decision.Source), decision.Nominal
	case retry.GiveUp:
		step.SetDeadLettered(string(decision.Reason), in.KeptIn)
	}
	return step
}

// next is the step after the input's, without a change.
func (in *AttemptInput) next() webhook.Step {
	step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.workflowID(), CommandDone: in.CommandDone, Known: in.known}
	step.Seq++
	step.Reason, step.DueAt, step.Delay, step.HeldUntil = "", time.Time{}, 0, time.Time{}
	return step
}

// giveUpStep is a step that makes the delivery a dead letter without another attempt.
func (in *AttemptInput) giveUpStep(reason string) webhook.Step {
	step := in.next()
	step.SetDeadLettered(reason, in.KeptIn)
	return step
}

// cancelStep is a step that cancels the delivery.
func (in *AttemptInput) cancelStep(reason string) webhook.Step {
	step := in.next()
	step.State, step.Reason = webhook.StateCancelled, reason
	return step
}

// waitStep is a step that sets the due time.
func (in *AttemptInput) waitStep(due time.Time) webhook.Step {
	step := in.next()
	step.DueAt = due
	return step
}

// holdStep is a step into a hold. A held delivery has no workflow.
func (in *AttemptInput) holdStep(reason string, maxHeld time.Duration, now time.Time) webhook.Step {
	step := in.next()
	step.Progress, step.WorkflowID = step.Holding(reason, now, maxHeld), ""
	return step
}
