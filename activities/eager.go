package activities

import (
	"context"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// maxEager bounds the running eager requests, without those that are known to be slow. A tenant
// may use at most as many as remain free for others.
const maxEager = 128

// EagerRequests send the first requests of deliveries before their workflows are started.
type EagerRequests struct{ *process }

// SendEagerly sends the first request of a delivery that has just been stored, before its workflow
// is started, if it can be sent at once. False: nothing is sent, and the workflow's Attempt sends
// it. SendEagerly does not block.
//
// The outcome is recorded at once, as the delivery's first attempt. The workflow, in whatever process
// it runs, finds the outcome or the claim of a slow request: it is started after they were written, and
// the relay takes up only what is older than any request without a claim.
func (e *EagerRequests) SendEagerly(in AttemptInput, start EagerStart) bool {
	target, ok := e.targets.Known(in.EndpointID)
	if !ok {
		return false
	}
	f := facts{target: target}
	f.fault, _ = e.faults.FaultOf(in.EndpointID)
	if !decide(in, &f, e.now()).goesOn() || !e.eagerPlaces.TryAcquire(in.TenantID) {
		return false
	}
	permit := e.admission.TryAcquire(admission.RequestFor(&target.Endpoint, in.DeliveryID))
	if permit == nil {
		e.eagerPlaces.Release(in.TenantID, 1)
		return false
	}
	return e.run(in, target, permit, start)
}

// KnowsEndpoint reports whether an endpoint is in memory, so that SendEagerly can send to it.
func (e *EagerRequests) KnowsEndpoint(id webhook.EndpointID) bool {
	_, ok := e.targets.Known(id)
	return ok
}

// ReadEndpoint brings an endpoint into memory, until ctx ends. If it cannot be read, an attempt finds that out.
func (e *EagerRequests) ReadEndpoint(ctx context.Context, id webhook.EndpointID) {
	_, _ = e.targets.Target(ctx, id)
}

// run begins an attempt that has its permit. False: there is no fresh token, or this process stops.
func (e *EagerRequests) run(in AttemptInput, target *webhook.Target, permit *admission.Permit, start EagerStart) bool {
	var exec *execution
	content := e.takeFresh(e.base, &in)
	if content != nil {
		in.known = true
		exec = e.executions.enterEager(in, e.now())
	}
	if exec == nil {
		permit.Cancel()
		e.eagerPlaces.Release(in.TenantID, 1)
		return false
	}
	att := newAttempt(e.process, exec, in)
	att.eager, att.permit = &eagerRequest{process: e.process, exec: exec, in: in, start: start}, permit
	att.facts.target, att.facts.content = withTimeout(target, permit.Timeout()), content
	exec.timeout = att.facts.target.Timeout
	close(exec.admitted)
	e.goroutines.Go(att.run)
	return true
}
