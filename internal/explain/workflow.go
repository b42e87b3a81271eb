package explain

import (
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// workflow says in which workflow the delivery is.
func workflow(s *Situation) string {
	d := &s.Delivery
	var words string
	switch {
	case d.WorkflowID == "" && d.State == webhook.StateHeld:
		return "It has no workflow while it is held; its release starts one."
	case d.WorkflowID == "" && d.State.Open():
		return "Its workflow is still to be started."
	case d.WorkflowID == "":
		return "It had no workflow when it ended."
	case strings.HasPrefix(d.WorkflowID, webhook.OwnWorkflowPrefix):
		words = "its workflow is " + d.WorkflowID
	case strings.HasPrefix(d.WorkflowID, webhook.DeadLettersPrefix):
		words = "its workflow is " + d.WorkflowID + ", which keeps dead letters of a shared workflow"
	default:
		words = "its workflow is " + d.WorkflowID + ", a shared workflow"
	}
	if workflowGone(s) {
		words += "; Temporal keeps such a workflow for " + elapsed(s.WorkflowsKept) + " after its end, so it can no longer be looked at"
	}
	return sentence(words)
}

// workflowGone reports whether Temporal has removed the delivery's workflow, as far as that is known. A dead
// letter's workflow is open until the dead letter is replayed, discarded or past its retention.
func workflowGone(s *Situation) bool {
	d := &s.Delivery
	return s.WorkflowsKept > 0 && d.State.Final() && !d.CompletedAt.IsZero() && s.Now.Sub(d.CompletedAt) >= s.WorkflowsKept
}
