package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// execute makes one attempt, from the first check to the recording. An internal fault that concerns
// the whole endpoint, or that lasts until the give-up time, becomes a recorded result.
func (a *Activities) execute(exec *execution, in AttemptInput) (AttemptResult, error) {
	result, err := a.executeGuarded(exec, &in)
	if err != nil {
		return a.handleFault(exec, in, err)
	}
	return result, nil
}

// executeGuarded turns a panic into an error.
func (a *Activities) executeGuarded(exec *execution, in *AttemptInput) (result AttemptResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = a.panicked(*in, p)
		}
	}()
	return a.executeOnce(exec, in)
}

func (a *Activities) executeOnce(exec *execution, in *AttemptInput) (AttemptResult, error) {
	ctx, cancel := context.WithTimeout(exec.span.In(a.base), webhook.MaxTimeout+queryTime)
	defer cancel()
	switch {
	case exec.unrecorded != nil:
		return a.recordAgain(ctx, exec, *in)
	case !in.Fits():
		return a.unknown(ctx, in), nil
	}
	if !a.waitUntilDue(ctx, *in) {
		return AttemptResult{}, errStopping
	}
	if in.Running {
		if result, elsewhere, err := a.findElsewhere(ctx, exec, *in); elsewhere || err != nil {
			return result, err
		}
	}
	if fault, known := a.knownFault(*in); known {
		return a.holdForFault(ctx, exec, *in, fault)
	}
	target, err := a.targets.Target(ctx, in.EndpointID)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return a.record(ctx, exec, *in, in.cancelStep(webhook.ReasonEndpointDeleted))
	}
	if err != nil {
		return AttemptResult{}, a.internalFault(ctx, fmt.Sprintf("load endpoint %s", in.EndpointID), err)
	}
	if target.TenantID != in.TenantID {
		return a.unknown(ctx, in), nil
	}
	reason := holdReason(target)
	switch now := a.now(); {
	case in.NotBefore.After(now.Add(earlyEnough)):
		return a.record(ctx, exec, *in, in.waitStep(in.NotBefore))
	case reason != "", in.State == webhook.StateHeld && now.After(in.GiveUpAt):
		return a.hold(ctx, exec, *in, reason)
	case in.Deferred() && !now.Before(in.GiveUpAt):
		return a.record(ctx, exec, *in, in.giveUpStep(webhook.ReasonDeferredExpired))
	}
	return a.attempt(ctx, exec, in, target)
}

// attempt makes the request of an attempt that is due, if the endpoint's limits and the claim let it.
func (a *Activities) attempt(ctx context.Context, exec *execution, in *AttemptInput, target *webhook.Target) (AttemptResult, error) {
	asked := a.now()
	decision, giveBack := a.admit(ctx, exec, *in, target)
	in.admitting = a.now().Sub(asked)
	if decision.Permit == nil {
		// Drop the token: after a deferral, the next attempt must claim.
		_, _ = a.fresh.Take(in.Ref)
		return a.recordDecision(ctx, exec, *in, decision)
	}
	defer giveBack()
	target = withTimeout(target, decision.Permit.Timeout())
	exec.timeout = target.Timeout
	close(exec.admitted)
	content, result, err := a.payloadWithRightToSend(ctx, exec, in, target)
	if content == nil {
		return result, err
	}
	if a.now().After(in.GiveUpAt) {
		return a.record(ctx, exec, *in, in.giveUpStep(in.giveUpReason()))
	}
	asked = a.now()
	began := decision.Permit.Begin(ctx)
	in.admitting += a.now().Sub(asked)
	if !began {
		return a.recordDecision(ctx, exec, *in, a.deferral(webhook.ReasonNoOwner, in))
	}
	result, again, err := a.sendAndRecord(ctx, exec, *in, target, content, decision.Permit)
	if !again {
		return result, err
	}
	in.Progress, in.reused = result.Progress, true
	content, result, err = a.payloadWithRightToSend(ctx, exec, in, target)
	if content == nil {
		return result, err
	}
	result, _, err = a.sendAndRecord(ctx, exec, *in, target, content, decision.Permit)
	return result, err
}

// sendAndRecord makes the request and records its outcome. again says that the request is to be sent once more at once, with the
// same permit; see reused.go.
func (a *Activities) sendAndRecord(
	ctx context.Context, exec *execution, in AttemptInput, target *webhook.Target, content *webhook.Content, permit *admission.Permit,
) (result AttemptResult, again bool, err error) {
	made, err := a.send(ctx, in, target, content, permit)
	if err != nil {
		return AttemptResult{}, false, err
	}
	step := a.stepAfter(in, target, made)
	result, err = a.record(ctx, exec, in, step)
	again = err == nil && isReused(&made) && goesOn(&step, &result) && !a.now().After(in.GiveUpAt) && permit.Again(ctx)
	return result, again, err
}

// unknown ends a workflow's delivery that the store does not have as the input says: it was removed, or the workflow
// was not started by Everpost. Nothing is sent, and nothing is written.
func (a *Activities) unknown(ctx context.Context, in *AttemptInput) AttemptResult {
	a.log.WarnContext(ctx, "a workflow names a delivery that is not stored; nothing was sent", "delivery", in.DeliveryID, "event", in.EventID,
		"endpoint", in.EndpointID, "workflow", in.workflowID())
	a.admission.Forget(in.EndpointID, in.DeliveryID)
	result := AttemptResult{Progress: in.Progress}
	result.State, result.Reason, result.DueAt = webhook.StateCancelled, webhook.ReasonUnknown, time.Time{}
	return result
}

// giveUpReason is why an attempt is not made after the give-up time.
func (in *AttemptInput) giveUpReason() string {
	if in.Faults > 0 {
		return webhook.ReasonInternal
	}
	return string(retry.ReasonGiveUpTime)
}

// recordAgain records an outcome that could not be recorded before.
func (a *Activities) recordAgain(ctx context.Context, exec *execution, in AttemptInput) (AttemptResult, error) {
	step := *exec.unrecorded
	step.KeepOutbox = false // a workflow asks for it, so it has been started
	switch {
	case in.Shared == "": // a shared workflow may have made the attempt and handed the delivery over
		step.WorkflowID = in.ownWorkflowID()
	case step.State == webhook.StateDelivered: // eagerly, for a workflow that may never be started
		step.WorkflowID = in.Shared
	}
	return a.record(ctx, exec, in, step)
}

// waitUntilDue waits until the attempt is due, if it was asked for a little early. False: the
// process stops.
func (a *Activities) waitUntilDue(ctx context.Context, in AttemptInput) bool {
	early := untilDue(in, a.now())
	if early == 0 {
		return true
	}
	due := time.NewTimer(early)
	defer due.Stop()
	select {
	case <-due.C:
		return true
	case <-ctx.Done():
		return false
	}
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
