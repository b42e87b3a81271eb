package engine

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// StatusOf returns the status of the workflow that has a delivery, given the one that the store names.
// Beside a shared workflow that has ended, or runs without the delivery, its own may have been started, which
// has not recorded anything yet.
func (w *Workflows) StatusOf(ctx context.Context, named *Workflow, delivery *webhook.Delivery) (Status, error) {
	own := delivery.Ref.WorkflowID(delivery.Run)
	if named.ID == own {
		return w.statusOfOwn(ctx, named, delivery)
	}
	status := named.Status
	if status == StatusRunning {
		if w.hasMember(ctx, named, delivery.DeliveryID) {
			return StatusRunning, nil
		}
		status = StatusNone
	}
	revived, err := w.Inspect(ctx, own)
	if err == nil && revived.Status != StatusNone {
		return w.statusOfOwn(ctx, revived, delivery)
	}
	return status, err
}

// statusOfOwn returns the status of a delivery's own workflow. It ends one that keeps a dead letter while the store
// says that the delivery is open, as after PostgreSQL was restored from an older copy.
func (w *Workflows) statusOfOwn(ctx context.Context, own *Workflow, delivery *webhook.Delivery) (Status, error) {
	if own.Status != StatusRunning || !own.idle || !own.deadLetter || !delivery.State.Open() {
		return own.Status, nil
	}
	return StatusClosed, w.terminateOutdated(ctx, own)
}

// terminateOutdated ends a workflow that waits for something else than its delivery does in the store.
func (w *Workflows) terminateOutdated(ctx context.Context, found *Workflow) error {
	w.log.WarnContext(ctx, "a workflow is not where its delivery is; it is ended, and another one is started", "workflow", found.ID, "run", found.run)
	return w.terminate(ctx, found, workflows.ReasonOutdated)
}

// Revivals starts workflows again that deliveries have lost.
type Revivals struct {
	workflows       *Workflows
	keepDeadLetters time.Duration
}

// Revive starts a delivery's own workflow, unless that or the one that the store names has the
// delivery. It passes a command on, if there is one.
func (r *Revivals) Revive(ctx context.Context, delivery *webhook.Delivery, command webhook.PendingCommand) error {
	id := delivery.WorkflowID
	if id == "" { // it is held, or was started just now
		id = delivery.Ref.WorkflowID(delivery.Run)
	}
	named, err := r.workflows.Inspect(ctx, id)
	if err != nil {
		return err
	}
	return r.ReviveIn(ctx, named, delivery, command)
}

// ReviveIn is Revive where the workflow that the store names has been inspected.
func (r *Revivals) ReviveIn(ctx context.Context, named *Workflow, delivery *webhook.Delivery, command webhook.PendingCommand) error {
	id, own := named.ID, delivery.Ref.WorkflowID(delivery.Run)
	status, err := r.workflows.StatusOf(ctx, named, delivery)
	if err != nil {
		return err
	}
	if status == StatusRunning {
		if id != own && (named.Status != StatusRunning || !r.workflows.hasMember(ctx, named, delivery.DeliveryID)) {
			id = own
		}
		if delivery.State == webhook.StateDeadLettered && r.expired(delivery) { // the retention was longer when it was started
			command = webhook.PendingCommand{Command: webhook.CommandDiscard, Reason: webhook.ReasonRetention}
		}
		return r.workflows.signal(ctx, id, delivery.Ref, delivery.Run, command)
	}
	return r.Restart(ctx, delivery, status == StatusTerminated, command)
}

// Restart starts the delivery's own workflow, which continues from the store and first carries out the
// command, if there is one. A held delivery has no workflow, so that terminated means nothing for it.
func (r *Revivals) Restart(ctx context.Context, delivery *webhook.Delivery, terminated bool, command webhook.PendingCommand) (err error) {
	held := delivery.State == webhook.StateHeld
	if !held {
		r.workflows.log.WarnContext(ctx, "a delivery had no workflow and gets one",
			"delivery", delivery.DeliveryID, "state", delivery.State, "terminated", terminated)
	}
	options := r.workflows.ownOptions(delivery.Ref, delivery.Run, startAgain)
	state := workflows.DeliveryState{Ref: delivery.Ref, Progress: delivery.Progress, LastOutcome: delivery.LastOutcome, Unconfirmed: true}
	traced, end := traceStart(r.workflows.tracer, options.ID, []webhook.Start{{Ref: delivery.Ref}})
	defer func() { end(err) }()
	state.Trace = traced[0].Trace
	if delivery.State == webhook.StateDeadLettered {
		options.TypedSearchAttributes = workflows.DeadLetterAttributes([]webhook.Ref{delivery.Ref}, r.workflows.maxEventIDs)
		state.Command = command
		dead := workflows.NewDeadLetter(state)
		dead.GivenUpAt = delivery.CompletedAt
		dead.KeepUntil = delivery.CompletedAt.Add(r.keepDeadLetters)
		_, err = r.workflows.client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, workflows.DeadLetterInput{
			DeadLetters: []*workflows.DeadLetter{dead},
		})
	} else {
		open := &workflows.Member{DeliveryState: state, Terminated: terminated && !held}
		if command.Command != webhook.CommandNone {
			open.Pending = []webhook.PendingCommand{command}
		}
		_, err = r.workflows.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.DeliveryInput{Members: []*workflows.Member{open}})
	}
	return ignoreAlreadyStarted(err)
}

// KeepDeadLetters is how long a dead letter is kept.
func (r *Revivals) KeepDeadLetters() time.Duration { return r.keepDeadLetters }

// expired reports that a dead letter is past its retention.
func (r *Revivals) expired(delivery *webhook.Delivery) bool {
	return time.Since(delivery.CompletedAt) > r.keepDeadLetters
}
