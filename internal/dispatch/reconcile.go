package dispatch

import (
	"context"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// reconcileEvery is how often the record is held against the engine.
	reconcileEvery = 5 * time.Minute
	// reconcileWidth is how many workflows are asked about at a time.
	reconcileWidth = 4
)

// Overdue is what the reconciler reads.
type Overdue interface {
	// Overdue takes open deliveries that should have gone on a while ago, and
	// Expired dead letters that are kept no longer. Neither hands one out again
	// for the time again.
	Overdue(ctx context.Context, again time.Duration, limit int) ([]webhook.Delivery, error)
	Expired(ctx context.Context, keep, again time.Duration, limit int) ([]webhook.Delivery, error)
	// ReleaseForgotten asks what is held for active endpoints to try again.
	ReleaseForgotten(ctx context.Context, limit int) error
}

// reconcile looks for deliveries that the record says are open and that no workflow
// carries: it was terminated by hand, or lost with its database. PostgreSQL drives
// it: the engine's own list of workflows lags and is slow to ask.
func (d *Dispatcher) reconcile() {
	tick := time.NewTicker(d.ReconcileEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.stopped:
			return
		case <-tick.C:
		}
		d.reconcileAll(d.Overdue.Overdue)
		d.reconcileAll(func(ctx context.Context, again time.Duration, limit int) ([]webhook.Delivery, error) {
			return d.Overdue.Expired(ctx, d.KeepDeadLetters, again, limit)
		})
		d.releaseForgotten()
	}
}

// releaseForgotten asks at most a batch in each round: what follows is paced by that.
func (d *Dispatcher) releaseForgotten() {
	if d.away.Load() || d.stopping() {
		return
	}
	ctx, cancel := context.WithTimeout(d.life, readTimeout)
	defer cancel()
	if err := d.Overdue.ReleaseForgotten(ctx, relayBatch); err != nil && !d.stopping() {
		d.Logger.Warn("what is held for active endpoints could not be released", "error", err)
	}
}

func (d *Dispatcher) reconcileAll(read func(context.Context, time.Duration, int) ([]webhook.Delivery, error)) {
	for !d.away.Load() && !d.stopping() {
		late, err := take(d, func(ctx context.Context, limit int) ([]webhook.Delivery, error) {
			return read(ctx, d.ReconcileEvery, limit)
		})
		if err != nil || len(late) == 0 {
			return
		}
		each(reconcileWidth, late, func(delivery webhook.Delivery) {
			d.carry(func(ctx context.Context) error { return d.revive(ctx, &delivery) })
		})
	}
}

// revive sees to it that somebody carries a delivery: its own workflow, or the one
// that the record names.
func (d *Dispatcher) revive(ctx context.Context, delivery *webhook.Delivery) error {
	own, carrier := delivery.Ref.WorkflowID(), delivery.WorkflowID
	if carrier == "" { // held by the record alone, or told so when it was begun just now
		carrier = own
	}
	status, err := d.statusOf(ctx, carrier)
	if err == nil && own != carrier && (!alive(status) || !d.hasMember(ctx, carrier, delivery.DeliveryID)) {
		// A shared workflow has ended, or goes on with others. It may have handed the
		// delivery over, and the delivery's own has not yet told the record.
		if alive(status) {
			status = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
		}
		var handed enumspb.WorkflowExecutionStatus
		if handed, err = d.statusOf(ctx, own); handed != enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED {
			status = handed
		}
	}
	if err == nil && alive(status) && delivery.State == webhook.StateDeadLettered && d.expired(delivery) {
		// It was to be kept for longer when it began.
		return d.tell(ctx, carrier, delivery.DeliveryID, webhook.PendingCommand{
			Command: webhook.CommandDiscard, Reason: webhook.ReasonRetention,
		})
	}
	if err != nil || alive(status) {
		return err
	}
	terminated := status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	if delivery.WorkflowID != "" || terminated { // else it was not to have one while it was held
		d.Logger.WarnContext(ctx, "a delivery had no workflow and gets one", "delivery", delivery.DeliveryID, "state", delivery.State, "terminated", terminated)
	}
	options := d.own(delivery.Ref)
	options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE // the one there was has ended
	if delivery.State == webhook.StateDeadLettered {
		options.TypedSearchAttributes = workflows.DeadLetterAttributes(delivery.Ref)
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, workflows.DeadLetterInput{
			Ref: delivery.Ref, Progress: delivery.Progress, KeepUntil: delivery.CompletedAt.Add(d.KeepDeadLetters),
		})
	} else {
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.DeliveryInput{
			Ref: delivery.Ref, Progress: delivery.Progress, TakeOver: true, Terminated: terminated,
			Released: delivery.State == webhook.StateHeld && !delivery.DueAt.IsZero(), // rescheduled
		})
	}
	return unlessStarted(err)
}

func (d *Dispatcher) expired(delivery *webhook.Delivery) bool {
	return time.Since(delivery.CompletedAt) > d.KeepDeadLetters
}

// statusOf is how a workflow stands; unspecified when there is none of the id.
func (d *Dispatcher) statusOf(ctx context.Context, id string) (enumspb.WorkflowExecutionStatus, error) {
	described, err := d.Client.DescribeWorkflowExecution(ctx, id, "")
	if isGone(err) {
		return enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, nil
	}
	return described.GetWorkflowExecutionInfo().GetStatus(), err
}

// hasMember asks a shared workflow whether it carries a delivery. One that cannot be asked
// is believed to: its worker may be busy, and it will be asked again.
func (d *Dispatcher) hasMember(ctx context.Context, id string, delivery webhook.DeliveryID) bool {
	var members []workflows.Status
	answer, err := d.Client.QueryWorkflow(ctx, id, "", workflows.QueryStatus)
	if err != nil || answer.Get(&members) != nil {
		return true
	}
	return slices.ContainsFunc(members, func(s workflows.Status) bool { return s.DeliveryID == delivery })
}

func alive(s enumspb.WorkflowExecutionStatus) bool {
	return s == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}
