package activities

import (
	"context"
	"sync"
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

// eagerRequest is what an eager request needs.
type eagerRequest struct {
	target  *webhook.Target
	permit  *admission.Permit
	content *webhook.Content
	start   EagerStart
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
	if _, faulty := a.faults.FaultOf(in.EndpointID); faulty || !ok || holdReason(target) != "" || !a.eager.TryAcquire(in.TenantID) {
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
	request := eagerRequest{target: withTimeout(target, permit.Timeout()), permit: permit, content: content, start: start}
	exec.timeout = request.target.Timeout
	close(exec.admitted)
	a.attempts.Go(func() {
		a.runAttempt(exec, in, func(exec *execution, in AttemptInput) (AttemptResult, error) {
			return a.executeEager(exec, in, request)
		})
	})
	return true
}

// executeEager makes an attempt that no workflow has asked for.
func (a *Activities) executeEager(exec *execution, in AttemptInput, request eagerRequest) (result AttemptResult, err error) {
	delivered, recorded := false, false
	slow := time.AfterFunc(a.fastWait, func() {
		a.eager.Release(in.TenantID, 1)
		if a.executions.markSlow(exec) {
			a.executions.goFor(exec, func() { a.claimSlow(exec, in, request.start) })
		}
	})
	giveBack := sync.OnceFunc(func() {
		if slow.Stop() {
			a.eager.Release(in.TenantID, 1)
		}
	})
	defer func() {
		giveBack()
		request.permit.Cancel()
		switch {
		case delivered:
			request.start.StartDelivered()
		case !a.executions.isSlow(exec):
			request.start.StartOwn(recorded)
		}
	}()
	ctx, cancel := context.WithTimeout(exec.span.In(a.base), webhook.MaxTimeout+queryTime)
	defer cancel()
	asked := a.now()
	if !request.permit.Begin(ctx) {
		return AttemptResult{}, errStalled
	}
	admitted := in // slow may read in at the same time
	admitted.admitting = a.now().Sub(asked)
	made, err := a.send(ctx, admitted, request.target, request.content, request.permit)
	a.executions.markAnswered(exec)
	giveBack() // the recording is not part of the request
	if err != nil {
		return AttemptResult{}, err
	}
	step := a.stepAfter(in, request.target, made)
	starts := false
	switch {
	case step.State != webhook.StateDelivered:
	case a.executions.isSlow(exec):
		starts = a.executions.isOwnStarted(exec)
	default:
		delivered = true
		step.WorkflowID, starts = request.start.WorkflowForDelivered()
		a.awaitTick(ctx)
	}
	step.KeepOutbox = !starts
	result, err = a.recordEager(ctx, exec, in, step)
	recorded = err == nil
	return result, err
}

// recordEager records the outcome of an eager request, and tries again while the store is out of reach. Until then
// no workflow is started: in another process it would not find the outcome, and would send again.
func (a *Activities) recordEager(ctx context.Context, exec *execution, in AttemptInput, step webhook.Step) (AttemptResult, error) {
	for {
		result, err := a.record(ctx, exec, in, step)
		if err == nil {
			return result, nil
		}
		if scope, _ := describeFault(err); scope != scopeStore {
			return AttemptResult{}, err
		}
		pause := time.NewTimer(outagePause)
		select {
		case <-pause.C:
		case <-a.base.Done(): // this process ends
			pause.Stop()
			return AttemptResult{}, err
		}
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
		a.executions.markOwnStarted(exec)
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
