package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// capacityPause is the least deferral of an attempt at a slow receiver when too many of
	// them are running. capacitySpread is added at random, so that they do not come at once.
	capacityPause  = 1200 * time.Millisecond
	capacitySpread = 4 * time.Second
)

// admit asks admission for a permit. A tenant's requests to slow receivers get at most half of
// the attempts that may run, and its payloads half of the memory for them; beyond that they are deferred.
func (att *attempt) admit(ctx context.Context) outcome {
	in, target := &att.in, att.facts.target
	asked := att.now()
	decision := att.admission.Acquire(ctx, in.admissionRequest(target))
	if decision.Permit != nil {
		att.permit = decision.Permit
		if !att.takeRoom(ctx) {
			decision = att.deferral(webhook.ReasonCapacity)
		}
	}
	att.admitting = att.now().Sub(asked)
	if decision.Permit == nil {
		return att.refuse(decision)
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
func (att *attempt) takeRoom(ctx context.Context) bool {
	if att.admission.LikelySlow(att.in.EndpointID) {
		att.hasSlowPlace = att.slowPlaces.TryAcquire(att.in.TenantID)
		if !att.hasSlowPlace {
			att.permit.Cancel()
			return false
		}
	}
	if !att.payload.take(ctx, att.maxPayload) {
		att.permit.Cancel()
		return false
	}
	return true
}

// isNear reports whether an attempt is to take its right to send before admission is asked, because it is likely to be admitted while it waits. A claim
// takes as long as a commit, and meanwhile a slot of the endpoint would be taken by a request that is not under way: an endpoint that
// takes few requests at a time would get as many in the time of a commit.
func (att *attempt) isNear() bool {
	timeout, near := att.admission.Near(att.in.admissionRequest(att.facts.target))
	if !near || !att.payload.takeSpare(att.maxPayload) {
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
func (att *attempt) refuse(decision admission.Decision) outcome {
	_, _ = att.fresh.Take(att.in.Ref)
	att.observer.Deferred(decision.Reason)
	att.facts.refusal = &decision
	return att.decide(att.now())
}

// deferral defers a delivery by about capacityPause, in place of what admission has decided.
func (att *attempt) deferral(reason string) admission.Decision {
	spread := retry.Random(att.in.Seq, att.in.DeliveryID.String(), reason) * float64(capacitySpread)
	wait := capacityPause + time.Duration(spread)
	return admission.Decision{Wait: wait, Until: att.now().Add(wait), Reason: reason}
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
