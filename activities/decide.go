package activities

import (
	"cmp"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// facts are what an attempt has found out so far. Each stage adds to them.
type facts struct {
	leastDelay time.Duration // Config.LeastRetryDelay
	maxHeld    time.Duration // Config.MaxHeld

	unrecorded *webhook.Step // the step of a request that was answered before; nil: there is none

	unstored bool                    // the store does not have the delivery as the input says
	status   *webhook.DeliveryStatus // of an attempt that may run elsewhere; nil: not read, or not stored
	fault    string                  // that keeps the endpoint from being sent to; "": none is known
	target   *webhook.Target         // nil: not loaded, or deleted
	deleted  bool                    // the endpoint
	refusal  *admission.Decision     // why nothing is sent now; nil: there is a permit, or admission was not asked
	claim    *webhook.ClaimResult    // nil: not made
	content  *webhook.Content        // what the right to send came with; nil: there is no right, or no intact payload
	answered bool                    // made is set
	made     webhook.Attempt
	met      error // an internal fault of this attempt
}

// outcome is what becomes of an attempt: a step that is to be recorded, an answer without a step, or an internal fault, which the
// workflow answers by repeating the attempt. The zero outcome lets the attempt go on to its next stage.
type outcome struct {
	step   *webhook.Step
	answer *AttemptResult
	fault  error
}

func (o outcome) goesOn() bool { return o.step == nil && o.answer == nil && o.fault == nil }

func toRecord(step webhook.Step) outcome { return outcome{step: &step} }

func toAnswer(result AttemptResult) outcome { return outcome{answer: &result} }

// decide decides what becomes of an attempt by what is known of it. It is pure. It makes every step of an attempt that was made, and so every
// dead letter but those of workflows that were terminated, or met faults until the give-up time. What is known last decides: each case
// stands for a stage that has come to its end.
func decide(in AttemptInput, f *facts, now time.Time) outcome {
	in.Progress = in.ClockRunning(now) // until now it has stood still, if the delivery was held
	switch {
	case f.met != nil:
		return decideFault(&in, f, now)
	case f.unrecorded != nil:
		return toRecord(in.stepAgain(f.unrecorded))
	case f.unstored:
		return toAnswer(in.unknown())
	case f.refusal != nil:
		return toRecord(in.refusedStep(f, now))
	case f.answered:
		return toRecord(in.stepAfter(f.target, f.made, f.leastDelay))
	case f.claim != nil, f.content != nil:
		return decideToSend(&in, f, now)
	default:
		return decideToAsk(&in, f, now)
	}
}

// decideToAsk decides whether admission is asked for a permit, or before that, without a target, whether the endpoint is loaded.
func decideToAsk(in *AttemptInput, f *facts, now time.Time) outcome {
	if f.status != nil {
		if found := in.found(f.status); !found.goesOn() {
			return found
		}
		if !f.status.ClaimedUntil.IsZero() {
			result := resultOf(in, *f.status)
			result.Progress = in.Progress
			return toAnswer(busy(result, f.status.ClaimedUntil, now))
		}
	}
	// A held delivery is attempted in spite of a fault: it was released to find out, or because a check succeeded.
	if f.fault != "" && in.State != webhook.StateHeld && !in.NotBefore.After(now) {
		return toRecord(in.faultStep(f.fault, f.maxHeld, now))
	}
	switch {
	case f.deleted:
		return toRecord(in.cancelStep(webhook.ReasonEndpointDeleted))
	case f.target == nil:
		return outcome{}
	case f.target.TenantID != in.TenantID:
		return toAnswer(in.unknown())
	}
	reason := holdReason(f.target)
	switch {
	case in.NotBefore.After(now.Add(earlyEnough)):
		return toRecord(in.waitStep(in.NotBefore))
	case reason != "", in.State == webhook.StateHeld && in.Expired(now):
		return toRecord(in.heldStep(reason, f, now))
	case in.Deferred() && !now.Before(in.GiveUpAt):
		return toRecord(in.giveUpStep(webhook.ReasonDeferredExpired))
	}
	return outcome{}
}

// decideToSend decides whether the request is sent: after a claim, or with a fresh token.
func decideToSend(in *AttemptInput, f *facts, now time.Time) outcome {
	if f.claim != nil {
		status := f.claim.Status
		if found := in.found(&status); !found.goesOn() {
			return found
		}
		result := resultOf(in, status)
		if in.After(status.Progress) && status.Run > 0 {
			// The store has lost steps: it was restored from an older copy. It is authoritative
			// all the same, and the delivery goes on from there.
			return toAnswer(result)
		}
		result.Progress = in.Progress
		if !f.claim.Granted {
			return toAnswer(busy(result, status.ClaimedUntil, now))
		}
		if result.Command.Command == webhook.CommandCancel {
			return toAnswer(result) // the workflow ends the delivery
		}
		in.adopt(f.claim)
		in.Progress = in.ClockRunning(now)
	}
	switch {
	case f.content == nil && f.claim.Payload == nil:
		return toRecord(in.giveUpStep(string(retry.ReasonPayloadRemoved)))
	case f.content == nil:
		return toRecord(in.giveUpStep(string(retry.ReasonPayloadCorrupt)))
	case in.Expired(now) && in.Faults > 0:
		return toRecord(in.giveUpStep(webhook.ReasonInternal))
	case in.Expired(now):
		return toRecord(in.giveUpStep(string(retry.ReasonGiveUpTime)))
	}
	return outcome{}
}

// decideFault decides what follows an internal fault in an attempt. Past its give-up time the delivery
// becomes a dead letter. If the fault affects all of the endpoint's deliveries, the delivery is held until a check of the endpoint
// succeeds: each costs a row, and one check serves all. Otherwise the workflow repeats the attempt.
func decideFault(in *AttemptInput, f *facts, now time.Time) outcome {
	affected, text := describeFault(f.met)
	if affected != scopeEndpoint && !in.Expired(now) {
		return outcome{fault: f.met}
	}
	return toRecord(in.faultStep(text, f.maxHeld, now))
}

// stepAgain is a step that could not be recorded before.
func (in *AttemptInput) stepAgain(unrecorded *webhook.Step) webhook.Step {
	step := *unrecorded
	step.KeepOutbox = false                  // a workflow asks for it, so it has been started
	switch eager := unrecorded.KeepOutbox; { // for a workflow that may never be started
	case eager && step.State == webhook.StateDeadLettered:
		step.WorkflowID = cmp.Or(in.KeptIn, in.ownWorkflowID())
	case eager, step.State == webhook.StateDelivered:
		step.WorkflowID = in.workflowID()
	}
	return step
}

// found is the answer to an attempt whose outcome is stored already, or whose delivery has ended.
func (in *AttemptInput) found(status *webhook.DeliveryStatus) outcome {
	if !status.After(in.Progress) && status.State.Open() {
		return outcome{}
	}
	result := resultOf(in, *status)
	result.Found, result.Command = true, status.Command // also one that the workflow counts as handled: the store knows better
	return toAnswer(result)
}

// adopt takes over what a granted claim has found: the same step, with the attempts of earlier runs.
func (in *AttemptInput) adopt(claim *webhook.ClaimResult) {
	in.Progress, in.known = claim.Status.Progress, true
}

// unknown is the result for a delivery that the store does not have as the input says: it was removed, or the workflow was not
// started by Everpost. It ends the workflow. Nothing is sent, and nothing is written.
func (in *AttemptInput) unknown() AttemptResult {
	result := AttemptResult{Progress: in.Progress}
	result.State, result.Reason, result.DueAt = webhook.StateCancelled, webhook.ReasonUnknown, time.Time{}
	return result
}

// refusedStep defers or holds a delivery, as admission says. It is not deferred beyond its give-up time.
func (in *AttemptInput) refusedStep(f *facts, now time.Time) webhook.Step {
	if f.refusal.Held() {
		return in.heldStep(f.refusal.Reason, f, now)
	}
	step := in.next()
	step.Unsent = f.claim != nil
	step.State, step.Reason, step.DueAt = webhook.StatePending, f.refusal.Reason, now.Add(f.refusal.Wait).UTC().Truncate(time.Microsecond)
	if in.RunAttempts > 0 {
		step.State = webhook.StateRetrying
	}
	if step.DueAt.After(in.GiveUpAt) {
		step.DueAt = in.GiveUpAt
	}
	return step
}

// heldStep holds a delivery until its release. Once it has expired it becomes a dead letter instead: because of the fault for
// which it has been held, even if that ended after it expired.
func (in *AttemptInput) heldStep(reason string, f *facts, now time.Time) webhook.Step {
	switch {
	case !in.Expired(now):
		return in.holdStep(reason, f.maxHeld, now)
	case in.State == webhook.StateHeld && in.Reason == webhook.ReasonInternal:
		return in.faultStep(cmp.Or(f.fault, "an internal fault kept the delivery from being sent for as long as it may be held"), f.maxHeld, now)
	}
	return in.giveUpStep(webhook.ReasonHeldExpired)
}

// faultStep holds a delivery because of an internal fault of its endpoint. Once it has expired it becomes a dead letter.
func (in *AttemptInput) faultStep(fault string, maxHeld time.Duration, now time.Time) webhook.Step {
	step := in.holdStep(webhook.ReasonInternal, maxHeld, now)
	if in.Expired(now) {
		step = in.giveUpStep(webhook.ReasonInternal)
	}
	step.LastError = fault
	return step
}

// holdReason is why nothing is sent to the endpoint; "" if it is active.
func holdReason(target *webhook.Target) string {
	switch target.State {
	case webhook.EndpointPaused:
		return webhook.ReasonPaused
	case webhook.EndpointDisabled:
		return webhook.ReasonDisabled
	case webhook.EndpointActive:
	}
	return ""
}
