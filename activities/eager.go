package activities

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// maxEager bounds the running eager requests, without those that are known to be slow. A tenant
// gets as many as it leaves to the others.
const maxEager = 128

// EagerStart starts the workflow of a delivery whose first request is sent before that. Either
// Delivered and then Ended are called, or Undelivered is. None of them blocks.
type EagerStart interface {
	// Delivered returns the id of the workflow under which the delivered attempt is recorded.
	// starts is false if this process will not start it: then the outbox row is kept, and the
	// relay starts it.
	Delivered() (workflowID string, starts bool)
	// Ended starts that workflow, by itself or for several deliveries. The attempt has been
	// recorded, or is left to the workflow to be recorded.
	Ended()
	// Undelivered starts the delivery's own workflow: its request is slow, or has failed.
	// recorded says that the store has its attempt or its claim, and kept the outbox row.
	// starts is as that of Delivered.
	Undelivered(recorded bool) (starts bool)
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
// The outcome is recorded at once, as the delivery's first attempt. The workflow finds it in this
// process or in the store.
//
// Only a process that runs all workflows may call it. A worker in another process would not know
// of a request that is running, and would repeat it.
func (a *Activities) SendEagerly(in AttemptInput, start EagerStart) bool {
	target, ok := a.targets.Known(in.EndpointID)
	if _, faulty := a.faults.FaultOf(in.EndpointID); faulty || !ok || holdReason(target) != "" || !a.eager.TryAcquire(in.TenantID) {
		return false
	}
	run, request := a.beginEager(in, target)
	if run == nil {
		a.eager.Release(in.TenantID, 1)
		return false
	}
	request.start = start
	a.attempts.Go(func() {
		a.runAttempt(run, in, func(run *attemptRun, in AttemptInput) (AttemptResult, error) { return a.executeEager(run, in, request) })
	})
	return true
}

// beginEager begins the attempt if admission permits it and there is a fresh token.
func (a *Activities) beginEager(in AttemptInput, target *webhook.Target) (*attemptRun, eagerRequest) {
	permit := a.admission.TryAcquire(admission.RequestFor(&target.Endpoint, in.DeliveryID))
	if permit == nil {
		return nil, eagerRequest{}
	}
	var run *attemptRun
	content := a.takeFresh(a.base, &in)
	if content != nil {
		run = a.runs.enterEager(in, a.now())
	}
	if run == nil {
		permit.Cancel()
		return nil, eagerRequest{}
	}
	request := eagerRequest{target: withTimeout(target, permit.Timeout()), permit: permit, content: content}
	run.timeout = request.target.Timeout
	close(run.admitted)
	return run, request
}

// executeEager makes an attempt that no workflow has asked for.
func (a *Activities) executeEager(run *attemptRun, in AttemptInput, request eagerRequest) (result AttemptResult, err error) {
	delivered, recorded := false, false
	slow := time.AfterFunc(a.fastWait, func() {
		a.eager.Release(in.TenantID, 1)
		if a.runs.markSlow(run) {
			a.runs.goBeforeClose(func() { a.claimSlow(run, in, request.start) })
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
			request.start.Ended()
		case !a.runs.isSlow(run):
			request.start.Undelivered(recorded)
		}
	}()
	ctx, cancel := context.WithTimeout(run.span.In(a.base), webhook.MaxTimeout+queryTime)
	defer cancel()
	made, err := a.send(ctx, in, request.target, request.content, request.permit)
	a.runs.markAnswered(run)
	giveBack() // the record is not part of the request
	if err != nil {
		return AttemptResult{}, err
	}
	step := a.stepAfter(in, request.target, made)
	starts := false
	switch {
	case step.State != webhook.StateDelivered:
	case a.runs.isSlow(run):
		starts = a.runs.isOwnStarted(run)
	default:
		delivered = true
		step.WorkflowID, starts = request.start.Delivered()
		a.awaitTick(ctx)
	}
	step.KeepOutbox = !starts
	result, err = a.record(ctx, run, in, step)
	recorded = err == nil
	return result, err
}

// claimSlow claims a slow eager request and has its own workflow started, which waits for it.
func (a *Activities) claimSlow(run *attemptRun, in AttemptInput, start EagerStart) {
	claimed := a.runs.needsClaim(run) && a.writeClaim(a.base, run, in, true) == nil
	if start.Undelivered(claimed) {
		a.runs.markOwnStarted(run)
	}
	if !claimed {
		a.keepClaiming(run, in)
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
