package engine

import (
	"context"
	"slices"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// stuckAttempts is how many attempts of the same workflow task make a workflow stuck: it panics, or
// does not fit its history. The worker logs that once; from then on each attempt takes the task's
// timeout of 10 s, and longer after the tenth. A worker that dies or is late costs an attempt as
// well, but not so many in a row. A workflow that is ended too early loses nothing.
const stuckAttempts = 5

// Status is how a workflow stands.
type Status uint8

// The statuses of a workflow.
const (
	StatusNone       Status = iota // there is no workflow of the id
	StatusRunning                  // it runs, and is not stuck
	StatusClosed                   // it has ended, or Everpost has terminated it
	StatusTerminated               // a person has terminated it
)

// Workflow is a workflow as Temporal describes it.
type Workflow struct {
	ID     string
	Status Status
	Stuck  bool // it was stuck when it was inspected, and was ended

	run         string
	taskPending bool // a workflow task waits for a worker, or is under way
	idle        bool // it has neither a task nor an activity
	deadLetter  bool // it keeps a dead letter

	mu      sync.Mutex
	queried bool
	members []workflows.Status // of a workflow of several deliveries that was queried; nil: there was no answer
}

// Inspect finds out how a workflow stands. It ends one that is stuck.
func (w *Workflows) Inspect(ctx context.Context, id string) (*Workflow, error) {
	found := &Workflow{ID: id}
	described, err := w.client.DescribeWorkflowExecution(ctx, id, "")
	if isGone(err) {
		return found, nil
	}
	if err != nil {
		return found, err //nolint:wrapcheck // classify handles it
	}
	task := described.GetPendingWorkflowTask()
	found.run, found.taskPending = described.GetWorkflowExecutionInfo().GetExecution().GetRunId(), task != nil
	found.idle = task == nil && len(described.GetPendingActivities()) == 0
	found.deadLetter = described.GetWorkflowExecutionInfo().GetType().GetName() == workflows.DeadLetterName
	switch status := described.GetWorkflowExecutionInfo().GetStatus(); {
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && task.GetAttempt() < stuckAttempts:
		found.Status = StatusRunning
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		found.Status, found.Stuck = StatusClosed, true
		w.log.ErrorContext(ctx, "a workflow is stuck: its task fails again and again; it is ended, and its deliveries go on in another one",
			"workflow", found.ID, "run", found.run, "tries", task.GetAttempt())
		return found, w.terminate(ctx, found, workflows.ReasonStuck)
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		found.Status, err = w.statusOfTerminated(ctx, found)
		return found, err
	default:
		found.Status = StatusClosed
	}
	return found, nil
}

// terminate ends the run that was found. The reason tells it from one that a person has terminated,
// even if this process dies before it starts another workflow.
func (w *Workflows) terminate(ctx context.Context, found *Workflow, reason string) error {
	err := w.client.TerminateWorkflow(ctx, found.ID, found.run, reason)
	if isGone(err) { // it has ended meanwhile
		return nil
	}
	return err //nolint:wrapcheck // classify handles it
}

// statusOfTerminated tells a workflow that a person has terminated from one that Everpost has ended.
func (w *Workflows) statusOfTerminated(ctx context.Context, found *Workflow) (Status, error) {
	history := w.client.GetWorkflowHistory(ctx, found.ID, found.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !history.HasNext() {
		return StatusTerminated, nil
	}
	last, err := history.Next()
	switch {
	case isGone(err):
		return StatusTerminated, nil
	case err != nil:
		return StatusTerminated, err //nolint:wrapcheck // classify handles it
	case workflows.TerminatedByEverpost(last.GetWorkflowExecutionTerminatedEventAttributes().GetReason()):
		return StatusClosed, nil
	}
	return StatusTerminated, nil
}

// hasMember reports whether a workflow of several deliveries that runs has one.
// If the query is not answered it reports true: the workflow will be inspected again.
func (w *Workflows) hasMember(ctx context.Context, found *Workflow, delivery webhook.DeliveryID) bool {
	members, answered := w.membersOf(ctx, found)
	return !answered || slices.ContainsFunc(members, func(m workflows.Status) bool { return m.DeliveryID == delivery })
}

// membersOf returns the deliveries that a workflow of several has, which runs. It queries each workflow once. There is no answer
// while its worker is busy, or none runs.
func (w *Workflows) membersOf(ctx context.Context, found *Workflow) (members []workflows.Status, answered bool) {
	if found.taskPending {
		return nil, false
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if !found.queried {
		found.queried = true
		answer, err := w.client.QueryWorkflow(ctx, found.ID, found.run, workflows.QueryStatus)
		if err != nil || answer.Get(&found.members) != nil {
			found.members = nil
		} else if found.members == nil {
			found.members = []workflows.Status{}
		}
	}
	return found.members, found.members != nil
}

// InitialDeliveries returns the deliveries that a run of a shared workflow was started with. A stuck
// workflow cannot be queried.
func (w *Workflows) InitialDeliveries(ctx context.Context, found *Workflow) ([]webhook.DeliveryID, error) {
	history := w.client.GetWorkflowHistory(ctx, found.ID, found.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !history.HasNext() {
		return nil, nil
	}
	first, err := history.Next()
	if err != nil {
		return nil, err //nolint:wrapcheck // classify handles it
	}
	return workflows.DeliveriesOf(w.converter, first.GetWorkflowExecutionStartedEventAttributes().GetInput())
}
