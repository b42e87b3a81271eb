package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

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
	*process

	exec  *execution
	in    AttemptInput
	start EagerStart
	slow  *time.Timer // fires when the request counts as slow; until then it has a place among the eager requests
	// delivered: the attempt is recorded under the workflow that start is to start for what was delivered.
	delivered bool
}

// watch has the own workflow of an eager attempt started if its request takes long. The request's place goes to another one.
func (e *eagerRequest) watch() {
	e.slow = time.AfterFunc(e.fastWait, func() {
		e.eagerPlaces.Release(e.in.TenantID, 1)
		if e.exec.move(eagerSending, eagerSlow) {
			e.executions.goFor(e.exec, e.claimSlow)
		}
	})
}

// end notes that an eager request has ended. From here on it does not become slow.
func (e *eagerRequest) end() {
	e.exec.move(eagerSending, eagerEnded)
	if e.slow.Stop() {
		e.eagerPlaces.Release(e.in.TenantID, 1)
	}
}

// assignWorkflow says under which workflow the step of an eager attempt is recorded, and whether the outbox row stays because that
// workflow is still to be started. What was delivered is recorded together with what others have delivered.
func (e *eagerRequest) assignWorkflow(ctx context.Context, step *webhook.Step) {
	starts := false
	switch phase := e.exec.eagerPhase(); {
	case step.State != webhook.StateDelivered:
	case phase == eagerEnded:
		e.delivered = true
		step.WorkflowID, starts = e.start.WorkflowForDelivered()
		awaitTick(ctx)
	default:
		starts = phase == eagerOwnStarted
	}
	step.KeepOutbox = !starts
}

// startWorkflow has the workflow of an eager attempt started, when the attempt has been recorded or not. claimSlow does so for a slow one.
func (e *eagerRequest) startWorkflow(isRecorded bool) {
	e.end() // in case that it has not begun
	switch {
	case e.delivered:
		e.start.StartDelivered()
	case e.exec.eagerPhase() == eagerEnded:
		e.start.StartOwn(isRecorded)
	}
}

// awaitStore waits until an eager outcome is to be recorded again. False: the error does not say that the store is out of reach, or this
// process ends.
func (e *eagerRequest) awaitStore(err error) bool {
	if scope, _ := describeFault(err); scope != scopeStore {
		return false
	}
	pause := time.NewTimer(outagePause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-e.base.Done():
		return false
	}
}

// claimSlow claims a slow eager request and then has its own workflow started, which waits for it. Without the
// claim a workflow in another process would send again.
func (e *eagerRequest) claimSlow() {
	if e.executions.markClaimed(e.exec) && e.writeClaim(e.base, e.exec, e.in, true) != nil {
		e.keepClaiming(e.exec, e.in)
	}
	recorded := true
	select {
	case <-e.exec.done:
		recorded = e.exec.unrecorded == nil
	default: // it has its claim
	}
	if e.start.StartOwn(recorded) {
		e.exec.move(eagerSlow, eagerOwnStarted)
	}
}

// recordTick bounds how long delivered eager requests wait to be recorded together.
const recordTick = 20 * time.Millisecond

// awaitTick waits until the next whole tick of this process's clock.
func awaitTick(ctx context.Context) {
	now := time.Now()
	wait := time.NewTimer(now.Truncate(recordTick).Add(recordTick).Sub(now))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
