package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetterStore has the dead letters.
type DeadLetterStore interface {
	// DeliveryStatuses reads statuses, in the order of refs. The run is 0 where there is no such delivery.
	DeliveryStatuses(ctx context.Context, refs []webhook.Ref) ([]webhook.DeliveryStatus, error)
	// KeepIn names the workflow that keeps dead letters of the given runs.
	KeepIn(ctx context.Context, workflowID string, refs []webhook.Ref, runs []int) error
	// Reopen opens the next run of a dead letter of the given run.
	Reopen(ctx context.Context, ref webhook.Ref, run int, reason string) (webhook.DeliveryStatus, error)
}

// DeadLetterStarter starts the workflows that keep dead letters of shared workflows.
type DeadLetterStarter interface {
	// Keep starts the workflow. Where there is or was one of the id already, which does not have all of them, it returns the indexes of the others.
	Keep(ctx context.Context, workflowID string, all []DeliveryState) (left []int, err error)
}

// DeliveryState is what a workflow knows of one of its deliveries.
type DeliveryState struct {
	webhook.Ref
	webhook.Progress

	// Command is a cancel that is to be carried out, or what a dead letter takes along; commands up to the id CommandDone have been handled.
	Command     webhook.PendingCommand `json:"command,omitzero"`
	CommandDone int64                  `json:"command_done,omitempty"`
	// Running: the request of the next attempt may be under way.
	Running bool `json:"running,omitempty"`
	// Unconfirmed: the store names another workflow than the one that is to continue the delivery, or keeps a command that
	// has been handled.
	Unconfirmed bool                 `json:"unconfirmed,omitempty"`
	LastOutcome *webhook.LastOutcome `json:"last_outcome,omitempty"` // of the last attempt that this or an earlier workflow made
	Faults      int                  `json:"faults,omitempty"`       // internal faults in a row
	LastError   string               `json:"last_error,omitempty"`   // the last of them
	// Unowned is how often in a row the attempt was deferred because its worker did not reach the owner of the endpoint's lane.
	Unowned int `json:"unowned,omitempty"`

	// Trace says where the spans of the delivery's workflows belong.
	Trace webhook.Trace `json:"trace,omitempty"`
}

// Keeping is dead letters, and the workflow that keeps them.
type Keeping struct {
	WorkflowID  string          `json:"workflow_id"`
	DeadLetters []DeliveryState `json:"dead_letters"`
}

// Kept is the result of Keep.
type Kept struct {
	Left []int `json:"left,omitempty"` // indexes of dead letters that the workflow does not have
}

// Reopening asks for the next run of a dead letter.
type Reopening struct {
	webhook.Ref

	Run    int    `json:"run"` // of the dead letter
	Reason string `json:"reason,omitempty"`
}

// DeadLetters serve the workflows of dead letters.
type DeadLetters struct {
	*reporter

	store   DeadLetterStore
	starter DeadLetterStarter
	keepFor time.Duration
}

// Keep starts the workflow that keeps the dead letters of a shared one: those that are dead letters still. A workflow would keep what is no dead
// letter, and its commands.
func (d *DeadLetters) Keep(ctx context.Context, in Keeping) (Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	statuses, err := d.look(ctx, &in)
	if err != nil {
		return Kept{}, err
	}
	var (
		still   []DeliveryState // the others were replayed, or have ended, meanwhile
		indexes []int
	)
	for i := range statuses {
		if in.DeadLetters[i].isDead(&statuses[i]) {
			still, indexes = append(still, in.DeadLetters[i]), append(indexes, i)
		}
	}
	if len(still) == 0 {
		return Kept{}, nil
	}
	left, err := d.starter.Keep(ctx, in.WorkflowID, still)
	if err != nil {
		return Kept{}, d.internalFault(ctx, "start "+in.WorkflowID, err)
	}
	for i, index := range left {
		left[i] = indexes[index]
	}
	return Kept{left}, nil
}

// Reopen opens the next runs of dead letters, unless they were opened already. It never fails: each status says its own fault.
func (d *DeadLetters) Reopen(ctx context.Context, all []Reopening) ([]StepResult, error) {
	return each(ctx, d.reporter, all, func(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
		if !in.Fits() {
			return webhook.DeliveryStatus{}, webhook.NotFound("delivery")
		}
		status, err := d.store.Reopen(ctx, in.Ref, in.Run, in.Reason)
		if err != nil {
			err = d.internalFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err)
		}
		return status, err
	}), nil
}

// Look returns what the store has of dead letters. It has the store name the workflow that keeps them, if another one was to do so.
func (d *DeadLetters) Look(ctx context.Context, in Keeping) ([]StepResult, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	found, err := d.look(ctx, &in)
	if err != nil {
		return nil, err
	}
	all := make([]StepResult, len(found))
	for i := range found {
		all[i] = StepResult{DeliveryStatus: found[i], Gone: found[i].Run == 0}
	}
	return all, nil
}

// look returns the statuses of dead letters, without those that are not the deliveries which they name, and has the store name their workflow.
func (d *DeadLetters) look(ctx context.Context, in *Keeping) ([]webhook.DeliveryStatus, error) {
	refs := make([]webhook.Ref, len(in.DeadLetters))
	for i := range in.DeadLetters {
		refs[i] = in.DeadLetters[i].Ref
	}
	statuses, err := d.store.DeliveryStatuses(ctx, refs)
	if err != nil {
		return nil, d.internalFault(ctx, "read the dead letters of "+in.WorkflowID, err)
	}
	var (
		others []webhook.Ref // of which the store names another workflow
		runs   []int
	)
	for i := range statuses {
		if !refs[i].Fits() {
			statuses[i] = webhook.DeliveryStatus{}
		}
		if in.DeadLetters[i].isDead(&statuses[i]) && statuses[i].WorkflowID != in.WorkflowID {
			others, runs = append(others, refs[i]), append(runs, statuses[i].Run)
		}
	}
	if len(others) == 0 {
		return statuses, nil
	}
	if err := d.store.KeepIn(ctx, in.WorkflowID, others, runs); err != nil {
		return nil, d.internalFault(ctx, "name "+in.WorkflowID, err)
	}
	return statuses, nil
}

// isDead reports that the store has the run as a dead letter still.
func (s *DeliveryState) isDead(status *webhook.DeliveryStatus) bool {
	return status.Run == s.Run && status.State == webhook.StateDeadLettered
}

// KeepFor is how long dead letters are kept.
func (d *DeadLetters) KeepFor(context.Context) (time.Duration, error) { return d.keepFor, nil }
