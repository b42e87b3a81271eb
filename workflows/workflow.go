package workflows

import "github.com/everpost/everpost/internal/webhook"

// reasonWorkflowCancelled is the reason of an end that a person brought about by cancelling the workflow
// itself.
const reasonWorkflowCancelled = "the workflow was cancelled"

// The reasons Everpost gives when it terminates a workflow. Its deliveries continue in another one: no
// person has terminated them.
const (
	ReasonStuck    = "its workflow task fails again and again; Everpost goes on with its deliveries in another workflow"
	ReasonOutdated = "the delivery's state in PostgreSQL is another one; Everpost goes on with it in another workflow"
)

// TerminatedByEverpost reports that a workflow was terminated for one of these reasons.
func TerminatedByEverpost(reason string) bool {
	return reason == ReasonStuck || reason == ReasonOutdated
}

// QueryStatus asks a DeliveryWorkflow or a DeadLetterWorkflow where its deliveries stand. The answer is a list of Status, without those that have
// left a shared workflow.
const QueryStatus = "status"

// Status is where a delivery stands.
type Status struct {
	webhook.Ref
	webhook.Progress

	LastError string `json:"last_error,omitempty"` // the internal fault that the delivery waits for
}

// TaskQueue is the task queue of all workflows.
const TaskQueue = "everpost"
