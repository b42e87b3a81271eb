package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
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
// the attempts that may run, and its payloads half of the memory for them; beyond that they are deferred.
func (a *Activities) admit(ctx context.Context, att *attempt) outcome {
	in, target := &att.in, att.facts.target
	asked := a.now()
	decision := a.admission.Acquire(ctx, in.admissionRequest(target))
	if decision.Permit != nil {
		att.permit = decision.Permit
		if !a.takeRoom(ctx, att) {
			decision = a.deferral(webhook.ReasonCapacity, in)
		}
	}
	att.admitting = a.now().Sub(asked)
	if decision.Permit == nil {
		return a.refuse(att, decision)
	}
	timeout := decision.Permit.Timeout()
	if att.facts.claim != nil { // which is for a request that takes no longer
		timeout = min(timeout, target.Timeout)
	}
	att.facts.target = withTimeout(target, timeout)
	att.exec.timeout = att.facts.target.Timeout
	close(att.exec.admitted)
	return outcome{}
}

// takeRoom takes what an attempt needs besides its permit. If there is none, the permit is given back.
func (a *Activities) takeRoom(ctx context.Context, att *attempt) bool {
	if a.admission.LikelySlow(att.in.EndpointID) {
		att.slowPlace = a.slow.TryAcquire(att.in.TenantID)
		if !att.slowPlace {
			att.permit.Cancel()
			return false
		}
	}
	if !att.payload.take(ctx, a.maxPayload) {
		att.permit.Cancel()
		return false
	}
	return true
}

// isNear reports whether an attempt is to take its right to send before admission is asked, because it is likely to be admitted while it waits. A claim
// takes as long as a commit, and meanwhile a slot of the endpoint would be taken by a request that is not under way: an endpoint that
// takes few requests at a time would get as many in the time of a commit.
func (a *Activities) isNear(att *attempt) bool {
	timeout, near := a.admission.Near(att.in.admissionRequest(att.facts.target))
	if !near || !att.payload.takeSpare(a.maxPayload) {
		return false
	}
	att.facts.target = withTimeout(att.facts.target, timeout)
	return true
}

// admissionRequest is what admission is asked for the attempt.
func (in *AttemptInput) admissionRequest(target *webhook.Target) admission.Request {
	request := admission.RequestFor(&target.Endpoint, in.DeliveryID)
	request.Released, request.Retries, request.Forced = in.State == webhook.StateHeld, in.RunAttempts, in.Forced
	return request
}

// refuse defers or holds the delivery, as admission has decided. It drops the fresh token: the next attempt must claim.
func (a *Activities) refuse(att *attempt, decision admission.Decision) outcome {
	_, _ = a.fresh.Take(att.in.Ref)
	a.observer.Deferred(decision.Reason)
	att.facts.refusal = &decision
	return att.decide(a.now())
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

// forget returns the reservation of a delivery that ends without an attempt.
func (a *Activities) forget(step *webhook.Step) {
	if step.Attempt == nil && !step.State.Open() {
		a.admission.Forget(step.EndpointID, step.DeliveryID)
	}
}
