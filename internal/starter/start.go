package starter

import (
	"context"
	"errors"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// ownWidth is how many starts of single deliveries a slot makes at a time.
	ownWidth = 8
	// fewPart of a workflow's width is what a tenant may have in a start to go before
	// those that have more, and what is started beside a start of a tenant that has much.
	fewPart = 8
)

// goesAlone reports that a delivery gets a workflow of its own from the beginning: it
// waits for its time, or continues a workflow that may be there. One that was in a shared one
// which has not come to anything is the relay's to start.
func (d *Starter) goesAlone(s *webhook.Start) bool {
	return d.Width == 1 || s.OwnWorkflow || s.Recorded || d.waits(s) || s.Run > 1 && s.Resume == nil
}

// waits reports that a delivery's time has not come.
func (d *Starter) waits(s *webhook.Start) bool {
	return !s.NotBefore.IsZero() && s.NotBefore.After(d.Now())
}

// start begins deliveries: those that may share a workflow in as few as they fit
// into, the others in their own.
func (d *Starter) start(batch []webhook.Start) {
	d.gatherings.started(time.Now())
	var shared, slow, own []webhook.Start
	for _, s := range batch {
		switch {
		case d.goesAlone(&s):
			own = append(own, s)
		case d.Gate != nil && d.Gate.Slow(s.EndpointID):
			slow = append(slow, s)
		default:
			shared = append(shared, s)
		}
	}
	few, many := apart(shared, d.Width/fewPart)
	d.beginEach(d.startShared(few)) // they wait for nobody who has many
	alone := d.startShared(many)
	alone = append(alone, d.startShared(slow)...) // among themselves, so that nobody else waits for them
	d.beginEach(append(alone, own...))
}

// beginEach begins deliveries in their own workflows.
func (d *Starter) beginEach(all []webhook.Start) {
	var (
		mu       sync.Mutex
		recorded []webhook.DeliveryID
	)
	each(ownWidth, all, func(s webhook.Start) {
		d.carry(func(ctx context.Context) error {
			err := d.begin(ctx, s)
			if err == nil && s.Recorded {
				mu.Lock()
				defer mu.Unlock()
				recorded = append(recorded, s.DeliveryID)
			}
			return err
		})
	})
	d.endOutbox(recorded)
}

// endOutbox deletes the outbox rows of deliveries that were recorded before their workflows were
// started, which is now. No start waits for it, and what it does not get to is left to the relay.
func (d *Starter) endOutbox(ids []webhook.DeliveryID) {
	if len(ids) == 0 || d.Store == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping() {
		return
	}
	select {
	case d.ending <- struct{}{}:
	default:
		return
	}
	d.workers.Go(func() {
		defer func() { <-d.ending }()
		ctx, cancel := context.WithTimeout(d.life, readTimeout)
		defer cancel()
		if err := d.Store.DeleteStarts(ctx, ids); err != nil && !d.stopping() {
			d.Logger.Warn("rows of started deliveries cannot be deleted from the outbox; the relay will do it", "count", len(ids), "error", err)
		}
	})
}

// apart divides what is to be started: into what tenants have who have only a few in it,
// and the rest. Where there is one tenant only, nobody waits for another.
func apart(all []webhook.Start, few int) (ofFew, ofMany []webhook.Start) {
	count := map[string]int{}
	for i := range all {
		count[all[i].TenantID]++
	}
	if len(count) <= 1 {
		return nil, all
	}
	for _, s := range all {
		if count[s.TenantID] <= few {
			ofFew = append(ofFew, s)
		} else {
			ofMany = append(ofMany, s)
		}
	}
	return ofFew, ofMany
}

// startShared begins deliveries in as few workflows as they fit into, and returns who
// was left alone.
func (d *Starter) startShared(all []webhook.Start) (alone []webhook.Start) {
	for len(all) > 1 || len(all) == 1 && d.faulty.has(all[0].EndpointID) { // it will be held, which costs a row
		group := all[:min(d.Width, len(all))]
		all = all[len(group):]
		d.carry(func(ctx context.Context) error { return d.beginShared(ctx, group) })
	}
	if len(all) == 1 && all[0].Relayed > 0 {
		d.carry(func(ctx context.Context) error {
			if !d.noteRelayed(ctx, all[0].WorkflowID(), all) {
				all = nil
			}
			return nil
		})
	}
	return all
}

// beginShared starts the workflow of several first attempts. Its id is made of the
// deliveries: a start that is repeated, because its answer got lost, is the same.
func (d *Starter) beginShared(ctx context.Context, group []webhook.Start) error {
	id := workflows.FanoutID(group)
	if !d.noteRelayed(ctx, id, group) {
		return nil
	}
	return d.startFanout(ctx, id, group)
}

func (d *Starter) startFanout(ctx context.Context, id string, group []webhook.Start) error {
	options := d.options(id, workflows.TaskQueue(group[0].EndpointID))
	options.TypedSearchAttributes = workflows.FanoutAttributes(group, d.EventIDs)
	options.StaticSummary = workflows.FanoutSummary(group)
	_, err := d.Client.ExecuteWorkflow(ctx, options, workflows.FanoutWorkflow, workflows.FanoutOf(group))
	return unlessStarted(err)
}

// begin starts the delivery's workflow, unless it has been started before.
func (d *Starter) begin(ctx context.Context, start webhook.Start) error {
	options := d.own(start.Ref)
	input := workflows.DeliveryInput{DeliveryState: workflows.DeliveryState{Ref: start.Ref, Progress: begun(start)}, NotBefore: start.NotBefore}
	var err error
	switch {
	case start.Resume != nil:
		// It may have had a workflow before, in an earlier run, or until it was held. Where that
		// has not ended yet, the start is refused, and the relay repeats it.
		options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
		input.Progress, input.HandedOver = *start.Resume, true
		if err := d.unlessIdle(ctx, &start); err != nil {
			return err
		}
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, input)
	case start.Run == 1:
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, input)
		if err != nil && unlessStarted(err) == nil && start.Relayed > 1 {
			// Started, long ago, and nothing of it recorded: is it still there?
			return d.revive(ctx, &webhook.Delivery{Ref: start.Ref, Progress: input.Progress, CreatedAt: start.CreatedAt, WorkflowID: options.ID},
				webhook.PendingCommand{})
		}
	default:
		// A later run: its dead letter may be alive under the same id and continues as
		// the delivery when it is signalled; else the delivery starts anew.
		options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
		options.EnableEagerStart = false
		if err := d.unlessStuck(ctx, &start); err != nil {
			return err
		}
		_, err = d.Client.SignalWithStartWorkflow(ctx, options.ID, workflows.SignalReplay, workflows.CommandSignal{Run: start.Run}, options,
			workflows.DeliveryWorkflow, input)
	}
	return unlessStarted(err)
}

// unlessStuck ends the workflow that a delivery already has, if it is stuck: what has been relayed
// more than once was told to it in vain, and one that is stuck takes every signal and heeds none.
func (d *Starter) unlessStuck(ctx context.Context, start *webhook.Start) error {
	if start.Relayed <= 1 {
		return nil
	}
	_, err := d.look(ctx, start.WorkflowID())
	return err
}

// unlessIdle ends the workflow that a held delivery already has, if it is stuck, or waits for
// something: no workflow that knows of the hold does. That of an earlier build may.
func (d *Starter) unlessIdle(ctx context.Context, start *webhook.Start) error {
	if start.Relayed <= 1 {
		return nil
	}
	found, err := d.look(ctx, start.WorkflowID())
	if err != nil || found.fate != fateRuns || !found.idle {
		return err
	}
	d.Logger.WarnContext(ctx, "a workflow waits for a delivery that is held; it is ended, and another one is started", "workflow", found.id, "run", found.run)
	return d.terminate(ctx, found)
}

// begun is where a delivery stands of which nothing is recorded in its run.
func begun(start webhook.Start) webhook.Progress {
	return webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}
}

// HandOver starts the own workflow of a delivery that leaves a shared one, as what it
// has become. Nil also when there is one already, or was: then it goes on, or came to
// rest, in that, and is told what was asked.
//
// Hand-overs take turns: where many shared workflows have much to hand over, each start
// is as quick as if it were alone, and none is begun that will not be finished in time.
func (d *Starter) HandOver(ctx context.Context, h activities.DeliveryState) error {
	if !d.turns.take(ctx, h.TenantID, 1, turnPatience) {
		return activities.ErrCrowded
	}
	defer d.turns.give(h.TenantID, 1)
	options := d.own(h.Ref)
	var err error
	if h.State == webhook.StateDeadLettered {
		options.TypedSearchAttributes = workflows.DeadLetterAttributes(h.Ref)
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, workflows.NewDeadLetter(workflows.DeliveryState(h)))
	} else {
		_, err = d.Client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.ContinueDelivery(workflows.DeliveryState(h)))
	}
	if err != nil && unlessStarted(err) == nil && h.Command.Command != webhook.CommandNone {
		// It may have been handed over before, by a task that was lost because a signal
		// came: what that asked is not in the record when it was sent by hand.
		if err := d.tell(ctx, options.ID, h.DeliveryID, h.Command); err != nil && !isGone(err) {
			return err
		}
	}
	return unlessStarted(err)
}

// own are the options of a delivery's own workflow.
func (d *Starter) own(ref webhook.Ref) client.StartWorkflowOptions {
	options := d.options(ref.WorkflowID(), workflows.TaskQueue(ref.EndpointID))
	options.TypedSearchAttributes = workflows.SearchAttributes(ref)
	options.StaticSummary = workflows.StaticSummary(ref)
	return options
}

// options are those of every start: there is one workflow of an id in the world,
// running or closed.
func (d *Starter) options(id, queue string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: id, TaskQueue: queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         d.LocalWorker,
	}
}

// unlessStarted is the error of a start; that it was made before is none.
func unlessStarted(err error) error {
	if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
		return nil
	}
	return err
}
