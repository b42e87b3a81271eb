package intake

import (
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// eagerStart starts the workflow of a delivery whose first request was sent eagerly. It implements
// activities.EagerStart.
type eagerStart struct {
	starts *starts
	start  webhook.Start
	in     *gathering // that it has joined; nil: this process starts no workflow for what was delivered
}

var _ activities.EagerStart = (*eagerStart)(nil)

// WorkflowForDelivered has the delivery join a gathering, and returns the id of its workflow.
func (e *eagerStart) WorkflowForDelivered() (workflowID string, starts bool) {
	if e.starts.lifetime.Stopped() || !e.starts.health.Up() {
		return e.start.WorkflowID(), false
	}
	e.in = e.starts.gatherings.join(&e.start, time.Now())
	return e.in.id, true
}

// StartDelivered makes the delivery a member of its gathering. If that has begun to start without it, it gets its own workflow.
func (e *eagerStart) StartDelivered() {
	if e.in != nil && !e.starts.gatherings.recorded(e.in, e.start) && !e.starts.lifetime.Stopped() {
		e.StartOwn(true)
	}
}

// StartOwn queues the delivery for the start of its own workflow. When this process stops, another one starts it: at once only if it is
// recorded, because otherwise nothing shows that its request may still be under way.
func (e *eagerStart) StartOwn(recorded bool) (starts bool) {
	own := e.start
	own.OwnWorkflow, own.Recorded, own.ReceivedAt = true, recorded, time.Now()
	if e.starts.lifetime.Stopped() {
		if recorded {
			e.starts.leave(own)
		}
		return false
	}
	return e.starts.health.Up() && e.starts.queue.put(&own)
}
