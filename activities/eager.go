package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// maxEager bounds the running eager requests, without those that are known to be slow. A tenant
// may use at most as many as remain free for others.
const maxEager = 128

// EagerStart starts the workflow of a delivery whose first request is sent before the workflow
// starts. The caller calls either WorkflowForDelivered and then StartDelivered, or only StartOwn.
// None blocks, except for up to a second while the process stops.
type EagerStart interface {
	// WorkflowForDelivered returns the id of the workflow under which the delivered attempt is
	// recorded. starts is false if this process will not start it: then the outbox row is kept,
	// and the relay starts it.
	WorkflowForDelivered() (workflowID string, starts bool)
	// StartDelivered starts that workflow, for this delivery alone or for several. The attempt
	// has been recorded, unless this process is stopping.
	StartDelivered()
	// StartOwn starts the delivery's own workflow: its request is slow, or has failed. recorded
	// says that the store has its attempt or its claim, and kept the outbox row. starts is as
	// that of WorkflowForDelivered.
	StartOwn(recorded bool) (starts bool)
}

// eagerRequest is what an attempt has besides if no workflow has asked for it.
type eagerRequest struct {
	start EagerStart
	slow  *time.Timer // fires when the request counts as slow; until then it has a place among the eager requests
	// delivered: the attempt is recorded under the workflow that start is to start for what was delivered.
	delivered bool
}

// SendEagerly sends the first request of a delivery that has just been stored, before its workflow
// is started, if it can be sent at once. False: nothing is sent, and the workflow's Attempt sends
// it. SendEagerly does not block.
//
// The outcome is recorded at once, as the delivery's first attempt. The workflow, in whatever process
// it runs, finds the outcome or the claim of a slow request: it is started after they were written, and
// the relay takes up only what is older than any request without a claim.
func (a *Activities) SendEagerly(in AttemptInput, start EagerStart) bool {
	target, ok := a.targets.Known(in.EndpointID)
	if !ok {
		return false
	}
	f := facts{target: target}
	f.fault, _ = a.faults.FaultOf(in.EndpointID)
	if !decide(in, &f, a.now()).goesOn() || !a.eager.TryAcquire(in.TenantID) {
		return false
	}
	permit := a.admission.TryAcquire(admission.RequestFor(&target.Endpoint, in.DeliveryID))
	if permit == nil {
		a.eager.Release(in.TenantID, 1)
		return false
	}
	return a.runEager(in, target, permit, start)
}

// KnowsEndpoint reports whether an endpoint is in memory, so that SendEagerly can send to it.
func (a *Activities) KnowsEndpoint(id webhook.EndpointID) bool {
	_, ok := a.targets.Known(id)
	return ok
}

// ReadEndpoint brings an endpoint into memory, until ctx ends. If it cannot be read, an attempt finds that out.
func (a *Activities) ReadEndpoint(ctx context.Context, id webhook.EndpointID) {
	_, _ = a.targets.Target(ctx, id)
}

// runEager begins an attempt that has its permit. False: there is no fresh token, or this process stops.
func (a *Activities) runEager(in AttemptInput, target *webhook.Target, permit *admission.Permit, start EagerStart) bool {
	var exec *execution
	content := a.takeFresh(a.base, &in)
	if content != nil {
		in.known = true
		exec = a.executions.enterEager(in, a.now())
	}
	if exec == nil {
		permit.Cancel()
		a.eager.Release(in.TenantID, 1)
		return false
	}
	att := a.newAttempt(exec, in)
	att.eager, att.permit = &eagerRequest{start: start}, permit
	att.facts.target, att.facts.content = withTimeout(target, permit.Timeout()), content
	exec.timeout = att.facts.target.Timeout
	close(exec.admitted)
	a.attempts.Go(func() { a.runAttempt(att) })
	return true
}

// watchEager has the own workflow of an eager attempt started if its request takes long. The request's place goes to another one.
func (a *Activities) watchEager(att *attempt) {
	att.eager.slow = time.AfterFunc(a.fastWait, func() {
		a.eager.Release(att.in.TenantID, 1)
		if att.exec.move(eagerSending, eagerSlow) {
			a.executions.goFor(att.exec, func() { a.claimSlow(att.exec, att.in, att.eager.start) })
		}
	})
}

// endEagerRequest notes that an eager request has ended. From here on it does not become slow.
func (a *Activities) endEagerRequest(att *attempt) {
	att.exec.move(eagerSending, eagerEnded)
	if att.eager.slow.Stop() {
		a.eager.Release(att.in.TenantID, 1)
	}
}

// assignWorkflow says under which workflow the step of an eager attempt is recorded, and whether the outbox row stays because that
// workflow is still to be started. What was delivered is recorded together with what others have delivered.
func (a *Activities) assignWorkflow(ctx context.Context, att *attempt, step *webhook.Step) {
	starts := false
	switch phase := att.exec.eagerPhase(); {
	case step.State != webhook.StateDelivered:
	case phase == eagerEnded:
		att.eager.delivered = true
		step.WorkflowID, starts = att.eager.start.WorkflowForDelivered()
		a.awaitTick(ctx)
	default:
		starts = phase == eagerOwnStarted
	}
	step.KeepOutbox = !starts
}

// startWorkflow has the workflow of an eager attempt started, when the attempt has been recorded or not. claimSlow does so for a slow one.
func (a *Activities) startWorkflow(att *attempt) {
	a.endEagerRequest(att) // in case that it has not begun
	switch {
	case att.eager.delivered:
		att.eager.start.StartDelivered()
	case att.exec.eagerPhase() == eagerEnded:
		att.eager.start.StartOwn(att.isRecorded)
	}
}

// awaitStore waits until an eager outcome is to be recorded again. False: the error does not say that the store is out of reach, or this
// process ends.
func (a *Activities) awaitStore(err error) bool {
	if scope, _ := describeFault(err); scope != scopeStore {
		return false
	}
	pause := time.NewTimer(outagePause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-a.base.Done():
		return false
	}
}

// claimSlow claims a slow eager request and then has its own workflow started, which waits for it. Without the
// claim a workflow in another process would send again.
func (a *Activities) claimSlow(exec *execution, in AttemptInput, start EagerStart) {
	if a.executions.markClaimed(exec) && a.writeClaim(a.base, exec, in, true) != nil {
		a.keepClaiming(exec, in)
	}
	recorded := true
	select {
	case <-exec.done:
		recorded = exec.unrecorded == nil
	default: // it has its claim
	}
	if start.StartOwn(recorded) {
		exec.move(eagerSlow, eagerOwnStarted)
	}
}

// recordTick bounds how long delivered eager requests wait to be recorded together.
const recordTick = 20 * time.Millisecond

// awaitTick waits until the next whole tick of this process's clock.
func (a *Activities) awaitTick(ctx context.Context) {
	now := time.Now()
	wait := time.NewTimer(now.Truncate(recordTick).Add(recordTick).Sub(now))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
