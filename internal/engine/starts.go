package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	// ConcurrentStarts is how many workflows of single deliveries are started at a time.
	ConcurrentStarts = 8
	// ConcurrentLookups is how many workflows are inspected at a time.
	ConcurrentLookups = 4
	// deleteTimeout bounds the deletion of outbox rows.
	deleteTimeout = 10 * time.Second
)

// Starts starts the workflows of deliveries, shared ones and their own. A repeated start has the same workflow id, and only one
// workflow of an id can run.
type Starts struct {
	workflows *Workflows
	revivals  *Revivals
	calls     *Calls
	lifetime  *Lifetime
	rows      Rows // nil: none is deleted
	log       *slog.Logger
	now       func() time.Time // by the database's clock

	maxPerWorkflow int
	deleting       chan struct{} // a token while outbox rows are being deleted
}

func newStarts(c *Config, revivals *Revivals, calls *Calls) *Starts {
	return &Starts{
		workflows: revivals.workflows, revivals: revivals, calls: calls, lifetime: calls.lifetime, rows: c.Rows, log: c.Logger, now: c.Now,
		maxPerWorkflow: c.MaxPerWorkflow, deleting: make(chan struct{}, 1),
	}
}

// MaxPerWorkflow is how many deliveries may share a workflow.
func (s *Starts) MaxPerWorkflow() int { return s.maxPerWorkflow }

// NeedsOwn reports that a delivery may not share a workflow: its deliver_at is in the future, its eager request was sent,
// or no workflow is shared (EVERPOST_MAX_DELIVERIES_PER_WORKFLOW is 1).
func (s *Starts) NeedsOwn(start *webhook.Start) bool {
	return s.maxPerWorkflow == 1 || start.OwnWorkflow || start.Recorded || s.IsScheduled(start)
}

// IsScheduled reports that a delivery's deliver_at is in the future.
func (s *Starts) IsScheduled(start *webhook.Start) bool {
	return !start.NotBefore.IsZero() && start.NotBefore.After(s.now())
}

// Start starts deliveries: each group in a shared workflow and the others in their own, none after another one that hangs. Groups of one are
// fine.
func (s *Starts) Start(groups [][]webhook.Start, own []webhook.Start) {
	starts := make([]func(), 0, len(groups)+1)
	for _, group := range groups {
		starts = append(starts, func() {
			s.calls.Try(func(ctx context.Context) error { return s.Shared(ctx, webhook.SharedWorkflowID(group), group) })
		})
	}
	if len(own) > 0 {
		starts = append(starts, func() { s.startEach(own) })
	}
	withFailpoints(func() { ForEach(ConcurrentStarts, starts, func(start func()) { start() }) })
}

// withFailpoints makes a start between the points at which the fault harness kills a process.
func withFailpoints(start func()) {
	failpoint.Hit("start-before")
	start()
	failpoint.Hit("start-after")
}

// startEach starts deliveries in their own workflows.
func (s *Starts) startEach(all []webhook.Start) {
	var (
		mu       sync.Mutex
		recorded []webhook.DeliveryID
	)
	ForEach(ConcurrentStarts, all, func(start webhook.Start) {
		s.calls.Try(func(ctx context.Context) error {
			err := s.Own(ctx, start)
			if err == nil && start.Recorded {
				mu.Lock()
				defer mu.Unlock()
				recorded = append(recorded, start.DeliveryID)
			}
			return err
		})
	})
	s.deleteRows(recorded)
}

// deleteRows deletes the outbox rows of deliveries that were recorded before their workflows
// were started. It does so in the background, one batch at a time; the relay deletes what is left.
func (s *Starts) deleteRows(ids []webhook.DeliveryID) {
	if len(ids) == 0 || s.rows == nil {
		return
	}
	select {
	case s.deleting <- struct{}{}:
	default:
		return
	}
	done := func() { <-s.deleting }
	begun := s.lifetime.Go(func() {
		defer done()
		ctx, cancel := context.WithTimeout(s.lifetime.Calls(), deleteTimeout)
		defer cancel()
		if err := s.rows.DeleteRecorded(ctx, ids); err != nil && !s.lifetime.Stopped() {
			s.log.Warn("rows of started deliveries cannot be deleted from the outbox; the relay will do it", "count", len(ids), "error", err)
		}
	})
	if !begun {
		done()
	}
}

// Assigned starts deliveries in the workflows that the outbox names. All of a workflow are among them, unless some were started
// before: then the start is refused, and what the workflow does not have gets one of its own.
func (s *Starts) Assigned(all []webhook.Start) {
	withFailpoints(func() { s.startAssigned(all) })
}

func (s *Starts) startAssigned(all []webhook.Start) {
	var (
		mu       sync.Mutex
		own      []webhook.Start
		assigned = map[string][]webhook.Start{}
	)
	for _, start := range all {
		if s.NeedsOwn(&start) || start.AssignedTo == "" || start.AssignedTo == start.WorkflowID() {
			own = append(own, start)
		} else {
			assigned[start.AssignedTo] = append(assigned[start.AssignedTo], start)
		}
	}
	ForEach(ConcurrentLookups, slices.Collect(maps.Keys(assigned)), func(id string) {
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
func (s *Starts) startTogether(id string, group []webhook.Start) (left []webhook.Start) {
	s.calls.Try(func(ctx context.Context) error {
		err := s.workflows.startShared(ctx, id, group)
		if err == nil {
			s.workflows.endEarlierRuns(ctx, id, group)
			return nil
		}
		if ignoreAlreadyStarted(err) != nil {
			return err
		}
		found, err := s.workflows.Inspect(ctx, id)
		if err != nil {
			return err
		}
		for _, start := range group {
			if found.Status != StatusRunning || !s.workflows.hasMember(ctx, found, start.DeliveryID) {
				left = append(left, start)
			}
		}
		return nil
	})
	return left
}

// Shared starts the shared workflow of several deliveries, unless there is or was one of the id.
func (s *Starts) Shared(ctx context.Context, id string, group []webhook.Start) error {
	return ignoreAlreadyStarted(s.workflows.startShared(ctx, id, group))
}

// Own starts the own workflow of a delivery's run, unless it was started before.
func (s *Starts) Own(ctx context.Context, start webhook.Start) (err error) {
	reuse := startOnce
	if start.Resume != nil { // the workflow that held it may have been its own
		reuse = startAgain
	}
	options := s.workflows.ownOptions(start.Ref, start.Run, reuse)
	traced, end := traceStart(s.workflows.tracer, options.ID, []webhook.Start{start})
	defer func() { end(err) }()
	if start.Run > 1 || start.Resume != nil {
		// If the workflow that held it has not ended yet, the start is refused, and the relay repeats it.
		if err := s.terminateIfIdle(ctx, &start); err != nil {
			return err
		}
	}
	_, err = s.workflows.client.ExecuteWorkflow(ctx, options, workflows.DeliveryWorkflow, workflows.InputOf(traced...))
	switch {
	case err == nil:
		s.workflows.endEarlierRuns(ctx, options.ID, []webhook.Start{start})
	case ignoreAlreadyStarted(err) == nil && start.Resume == nil && start.Relayed > 1:
		// It was started long ago and has no first write: its workflow may be gone.
		return s.revivals.Revive(ctx, &webhook.Delivery{Ref: start.Ref, Progress: start.Progress(), CreatedAt: start.CreatedAt, WorkflowID: options.ID},
			webhook.PendingCommand{})
	}
	return ignoreAlreadyStarted(err)
}

// terminateIfIdle ends the workflow that a delivery already has, if that is stuck, which accepts every signal and handles
// none, or idle. An idle one does not know how its delivery stands, as after PostgreSQL or Temporal was restored from an
// older copy. It looks only at a delivery that is relayed again.
func (s *Starts) terminateIfIdle(ctx context.Context, start *webhook.Start) error {
	if start.Relayed <= 1 {
		return nil
	}
	found, err := s.workflows.Inspect(ctx, start.WorkflowID())
	if err != nil || found.Status != StatusRunning || !found.idle {
		return err
	}
	return s.workflows.terminateOutdated(ctx, found)
}
