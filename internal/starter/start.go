package starter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// concurrentStarts is how many workflows of single deliveries are started at a time.
const concurrentStarts = 8

// needsOwnWorkflow reports that a delivery may not share a workflow: its deliver_at is in the future, or
// its eager request was sent.
func (s *Starter) needsOwnWorkflow(start *webhook.Start) bool {
	return s.maxPerWorkflow == 1 || start.OwnWorkflow || start.Recorded || s.isScheduled(start)
}

// isScheduled reports that a delivery's deliver_at is in the future.
func (s *Starter) isScheduled(start *webhook.Start) bool {
	return !start.NotBefore.IsZero() && start.NotBefore.After(s.now())
}

// starting has the points before and after a start, at which the fault harness kills a process.
func starting() (end func()) {
	failpoint.Hit("start-before")
	return func() { failpoint.Hit("start-after") }
}

// start starts deliveries: in as few workflows as possible, and in their own those that may not share
// one. Deliveries that are likely to take long share workflows among themselves.
func (s *Starter) start(batch []webhook.Start) {
	defer starting()()
	s.gatherings.started(time.Now())
	var shared, slow, own []webhook.Start
	for _, start := range batch {
		switch {
		case s.needsOwnWorkflow(&start):
			own = append(own, start)
		case s.admission != nil && s.admission.LikelySlow(start.EndpointID):
			slow = append(slow, start)
		default:
			shared = append(shared, start)
		}
	}
	single := s.startGroups(shared)
	single = append(single, s.startGroups(slow)...)
	s.startEach(append(single, own...))
}

// startEach starts deliveries in their own workflows.
func (s *Starter) startEach(all []webhook.Start) {
	var (
		mu       sync.Mutex
		recorded []webhook.DeliveryID
	)
	forEach(concurrentStarts, all, func(start webhook.Start) {
		s.tryCall(func(ctx context.Context) error {
			err := s.startDelivery(ctx, start)
			if err == nil && start.Recorded {
				mu.Lock()
				defer mu.Unlock()
				recorded = append(recorded, start.DeliveryID)
			}
			return err
		})
	})
	s.deleteOutboxRows(recorded)
}

// deleteOutboxRows deletes the outbox rows of deliveries that were recorded before their workflows
// were started. It does so in the background, one batch at a time; the relay deletes what is left.
func (s *Starter) deleteOutboxRows(ids []webhook.DeliveryID) {
	if len(ids) == 0 || s.outbox == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping() {
		return
	}
	select {
	case s.deleting <- struct{}{}:
	default:
		return
	}
	s.workers.Go(func() {
		defer func() { <-s.deleting }()
		ctx, cancel := context.WithTimeout(s.life, readTimeout)
		defer cancel()
		if err := s.outbox.DeleteRecorded(ctx, ids); err != nil && !s.stopping() {
			s.log.Warn("rows of started deliveries cannot be deleted from the outbox; the relay will do it", "count", len(ids), "error", err)
		}
	})
}

// startGroups starts deliveries in as few workflows as possible, and returns the one that is left
// over, if any: it needs no shared workflow.
func (s *Starter) startGroups(all []webhook.Start) (single []webhook.Start) {
	for len(all) > 1 || len(all) == 1 && s.heldEndpoints.isFaulty(all[0].EndpointID) { // which will only be held, and a shared workflow does that, too
		group := all[:min(s.maxPerWorkflow, len(all))]
		all = all[len(group):]
		s.tryCall(func(ctx context.Context) error {
			return ignoreAlreadyStarted(s.startShared(ctx, webhook.SharedWorkflowID(group), group))
		})
	}
	return all
}

// startAssigned starts deliveries in the workflows that the outbox names. All of a workflow are among them, unless some were started
// before: then the start is refused, and what the workflow does not have gets one of its own.
func (s *Starter) startAssigned(all []webhook.Start) {
	defer starting()()
	var (
		mu       sync.Mutex
		own      []webhook.Start
		assigned = map[string][]webhook.Start{}
	)
	for _, start := range all {
		if s.needsOwnWorkflow(&start) || start.AssignedTo == "" || start.AssignedTo == start.WorkflowID() {
			own = append(own, start)
		} else {
			assigned[start.AssignedTo] = append(assigned[start.AssignedTo], start)
		}
	}
	forEach(concurrentLookups, slices.Collect(maps.Keys(assigned)), func(id string) {
		group := assigned[id]
		if len(group) > 1 || group[0].Assigned {
			group = s.startTogether(id, group)
		}
		mu.Lock()
		defer mu.Unlock()
		own = append(own, group...)
	})
	s.startEach(own)
}

// startTogether starts a shared workflow, and returns the deliveries that a workflow of the id, which there is already, does not have.
func (s *Starter) startTogether(id string, group []webhook.Start) (left []webhook.Start) {
	s.tryCall(func(ctx context.Context) error {
		err := s.startShared(ctx, id, group)
		if err == nil {
			forEach(concurrentStarts, group, func(start webhook.Start) { s.endEarlierRun(ctx, &start) })
			return nil
		}
		if ignoreAlreadyStarted(err) != nil {
			return err
		}
		found, err := s.inspect(ctx, id)
		if err != nil {
			return err
		}
		for _, start := range group {
			if found.status != statusRunning || !s.hasMember(ctx, found, start.DeliveryID) {
				left = append(left, start)
			}
		}
		return nil
	})
	return left
}

// startShared starts the shared workflow of several deliveries. serviceerror.WorkflowExecutionAlreadyStarted: there is or was one of
// the id.
func (s *Starter) startShared(ctx context.Context, id string, group []webhook.Start) (err error) {
	group, end := s.traceStart(id, group)
	defer func() { end(ignoreAlreadyStarted(err)) }()
	options := s.startOptions(id, startOnce)
	options.TypedSearchAttributes = workflows.FanoutAttributes(group, s.maxEventIDs)
	options.StaticSummary = workflows.FanoutSummary(group)
	_, err = s.client.ExecuteWorkflow(ctx, options, workflows.FanoutWorkflow, workflows.FanoutOf(group))
	return err //nolint:wrapcheck // classifyResult handles it
}

// startDelivery starts the own workflow of a delivery's run, unless it was started before.
func (s *Starter) startDelivery(ctx context.Context, start webhook.Start) (err error) {
	reuse := startOnce
	if start.Resume != nil { // the workflow that held it may have been its own
		reuse = startAgain
	}
	options := s.ownOptions(start.Ref, start.Run, reuse)
	traced, end := s.traceStart(options.ID, []webhook.Start{start})
	defer func() { end(err) }()
	input := workflows.DeliveryInput{
		DeliveryState: workflows.DeliveryState{
			Ref: start.Ref, Progress: start.Progress(), Trace: traced[0].Trace,
			Running: start.Recorded, // if it has a claim and no attempt; the workflow finds out
		},
		NotBefore: start.NotBefore, HandedOver: start.Resume != nil,
	}
	if start.Run > 1 || start.Resume != nil {
		// If the workflow that held it has not ended yet, the start is refused, and the relay repeats it.
		if err := s.terminateIfIdle(ctx, &start); err != nil {
			return err
		}
	}
	_, err = s.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, input)
	switch {
	case err == nil:
		s.endEarlierRun(ctx, &start)
	case ignoreAlreadyStarted(err) == nil && start.Resume == nil && start.Relayed > 1:
		// It was started long ago and has no first write: its workflow may be gone.
		return s.revive(ctx, &webhook.Delivery{Ref: start.Ref, Progress: input.Progress, CreatedAt: start.CreatedAt, WorkflowID: options.ID},
			webhook.PendingCommand{})
	}
	return ignoreAlreadyStarted(err)
}

// terminateIfIdle ends the workflow that a delivery already has, if that is stuck, which accepts every signal and handles
// none, or idle. An idle one does not know how its delivery stands, as after PostgreSQL or Temporal was restored from an
// older copy. It looks only at a delivery that is relayed again.
func (s *Starter) terminateIfIdle(ctx context.Context, start *webhook.Start) error {
	if start.Relayed <= 1 {
		return nil
	}
	found, err := s.inspect(ctx, start.WorkflowID())
	if err != nil || found.status != statusRunning || !found.idle {
		return err
	}
	return s.terminateOutdated(ctx, found)
}

// terminateOutdated ends a workflow that waits for something else than its delivery does in the store.
func (s *Starter) terminateOutdated(ctx context.Context, found *workflow) error {
	s.log.WarnContext(ctx, "a workflow is not where its delivery is; it is ended, and another one is started", "workflow", found.id, "run", found.run)
	return s.terminate(ctx, found, workflows.ReasonOutdated)
}

// ownOptions are the options of the own workflow of a delivery's run.
func (s *Starter) ownOptions(ref webhook.Ref, run int, reuse enumspb.WorkflowIdReusePolicy) client.StartWorkflowOptions {
	options := s.startOptions(ref.WorkflowID(run), reuse)
	options.TypedSearchAttributes = workflows.SearchAttributes(ref)
	options.StaticSummary = workflows.DeliverySummary(ref)
	return options
}

const (
	// startOnce refuses the start if there is a workflow of the id, running or closed.
	startOnce = enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	// startAgain refuses it only while one is running: a workflow that has closed may be followed by another.
	startAgain = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
)

// startOptions are the options of every start.
func (s *Starter) startOptions(id string, reuse enumspb.WorkflowIdReusePolicy) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueue,
		WorkflowIDReusePolicy:                    reuse,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         s.localWorker,
	}
}

// ignoreAlreadyStarted returns the error of a start, but none if the workflow was started before.
func ignoreAlreadyStarted(err error) error {
	if _, already := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); already {
		return nil
	}
	return err
}
