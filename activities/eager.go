package activities

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// maxEager bounds the eager requests under way whose receivers have not been found slow. A tenant
// gets as many as it leaves to the others.
const maxEager = 128

// EagerStart starts the workflow of a delivery whose first request is sent before that. Either
// Delivered and then Ended are called, or Undelivered is. None of them blocks.
type EagerStart interface {
	// Delivered returns the id of the workflow under which the delivered attempt is recorded. starts is
	// false when this process will not start it: the outbox row is kept then, so that the relay does.
	Delivered() (workflowID string, starts bool)
	// Ended starts that workflow, or has it started with others. The attempt has been recorded, or is
	// left to the workflow to be recorded.
	Ended()
	// Undelivered has the delivery's own workflow started at once: its request is slow, or has failed.
	// recorded says that the store has its attempt or its claim, and kept the outbox row. starts is as
	// that of Delivered.
	Undelivered(recorded bool) (starts bool)
}

// eagerRequest is what an eager request is made of.
type eagerRequest struct {
	target  *webhook.Target
	pass    Pass
	content *webhook.Content
	start   EagerStart
}

// SendEagerly sends the first request of a delivery that has just been stored, before its workflow
// is started, if nothing speaks against that. It returns false when nothing is sent: the workflow's
// Attempt does all then. It does not block.
//
// The outcome is recorded at once, as the delivery's first attempt. The workflow finds it in this
// process or in the store.
//
// Only a process that runs all workflows may call it. Another one would not know of a request that
// is under way, and make it again.
func (a *Activities) SendEagerly(in AttemptInput, start EagerStart) bool {
	target, ok := a.Targets.Known(in.EndpointID)
	if _, faulty := a.Faults.FaultOf(in.EndpointID); faulty || !ok || whyHeld(target) != "" || !a.eager.TryAcquire(in.TenantID) {
		return false
	}
	fl, request := a.beginEager(in, target)
	if fl == nil {
		a.eager.Release(in.TenantID, 1)
		return false
	}
	request.start = start
	a.crew.run(func() {
		a.fly(fl, in, func(fl *flight, in AttemptInput) (AttemptResult, error) { return a.makeEager(fl, in, request) })
	})
	return true
}

// beginEager begins the attempt if the gate admits it and there is a token for it.
func (a *Activities) beginEager(in AttemptInput, target *webhook.Target) (*flight, eagerRequest) {
	admission := Admission{Pass: freePass{}}
	if a.Gate != nil {
		admission = a.Gate.TryEnter(Entry{Endpoint: &target.Endpoint, Delivery: in.DeliveryID})
	}
	if admission.Pass == nil {
		return nil, eagerRequest{}
	}
	var fl *flight
	content := a.fresh(a.base, &in)
	if content != nil {
		fl = a.flights.enterEager(in, a.Now())
	}
	if fl == nil {
		admission.Pass.Cancel()
		return nil, eagerRequest{}
	}
	request := eagerRequest{target: within(target, admission.Timeout), pass: admission.Pass, content: content}
	fl.timeout = request.target.Timeout
	close(fl.passed)
	return fl, request
}

// makeEager is an attempt that no workflow has asked for.
func (a *Activities) makeEager(fl *flight, in AttemptInput, request eagerRequest) (result AttemptResult, err error) {
	delivered, recorded := false, false
	slow := time.AfterFunc(a.FastWait, func() {
		a.eager.Release(in.TenantID, 1)
		if a.flights.leavesAsSlow(fl) {
			a.flights.run(func() { a.leaveAsSlow(fl, in, request.start) })
		}
	})
	answered := sync.OnceFunc(func() {
		if slow.Stop() {
			a.eager.Release(in.TenantID, 1)
		}
	})
	defer func() {
		answered()
		request.pass.Cancel()
		switch {
		case delivered:
			request.start.Ended()
		case !a.flights.isSlow(fl):
			request.start.Undelivered(recorded)
		}
	}()
	ctx, cancel := context.WithTimeout(a.base, webhook.MaxTimeout+ownWork)
	defer cancel()
	made, err := a.send(ctx, in, request.target, request.content, request.pass)
	a.flights.answer(fl)
	answered() // recording it is no request
	if err != nil {
		return AttemptResult{}, err
	}
	step := a.judge(in, request.target, made)
	starts := false
	switch {
	case step.State != webhook.StateDelivered:
	case a.flights.isSlow(fl):
		starts = a.flights.isStarted(fl)
	default:
		delivered = true
		step.WorkflowID, starts = request.start.Delivered()
		a.awaitTick(ctx)
	}
	step.KeepOutbox = !starts
	result, err = a.record(ctx, fl, in, step)
	recorded = err == nil
	return result, err
}

// leaveAsSlow claims an eager request that takes long, and has its own workflow started, which
// waits for it.
func (a *Activities) leaveAsSlow(fl *flight, in AttemptInput, start EagerStart) {
	claimed := a.flights.needsClaim(fl) && a.writeClaim(a.base, fl, in, true) == nil
	if start.Undelivered(claimed) {
		a.flights.started(fl)
	}
	if !claimed {
		a.keepClaiming(fl, in)
	}
}

// recordTick is how long delivered eager requests wait to be recorded together, at most.
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
