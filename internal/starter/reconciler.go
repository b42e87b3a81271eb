package starter

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// defaultReconcileEvery is how often the store is compared with Temporal, firstReconcile how long
	// after Start for the first time: what was lost with the process before waits since then.
	defaultReconcileEvery = 5 * time.Minute
	firstReconcile        = 20 * time.Second
	// concurrentLookups is how many workflows are inspected at a time.
	concurrentLookups = 4
	// maxInspected bounds the shared workflows that a round keeps.
	maxInspected = 1000
)

// Overdue is what the reconciler reads and writes.
type Overdue interface {
	// Overdue returns open deliveries that should have gone on a while ago, and Expired dead letters
	// that are past their retention, in pages: each continues at the cursor of the one before. Neither
	// returns a delivery again within the time again.
	Overdue(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	Expired(ctx context.Context, keep time.Duration, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error)
	// TakeOver assigns open deliveries from one workflow to a shared one, and returns those that were
	// the first one's, as they stand.
	TakeOver(ctx context.Context, from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error)
}

// reconcile finds deliveries that are open in the store and that no workflow has: it was terminated,
// is stuck, or was lost with its database. It begins with the store, because Temporal's own list of
// workflows lags and is slow.
func (s *Starter) reconcile() {
	soon := min(firstReconcile, s.reconcileEvery)
	next := time.NewTimer(soon)
	defer next.Stop()
	again := s.reconcileEvery
	for {
		select {
		case <-s.stopped:
			return
		case <-next.C:
		}
		s.wakeTenantDeletions()
		done := s.reconcileAll(s.overdue.Overdue, again)
		done = s.reconcileAll(func(ctx context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
			return s.overdue.Expired(ctx, s.keepDeadLetters, from, again, limit)
		}, again) && done
		if done {
			again = s.reconcileEvery
			next.Reset(s.reconcileEvery)
		} else { // the next round reads again what this one could not handle
			again = soon / 2
			next.Reset(soon)
		}
	}
}

// reconcileRound has the shared workflows that were inspected in one round.
type reconcileRound struct{ inspected map[string]*workflow }

// reconcileAll compares all deliveries that were not read within the time again. It returns false if
// it could not.
func (s *Starter) reconcileAll(
	read func(context.Context, webhook.Cursor, time.Duration, int) ([]webhook.Delivery, webhook.Cursor, error), again time.Duration,
) bool {
	r := reconcileRound{map[string]*workflow{}}
	var from webhook.Cursor
	for !s.temporalDown.Load() && !s.stopping() {
		late, err := readBatch(s, func(ctx context.Context, limit int) (page []webhook.Delivery, err error) {
			page, from, err = read(ctx, from, again, limit)
			return page, err
		})
		if err != nil || len(late) == 0 {
			return err == nil
		}
		single, shared := groupByWorkflow(late)
		forEach(concurrentLookups, single, func(delivery webhook.Delivery) {
			s.tryCall(func(ctx context.Context) error { return s.revive(ctx, &delivery, webhook.PendingCommand{}) })
		})
		for id, group := range shared {
			s.reviveShared(&r, id, group)
		}
		if s.isDown(s.life) { // and may have been for some of these calls
			return false
		}
	}
	return false
}

// groupByWorkflow divides deliveries into those with workflows of their own, and the others by the
// shared workflows that the store names.
func groupByWorkflow(all []webhook.Delivery) (single []webhook.Delivery, shared map[string][]webhook.Delivery) {
	shared = map[string][]webhook.Delivery{}
	for i := range all {
		if workflows.IsFanout(all[i].WorkflowID) {
			shared[all[i].WorkflowID] = append(shared[all[i].WorkflowID], all[i])
		} else {
			single = append(single, all[i])
		}
	}
	return single, shared
}

// inspectOnce inspects a shared workflow once in a round; nil if it could not.
func (s *Starter) inspectOnce(r *reconcileRound, id string) *workflow {
	if known := r.inspected[id]; known != nil {
		return known
	}
	var found *workflow
	s.tryCall(func(ctx context.Context) error {
		w, err := s.inspect(ctx, id)
		if err == nil {
			found = w
		}
		return err
	})
	if found != nil {
		if len(r.inspected) >= maxInspected {
			clear(r.inspected)
		}
		r.inspected[id] = found
	}
	return found
}

// reviveShared starts workflows for those deliveries of a shared workflow that no workflow has any
// more: a new shared workflow; or, if a person terminated it, one per delivery.
func (s *Starter) reviveShared(r *reconcileRound, id string, group []webhook.Delivery) {
	shared := s.inspectOnce(r, id)
	if shared == nil {
		return
	}
	if shared.stuck {
		s.continueStuck(shared, group)
		return
	}
	var (
		mu   sync.Mutex
		lost []webhook.DeliveryID
	)
	forEach(concurrentLookups, group, func(delivery webhook.Delivery) {
		s.tryCall(func(ctx context.Context) error {
			status, err := s.statusOf(ctx, shared, &delivery)
			if err != nil || status == statusRunning {
				return err
			}
			if status == statusTerminated {
				return s.restart(ctx, &delivery, true, webhook.PendingCommand{})
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, delivery.DeliveryID)
			return nil
		})
	})
	s.continueShared(id, lost)
}

// statusOf returns the status of the workflow that has a delivery, given the one that the store names.
// A shared workflow that has ended, or runs without the delivery, may have handed it over to its own
// workflow, which has not recorded anything yet.
func (s *Starter) statusOf(ctx context.Context, named *workflow, delivery *webhook.Delivery) (workflowStatus, error) {
	own := delivery.Ref.WorkflowID(delivery.Run)
	if named.id == own {
		return s.statusOfOwn(ctx, named, delivery)
	}
	status := named.status
	if status == statusRunning {
		if s.hasMember(ctx, named, delivery.DeliveryID) {
			return statusRunning, nil
		}
		status = statusNone
	}
	handedOver, err := s.inspect(ctx, own)
	if err == nil && handedOver.status != statusNone {
		return s.statusOfOwn(ctx, handedOver, delivery)
	}
	return status, err
}

// statusOfOwn returns the status of a delivery's own workflow. It ends one that keeps a dead letter while the store
// says that the delivery is open, as after PostgreSQL was restored from an older copy.
func (s *Starter) statusOfOwn(ctx context.Context, own *workflow, delivery *webhook.Delivery) (workflowStatus, error) {
	if own.status != statusRunning || !own.idle || !own.deadLetter || !delivery.State.Open() {
		return own.status, nil
	}
	return statusClosed, s.terminateOutdated(ctx, own)
}

// revive starts a delivery's own workflow, unless that or the one that the store names has the
// delivery. It passes a command on, if there is one.
func (s *Starter) revive(ctx context.Context, delivery *webhook.Delivery, command webhook.PendingCommand) error {
	id, own := delivery.WorkflowID, delivery.Ref.WorkflowID(delivery.Run)
	if id == "" { // it is held, or was started just now
		id = own
	}
	named, err := s.inspect(ctx, id)
	if err != nil {
		return err
	}
	status, err := s.statusOf(ctx, named, delivery)
	if err != nil {
		return err
	}
	if status == statusRunning {
		if delivery.State == webhook.StateDeadLettered && s.expired(delivery) { // the retention was longer when it was started
			command = webhook.PendingCommand{Command: webhook.CommandDiscard, Reason: webhook.ReasonRetention}
		}
		return s.sendCommand(ctx, own, delivery.Ref, delivery.Run, command)
	}
	return s.restart(ctx, delivery, status == statusTerminated, command)
}

// restart starts the delivery's own workflow, which continues from the store and first carries out the
// command, if there is one. A held delivery has no workflow, so that terminated means nothing for it.
func (s *Starter) restart(ctx context.Context, delivery *webhook.Delivery, terminated bool, command webhook.PendingCommand) (err error) {
	held := delivery.State == webhook.StateHeld
	if !held {
		s.log.WarnContext(ctx, "a delivery had no workflow and gets one", "delivery", delivery.DeliveryID, "state", delivery.State, "terminated", terminated)
	}
	options := s.ownOptions(delivery.Ref, delivery.Run, startAgain)
	state := workflows.DeliveryState{Ref: delivery.Ref, Progress: delivery.Progress, Command: command, LastOutcome: delivery.LastOutcome, Unconfirmed: true}
	traced, end := s.traceStart(options.ID, []webhook.Start{{Ref: delivery.Ref}})
	defer func() { end(err) }()
	state.Trace = traced[0].Trace
	if delivery.State == webhook.StateDeadLettered {
		options.TypedSearchAttributes = workflows.DeadLetterAttributes(delivery.Ref)
		in := workflows.NewDeadLetter(state)
		in.GivenUpAt = delivery.CompletedAt
		in.KeepUntil = delivery.CompletedAt.Add(s.keepDeadLetters)
		_, err = s.client.ExecuteWorkflow(ctx, options, workflows.DeadLetterWorkflow, in)
	} else {
		_, err = s.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.DeliveryInput{
			DeliveryState: state, Terminated: terminated && !held,
		})
	}
	return ignoreAlreadyStarted(err)
}

// continueStuck continues all deliveries of a shared workflow that was stuck, even those that are not
// overdue. The first time they share another workflow. The second time each gets its own: if one of
// them makes every workflow stuck, the others must not wait for it.
func (s *Starter) continueStuck(stuck *workflow, group []webhook.Delivery) {
	ids := make([]webhook.DeliveryID, 0, len(group))
	known := map[webhook.DeliveryID]bool{}
	add := func(id webhook.DeliveryID) {
		if !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	for i := range group {
		add(group[i].DeliveryID)
	}
	s.tryCall(func(ctx context.Context) error {
		others, err := s.initialDeliveries(ctx, stuck)
		for _, id := range others {
			add(id)
		}
		return err
	})
	if !workflows.IsSuccessor(stuck.id) {
		s.continueShared(stuck.id, ids)
		return
	}
	rest, err := s.takeOver(stuck.id, stuck.id, ids)
	if err != nil {
		return
	}
	forEach(concurrentLookups, rest, func(delivery webhook.Delivery) {
		s.tryCall(func(ctx context.Context) error { return s.restart(ctx, &delivery, false, webhook.PendingCommand{}) })
	})
}

// continueShared starts another shared workflow for deliveries whose shared workflow has ended.
func (s *Starter) continueShared(from string, ids []webhook.DeliveryID) {
	for len(ids) > 0 {
		group := ids[:min(s.maxPerWorkflow, len(ids))]
		ids = ids[len(group):]
		to := workflows.FanoutSuccessorID(from, group)
		left, err := s.takeOver(from, to, group)
		if err != nil {
			return
		}
		if len(left) == 0 {
			continue // they have changed meanwhile
		}
		s.log.Warn("deliveries had no workflow and get one", "count", len(left), "workflow", to, "before", from)
		starts := make([]webhook.Start, len(left))
		for i := range left {
			starts[i] = webhook.Start{Ref: left[i].Ref, Run: left[i].Run, GiveUpAt: left[i].GiveUpAt, Resume: &left[i].Progress}
		}
		s.tryCall(func(ctx context.Context) error { return ignoreAlreadyStarted(s.startShared(ctx, to, starts)) })
	}
}

// takeOver is Overdue.TakeOver, and logs an error.
func (s *Starter) takeOver(from, to string, ids []webhook.DeliveryID) ([]webhook.Delivery, error) {
	return readBatch(s, func(ctx context.Context, _ int) ([]webhook.Delivery, error) {
		return s.overdue.TakeOver(ctx, from, to, ids)
	})
}

// expired reports that a dead letter is past its retention.
func (s *Starter) expired(delivery *webhook.Delivery) bool {
	return time.Since(delivery.CompletedAt) > s.keepDeadLetters
}
