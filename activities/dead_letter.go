package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// deadLettersAtOnce is how many dead letters of one workflow are written at a time.
const deadLettersAtOnce = 4

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

// DeadLetterStatus is what the store has of a dead letter, which is authoritative; or that it has nothing; or a fault.
type DeadLetterStatus struct {
	webhook.DeliveryStatus

	Gone  bool   `json:"gone,omitempty"`  // the store does not have the delivery
	Fault string `json:"fault,omitempty"` // why the store could not be asked, in words; the rest is not known then
}

// DeadLetters serve the workflows of dead letters.
type DeadLetters struct {
	*reporter

	store   DeadLetterStore
	starter DeadLetterStarter
	steps   *Steps
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
func (d *DeadLetters) Reopen(ctx context.Context, all []Reopening) ([]DeadLetterStatus, error) {
	return eachDeadLetter(ctx, d.reporter, all, func(ctx context.Context, in Reopening) (webhook.DeliveryStatus, error) {
		if !in.Fits() {
			return webhook.DeliveryStatus{}, gone(webhook.NotFound("delivery"))
		}
		status, err := d.store.Reopen(ctx, in.Ref, in.Run, in.Reason)
		if err != nil {
			err = gone(d.internalFault(ctx, fmt.Sprintf("reopen %s", in.DeliveryID), err))
		}
		return status, err
	}), nil
}

// Discard ends dead letters, with a step for each. It never fails: each status says its own fault.
func (d *DeadLetters) Discard(ctx context.Context, all []webhook.Step) ([]DeadLetterStatus, error) {
	return eachDeadLetter(ctx, d.reporter, all, d.steps.RecordStep), nil
}

// Look returns what the store has of dead letters. It has the store name the workflow that keeps them, if another one was to do so.
func (d *DeadLetters) Look(ctx context.Context, in Keeping) ([]DeadLetterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	found, err := d.look(ctx, &in)
	if err != nil {
		return nil, err
	}
	all := make([]DeadLetterStatus, len(found))
	for i := range found {
		all[i] = DeadLetterStatus{DeliveryStatus: found[i], Gone: found[i].Run == 0}
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

// eachDeadLetter asks the store for each, a few at a time. A fault or a panic with one is not that of the others.
func eachDeadLetter[T any](
	ctx context.Context, r *reporter, all []T, ask func(context.Context, T) (webhook.DeliveryStatus, error),
) []DeadLetterStatus {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var (
		asked    sync.WaitGroup
		slots    = make(chan struct{}, deadLettersAtOnce)
		statuses = make([]DeadLetterStatus, len(all))
	)
	for i := range all {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			status, err := guarded(r, func() (webhook.DeliveryStatus, error) { return ask(ctx, all[i]) })
			switch {
			case IsGone(err):
				statuses[i].Gone = true
			case err != nil:
				_, statuses[i].Fault = describeFault(err)
			default:
				statuses[i].DeliveryStatus = status
			}
		})
	}
	asked.Wait()
	return statuses
}

// guarded turns a panic into an error. Otherwise it would end the process.
func guarded(r *reporter, ask func() (webhook.DeliveryStatus, error)) (status webhook.DeliveryStatus, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.panicked("a dead letter", p)
		}
	}()
	return ask()
}
