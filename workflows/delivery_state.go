package workflows

import (
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// DeliveryState is what a workflow knows of one of its deliveries. A DeliveryWorkflow has one, a DeadLetterWorkflow
// one or many, a FanoutWorkflow many. The state moves with the delivery between
// workflows.
//
// Four flags say what a workflow and the store know of each other:
//
//	flag         of             set                                         effect
//	FirstTask    AttemptInput   in the first task of the first workflow:    a fresh token may stand for a claim
//	                            no lost task can have sent a request
//	HandedOver   DeliveryInput  if another workflow may have made           FirstTask is never set, synced is
//	                            attempts
//	synced       delivery       when the workflow has made an attempt, or   before: retry and reschedule wait, replay and
//	                            began with the store's status               discard are kept, as the store may be ahead
//	Unconfirmed  DeliveryState  if the store names another workflow, or     a step is stored before the next wait; a dead
//	                            has a command that is handled already       letter's workflow looks at the store
type DeliveryState activities.DeliveryState

// apply updates the state with the result of an attempt.
func (s *DeliveryState) apply(r *activities.AttemptResult) {
	attempted := r.Attempts > s.Attempts
	s.Progress, s.Command, s.Running, s.Faults, s.LastError = r.Progress, r.Command, false, 0, ""
	if s.Deferred() && s.Reason == webhook.ReasonNoOwner {
		s.Unowned++
	} else {
		s.Unowned = 0
	}
	if r.LastOutcome != nil {
		s.LastOutcome = r.LastOutcome
	}
	s.Unconfirmed = s.Unconfirmed && !attempted || s.isElsewhere(r.WorkflowID)
	if attempted && !r.Found && r.Command.Command == webhook.CommandRetry {
		// R7: this attempt was the retry. The next one keeps its time, and the store keeps the command
		// until a step acknowledges it.
		s.CommandDone, s.Command, s.Unconfirmed = max(s.CommandDone, r.Command.ID), webhook.PendingCommand{}, true
	}
	if !r.ClaimedUntil.IsZero() {
		s.waitUntil(r.ClaimedUntil)
	}
}

func (s *DeliveryState) tenant() string { return s.TenantID }

// ownID is the id of the workflow of the delivery's run that it has for itself.
func (s *DeliveryState) ownID() string { return s.WorkflowID(s.Run) }

// isElsewhere reports whether the store names another workflow than the delivery's own. It names
// none for a held delivery.
func (s *DeliveryState) isElsewhere(workflowID string) bool {
	return workflowID != "" && workflowID != s.ownID()
}

// waitUntil postpones the next attempt. The reason of an earlier wait no longer applies.
func (s *DeliveryState) waitUntil(at time.Time) {
	s.Progress = s.WaitingUntil(at)
	s.Reason = ""
}

// addFault counts an internal fault, and returns the pause before the next try: 1 s doubling to
// 1 min. No attempt is counted, and nothing is recorded against the receiver.
func (s *DeliveryState) addFault(fault string) (pause time.Duration) {
	s.Faults++
	s.LastError = fault
	return min(time.Second<<min(s.Faults-1, 6), time.Minute)
}

// nextStep is when the next attempt is requested. A deferred delivery comes a little early and waits
// for its reservation in the attempt: durable timers are coarse, and a reservation lasts one second.
func (s *DeliveryState) nextStep() time.Time {
	if s.Deferred() {
		return s.DueAt.Add(-activities.MaxEarly)
	}
	return s.DueAt
}

// addCommand keeps a command for the delivery's own workflow. A cancel is not replaced.
func (s *DeliveryState) addCommand(command webhook.Command, signal CommandSignal) {
	if s.Command.Command != webhook.CommandCancel {
		s.Command = signal.pending(command)
	}
}

// step is the next step of the delivery's own workflow, without any change yet.
func (s *DeliveryState) step() webhook.Step {
	step := webhook.Step{Ref: s.Ref, Progress: s.Progress, WorkflowID: s.ownID(), CommandDone: s.CommandDone}
	step.Seq++
	return step
}
