package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// slowWait replaces FastWait if the receiver is known to be slow. If an attempt has no
	// permit by then, Attempt goes on waiting.
	slowWait = 300 * time.Millisecond
	// capacityPause is the least deferral of an attempt at a slow receiver when too many of
	// them are running. capacitySpread is added at random, so that they do not come at once.
	capacityPause  = 1200 * time.Millisecond
	capacitySpread = 4 * time.Second
)

// admit asks admission for a permit. A tenant's requests to slow receivers get at most half of
// the attempts that may run, and its payloads half of the memory for them; beyond that they are deferred. With a permit, the
// caller must call giveBack, which cancels the permit unless Done was called.
func (a *Activities) admit(
	ctx context.Context, exec *execution, in AttemptInput, target *webhook.Target,
) (decision admission.Decision, giveBack func()) {
	request := admission.RequestFor(&target.Endpoint, in.DeliveryID)
	request.Released, request.Retries, request.Forced = in.State == webhook.StateHeld, in.RunAttempts, in.Forced
	decision = a.admission.Acquire(ctx, request)
	if decision.Permit == nil {
		return decision, nil
	}
	slow := a.admission.LikelySlow(in.EndpointID)
	if slow && !a.slow.TryAcquire(in.TenantID) {
		decision.Permit.Cancel()
		return a.deferral(webhook.ReasonCapacity, &in), nil
	}
	leave := func() {
		decision.Permit.Cancel()
		if slow {
			a.slow.Release(in.TenantID, 1)
		}
	}
	room, ok := a.takePayloadRoom(ctx, in.TenantID)
	if !ok {
		leave()
		return a.deferral(webhook.ReasonCapacity, &in), nil
	}
	exec.payload = room
	return decision, func() {
		leave()
		exec.payload.release()
	}
}

// deferral defers a delivery by about capacityPause, in place of what admission has decided.
func (a *Activities) deferral(reason string, in *AttemptInput) admission.Decision {
	spread := retry.Random(in.Seq, in.DeliveryID.String(), reason) * float64(capacitySpread)
	wait := capacityPause + time.Duration(spread)
	return admission.Decision{Wait: wait, Until: a.now().Add(wait), Reason: reason}
}

// withTimeout returns the target with the timeout of one request.
func withTimeout(target *webhook.Target, timeout time.Duration) *webhook.Target {
	if timeout == target.Timeout {
		return target
	}
	own := *target // the cache shares the other one
	own.Timeout = timeout
	return &own
}

// recordDecision records that admission defers or holds the delivery. It is not deferred beyond
// its give-up time.
func (a *Activities) recordDecision(ctx context.Context, exec *execution, in AttemptInput, decision admission.Decision) (AttemptResult, error) {
	a.observer.Deferred(decision.Reason)
	if decision.Held() {
		a.onBacklog(in.EndpointID)
		return a.hold(ctx, exec, in, decision.Reason)
	}
	step := in.next()
	step.State, step.Reason, step.DueAt = webhook.StatePending, decision.Reason, a.now().Add(decision.Wait).UTC().Truncate(time.Microsecond)
	if in.RunAttempts > 0 {
		step.State = webhook.StateRetrying
	}
	if step.DueAt.After(in.GiveUpAt) {
		step.DueAt = in.GiveUpAt
	}
	return a.record(ctx, exec, in, step)
}

// hold records that the delivery waits for its release. Past the give-up time it becomes a dead
// letter instead.
//
// A held delivery has no workflow: there may be many, and each costs only a row. Its release starts
// a workflow.
func (a *Activities) hold(ctx context.Context, exec *execution, in AttemptInput, reason string) (AttemptResult, error) {
	if !a.now().After(in.GiveUpAt) {
		failpoint.Hit("hold-before")
		result, err := a.record(ctx, exec, in, in.holdStep(reason))
		if err == nil {
			failpoint.Hit("hold-after")
		}
		return result, err
	}
	if in.State == webhook.StateHeld && in.Reason == webhook.ReasonInternal {
		fault, known := a.faults.FaultOf(in.EndpointID)
		if !known { // the fault ended after the give-up time
			fault = "an internal fault kept the delivery from being sent until its give-up time"
		}
		return a.holdForFault(ctx, exec, in, fault)
	}
	return a.record(ctx, exec, in, in.giveUpStep(webhook.ReasonHeldExpired))
}

// forget returns the reservation of a delivery that ends without an attempt.
func (a *Activities) forget(step *webhook.Step) {
	if step.Attempt == nil && !step.State.Open() {
		a.admission.Forget(step.EndpointID, step.DeliveryID)
	}
}
