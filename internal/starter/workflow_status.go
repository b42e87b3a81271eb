package starter

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

// workflowStatus is how a workflow stands.
type workflowStatus uint8

const (
	statusNone       workflowStatus = iota // there is no workflow of the id
	statusRunning                          // it runs, and is not stuck
	statusClosed                           // it has ended, or Everpost has terminated it
	statusTerminated                       // a person has terminated it
)

// workflow is a workflow as Temporal describes it.
type workflow struct {
	id, run     string
	status      workflowStatus
	stuck       bool // it was stuck when it was inspected, and was ended
	taskPending bool // a workflow task waits for a worker, or is under way
	idle        bool // it has neither a task nor an activity
	deadLetter  bool // it keeps a dead letter

	mu      sync.Mutex
	queried bool
	members []workflows.Status // of a shared workflow that was queried; nil: there was no answer
}

// inspect finds out how a workflow stands. It ends one that is stuck.
func (s *Starter) inspect(ctx context.Context, id string) (*workflow, error) {
	found := &workflow{id: id}
	described, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	if isGone(err) {
		return found, nil
	}
	if err != nil {
		return found, err //nolint:wrapcheck // classifyResult handles it
	}
	task := described.GetPendingWorkflowTask()
	found.run, found.taskPending = described.GetWorkflowExecutionInfo().GetExecution().GetRunId(), task != nil
	found.idle = task == nil && len(described.GetPendingActivities()) == 0
	found.deadLetter = described.GetWorkflowExecutionInfo().GetType().GetName() == workflows.DeadLetterName
	switch status := described.GetWorkflowExecutionInfo().GetStatus(); {
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && task.GetAttempt() < stuckAttempts:
		found.status = statusRunning
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		found.status, found.stuck = statusClosed, true
		s.log.ErrorContext(ctx, "a workflow is stuck: its task fails again and again; it is ended, and its deliveries go on in another one",
			"workflow", found.id, "run", found.run, "tries", task.GetAttempt())
		return found, s.terminate(ctx, found, workflows.ReasonStuck)
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		found.status, err = s.statusOfTerminated(ctx, found)
		return found, err
	default:
		found.status = statusClosed
	}
	return found, nil
}

// terminate ends the run that was found. The reason tells it from one that a person has terminated,
// even if this process dies before it starts another workflow.
func (s *Starter) terminate(ctx context.Context, found *workflow, reason string) error {
	err := s.client.TerminateWorkflow(ctx, found.id, found.run, reason)
	if isGone(err) { // it has ended meanwhile
		return nil
	}
	return err //nolint:wrapcheck // classifyResult handles it
}

// statusOfTerminated tells a workflow that a person has terminated from one that Everpost has ended.
func (s *Starter) statusOfTerminated(ctx context.Context, found *workflow) (workflowStatus, error) {
	history := s.client.GetWorkflowHistory(ctx, found.id, found.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !history.HasNext() {
		return statusTerminated, nil
	}
	last, err := history.Next()
	switch {
	case isGone(err):
		return statusTerminated, nil
	case err != nil:
		return statusTerminated, err //nolint:wrapcheck // classifyResult handles it
	case workflows.TerminatedByEverpost(last.GetWorkflowExecutionTerminatedEventAttributes().GetReason()):
		return statusClosed, nil
	}
	return statusTerminated, nil
}

// hasMember reports whether a shared workflow that runs has a delivery. It queries each workflow once.
// If the query is not answered, because its worker is busy or none runs, it reports true: the
// workflow will be inspected again.
func (s *Starter) hasMember(ctx context.Context, w *workflow, delivery webhook.DeliveryID) bool {
	if w.taskPending { // it cannot answer
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.queried {
		w.queried = true
		answer, err := s.client.QueryWorkflow(ctx, w.id, w.run, workflows.QueryStatus)
		if err != nil || answer.Get(&w.members) != nil {
			w.members = nil
		} else if w.members == nil {
			w.members = []workflows.Status{}
		}
	}
	return w.members == nil || slices.ContainsFunc(w.members, func(m workflows.Status) bool { return m.DeliveryID == delivery })
}

// initialDeliveries returns the deliveries that a run of a shared workflow was started with. A stuck
// workflow cannot be queried.
func (s *Starter) initialDeliveries(ctx context.Context, w *workflow) ([]webhook.DeliveryID, error) {
	history := s.client.GetWorkflowHistory(ctx, w.id, w.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !history.HasNext() {
		return nil, nil
	}
	first, err := history.Next()
	if err != nil {
		return nil, err //nolint:wrapcheck // classifyResult handles it
	}
	return workflows.DeliveriesOf(s.converter, first.GetWorkflowExecutionStartedEventAttributes().GetInput())
}
