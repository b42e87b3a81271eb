package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

const (
	// OwnWorkflowPrefix begins the id of every workflow of a single delivery.
	OwnWorkflowPrefix = "delivery/"
	// SharedWorkflowPrefix begins the id of every workflow of several open deliveries.
	SharedWorkflowPrefix = "fanout/"
	// DeadLettersPrefix begins the id of every workflow that keeps dead letters of a shared workflow.
	DeadLettersPrefix = "dead/"
	// MaxAssigned is how many deliveries the store lets share a workflow.
	MaxAssigned = 100
)

// WorkflowID is the id of the workflow of a run of the delivery that it has for itself. Each run has another one, so that
// the workflow which keeps a dead letter never stands in the way of its replay.
func (r Ref) WorkflowID(run int) string {
	id := OwnWorkflowPrefix + r.EventID.String() + "/" + r.EndpointID.String()
	if run > 1 {
		id += "/" + strconv.Itoa(run)
	}
	return id
}

// WorkflowID is the id of the start's own workflow.
func (s *Start) WorkflowID() string { return s.Ref.WorkflowID(s.Run) }

// Progress is where the delivery goes on: at the beginning of its run, or where it was held.
func (s *Start) Progress() Progress {
	if s.Resume != nil {
		return *s.Resume
	}
	return Progress{Run: s.Run, GiveUpAt: s.GiveUpAt}
}

// SharedWorkflowID is the id of the workflow that continues these deliveries, of which there is at least one. It follows
// from them, so that a start that is repeated, because its answer was lost, is the same. Another run of them, or
// another release from a hold, is another workflow.
func SharedWorkflowID(all []Start) string {
	sum := sha256.New()
	for i := range all {
		_, _ = sum.Write(all[i].DeliveryID[:]) // never fails
		if at := all[i].Progress(); at.Run > 1 || at.Seq > 0 {
			_, _ = fmt.Fprintf(sum, "%d.%d", at.Run, at.Seq)
		}
	}
	return SharedWorkflowPrefix + all[0].EventID.String() + "/" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// DeadLettersWorkflowID is the id of the workflow that keeps one batch of the dead letters of a shared workflow.
func DeadLettersWorkflowID(shared string, batch int) string {
	return DeadLettersPrefix + shared + "/" + strconv.Itoa(batch)
}

// Assign sets the workflow of each start: MaxAssigned after one another share one, and one that is left over has its own. A start with
// a deliver_at gets none: it may have to wait, for which it needs its own.
func Assign(all []*Start) {
	var group []Start
	begin := 0
	assign := func(end int) {
		if len(group) == 0 {
			return
		}
		id := group[0].WorkflowID()
		if len(group) > 1 {
			id = SharedWorkflowID(group)
		}
		for _, start := range all[begin:end] {
			if start.NotBefore.IsZero() {
				start.AssignedTo = id
			}
		}
		group, begin = group[:0], end
	}
	for i, start := range all {
		if start.NotBefore.IsZero() {
			group = append(group, *start)
		}
		if len(group) == MaxAssigned {
			assign(i + 1)
		}
	}
	assign(len(all))
}
