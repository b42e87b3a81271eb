package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/webhook"
)

// Signals of the workflows. Their input is optional: sent by hand from the Web
// UI, without one, each does the plain thing. FanoutWorkflow takes all of them, for the
// delivery that the input names, or for each.
const (
	SignalCancel     = "cancel"     // DeliveryWorkflow, input Asked
	SignalRetryNow   = "retry-now"  // DeliveryWorkflow, input Asked
	SignalReschedule = "reschedule" // DeliveryWorkflow, input Asked with At, or a time alone
	SignalReplay     = "replay"     // DeadLetterWorkflow, input Asked
	SignalDiscard    = "discard"    // DeadLetterWorkflow, input Asked
)

// reasonWorkflowCancelled is the reason of an end that somebody brought about by
// cancelling the workflow itself.
const reasonWorkflowCancelled = "the workflow was cancelled"

// ReasonStuck is with what reason Everpost itself terminates a workflow whose task fails again
// and again. Its deliveries go on in others: nobody has terminated them.
const ReasonStuck = "its workflow task fails again and again; Everpost goes on with its deliveries in another workflow"

// QueryStatus asks a workflow where its delivery stands; the answer is a Status.
const QueryStatus = "status"

// Asked is a command as it reaches a workflow.
type Asked struct {
	// CommandID is the id under which the record keeps the command; 0 when it was
	// sent by hand.
	CommandID int64  `json:"command_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Run is the run that a replay has opened; 0 when it was sent by hand.
	Run int `json:"run,omitempty"`
	// At is when to try again; of reschedule.
	At time.Time `json:"at,omitzero"`
	// DeliveryID says to a shared workflow which of its deliveries is meant; without
	// it, all are.
	DeliveryID webhook.DeliveryID `json:"delivery_id,omitzero"`

	unreadable bool // the input was none of these
}

// askedBy is a command of the record as a signal would have brought it.
func askedBy(c webhook.PendingCommand) Asked {
	return Asked{CommandID: c.ID, Reason: c.Reason, At: c.At}
}

// when is the time that a signal names, in its field or, sent by hand, as its text.
func (a Asked) when() (time.Time, bool) {
	if !a.At.IsZero() {
		return a.At, true
	}
	at, err := time.Parse(time.RFC3339, a.Reason)
	return at.UTC(), err == nil
}

// Status is the answer to QueryStatus.
type Status struct {
	webhook.Ref
	webhook.Progress

	LastError string `json:"last_error,omitempty"` // of our own, while it keeps the delivery waiting
}

// TaskQueue is the queue of an endpoint's deliveries. All endpoints share one
// today; whoever needs the name asks here.
func TaskQueue(webhook.EndpointID) string { return "everpost" }

// TaskQueues are all queues that a worker has to serve.
func TaskQueues() []string { return []string{TaskQueue(webhook.EndpointID{})} }

// The search attributes of the workflows. A namespace must have them before the
// first start: keywords, all of them.
const (
	AttributeTenantID      = "TenantId"
	AttributeEndpointID    = "EndpointId"
	AttributeEventType     = "EventType"
	AttributeEventID       = "EventId"
	AttributeDeliveryState = "DeliveryState"
	AttributeEventIDs      = "EventIds" // of a workflow that carries several deliveries
)

// KeywordAttributes are the names of the search attributes of type Keyword, and
// KeywordListAttributes those of type KeywordList.
func KeywordAttributes() []string {
	return []string{AttributeTenantID, AttributeEndpointID, AttributeEventType, AttributeEventID, AttributeDeliveryState}
}

// KeywordListAttributes are the search attributes of type KeywordList.
func KeywordListAttributes() []string { return []string{AttributeEventIDs} }

// SearchAttributes are given with the start of a delivery's workflow, where they
// cost nothing. DeliveryState is not among them: it appears when the delivery
// leaves the happy path, because each later change costs an event and a write.
func SearchAttributes(ref webhook.Ref) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		temporal.NewSearchAttributeKeyKeyword(AttributeTenantID).ValueSet(ref.TenantID),
		temporal.NewSearchAttributeKeyKeyword(AttributeEndpointID).ValueSet(ref.EndpointID.String()),
		temporal.NewSearchAttributeKeyKeyword(AttributeEventType).ValueSet(ref.EventType),
		temporal.NewSearchAttributeKeyKeyword(AttributeEventID).ValueSet(ref.EventID.String()),
	)
}

// StaticSummary is one line for the Web UI's list of workflows.
func StaticSummary(ref webhook.Ref) string { return ref.EventType + " to " + ref.EndpointID.String() }
