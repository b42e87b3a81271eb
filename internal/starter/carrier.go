package starter

import (
	"context"
	"slices"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// stuckTries is from which try on of one and the same task a workflow counts as stuck: it
// panics, or does not fit its history. The worker says so once; from then on each try takes
// the task's timeout, 10 s, and more after the tenth. A worker that dies, or is late, costs a
// try as well, but not this many in a row; and a workflow that is ended too early loses nothing.
const stuckTries = 5

// fate is what has become of a workflow.
type fate uint8

const (
	fateNone   fate = iota // there is none of the id
	fateRuns               // it lives, and will go on
	fateEnded              // it has ended, or was ended by Everpost because it was stuck
	fateByHand             // somebody has terminated it
)

// carrier is a workflow that carries deliveries, as it was found.
type carrier struct {
	id, run string
	fate    fate
	stuck   bool // it was found stuck, and ended
	busy    bool // a task of it waits for a worker, or is under way
	idle    bool // it has neither a task nor an activity

	mu      sync.Mutex
	asked   bool               // for its members
	members []workflows.Status // nil: it could not be asked
}

// look finds out what has become of a workflow. One that is stuck is ended.
func (d *Starter) look(ctx context.Context, id string) (*carrier, error) {
	found := &carrier{id: id}
	described, err := d.Client.DescribeWorkflowExecution(ctx, id, "")
	if isGone(err) {
		return found, nil
	}
	if err != nil {
		return found, err //nolint:wrapcheck // note classifies it
	}
	task := described.GetPendingWorkflowTask()
	found.run, found.busy = described.GetWorkflowExecutionInfo().GetExecution().GetRunId(), task != nil
	found.idle = task == nil && len(described.GetPendingActivities()) == 0
	switch status := described.GetWorkflowExecutionInfo().GetStatus(); {
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && task.GetAttempt() < stuckTries:
		found.fate = fateRuns
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		found.fate, found.stuck = fateEnded, true
		d.Logger.ErrorContext(ctx, "a workflow is stuck: its task fails again and again; it is ended, and its deliveries go on in another one",
			"workflow", id, "run", found.run, "tries", task.GetAttempt())
		return found, d.terminate(ctx, found)
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		found.fate, err = d.whoTerminated(ctx, found)
		return found, err
	default:
		found.fate = fateEnded
	}
	return found, nil
}

// terminate ends the run that was found. Whoever dies after it leaves a workflow of
// which whoTerminated says that nobody meant it.
func (d *Starter) terminate(ctx context.Context, found *carrier) error {
	err := d.Client.TerminateWorkflow(ctx, found.id, found.run, workflows.ReasonStuck)
	if isGone(err) { // it has ended meanwhile
		return nil
	}
	return err //nolint:wrapcheck // note classifies it
}

// whoTerminated tells a workflow that a person has terminated from one that Everpost has ended.
func (d *Starter) whoTerminated(ctx context.Context, found *carrier) (fate, error) {
	history := d.Client.GetWorkflowHistory(ctx, found.id, found.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !history.HasNext() {
		return fateByHand, nil
	}
	last, err := history.Next()
	switch {
	case isGone(err):
		return fateByHand, nil
	case err != nil:
		return fateByHand, err //nolint:wrapcheck // note classifies it
	case last.GetWorkflowExecutionTerminatedEventAttributes().GetReason() == workflows.ReasonStuck:
		return fateEnded, nil
	}
	return fateByHand, nil
}

// has asks a shared workflow that lives whether it carries a delivery, once for all of them.
// One that cannot be asked is believed to: its worker may be busy, or none is there, and it
// will be asked again.
func (d *Starter) has(ctx context.Context, c *carrier, delivery webhook.DeliveryID) bool {
	if c.busy {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked {
		c.asked = true
		answer, err := d.Client.QueryWorkflow(ctx, c.id, c.run, workflows.QueryStatus)
		if err != nil || answer.Get(&c.members) != nil {
			c.members = nil
		} else if c.members == nil {
			c.members = []workflows.Status{}
		}
	}
	return c.members == nil || slices.ContainsFunc(c.members, func(s workflows.Status) bool { return s.DeliveryID == delivery })
}

// beganWith are the deliveries that a run of a shared workflow began with: one that is stuck
// cannot be asked.
func (d *Starter) beganWith(ctx context.Context, c *carrier) ([]webhook.DeliveryID, error) {
	history := d.Client.GetWorkflowHistory(ctx, c.id, c.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !history.HasNext() {
		return nil, nil
	}
	first, err := history.Next()
	if err != nil {
		return nil, err //nolint:wrapcheck // note classifies it
	}
	return workflows.DeliveriesOf(first.GetWorkflowExecutionStartedEventAttributes().GetInput())
}
