package starter

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// relayEvery is how often the outbox is read, relayBatch how much is read at a time.
	relayEvery = time.Second
	relayBatch = 200
)

// Outbox is what the relay reads.
type Outbox interface {
	Starts
	// TakeCommands takes commands that no step has answered for a while.
	TakeCommands(ctx context.Context, limit int) ([]webhook.CommandedDelivery, error)
	// MakeDue lets TakeStarts return deliveries at once.
	MakeDue(ctx context.Context, ids []webhook.DeliveryID) error
}

// Starts are the deliveries whose workflows are still to be started.
type Starts interface {
	// TakeStarts takes deliveries that were stored a while ago: those without a first write, and those
	// whose first write kept the outbox row (Start.Recorded). It does not return them again for a while.
	TakeStarts(ctx context.Context, limit int) ([]webhook.Start, error)
	// DeleteRecorded deletes the rows of deliveries that are recorded and whose workflow has been started.
	DeleteRecorded(ctx context.Context, ids []webhook.DeliveryID) error
	// AssignWorkflow notes the workflow that is started for deliveries that TakeStarts returned.
	AssignWorkflow(ctx context.Context, workflowID string, ids []webhook.DeliveryID) error
	// ReturnStarts undoes TakeStarts for deliveries that could not be started.
	ReturnStarts(ctx context.Context, starts []webhook.Start) error
}

// relay starts what was not started, because a process died, Temporal was down or the queue was too
// long: deliveries without a workflow, commands without an answer, and replays.
func (s *Starter) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-tick.C:
		}
		s.relayReplays()
		for more := true; more; {
			more = s.relayOnce()
		}
	}
}

// relayOnce takes a batch of deliveries and one of commands. It reports whether there may be more.
func (s *Starter) relayOnce() bool {
	if s.temporalDown.Load() {
		return false
	}
	starts, err := readBatch(s, s.outbox.TakeStarts)
	if err != nil {
		return false
	}
	late := slices.DeleteFunc(slices.Clone(starts), func(start webhook.Start) bool {
		return time.Since(start.CreatedAt) < queueTime // a replay leaves its deliveries to the relay at once
	})
	if len(late) > 0 {
		s.log.Info("starting deliveries that were not started before", "count", len(late))
	}
	// Before anything else can fail: the outbox does not return them again for a while.
	s.startRelayed(starts)
	if len(starts) > 0 && s.isDown(s.life) {
		s.returnStarts(starts)
	}
	if s.temporalDown.Load() {
		return false
	}
	commands, err := readBatch(s, s.outbox.TakeCommands)
	if err != nil {
		return false
	}
	forEach(concurrentStarts, commands, func(c webhook.CommandedDelivery) {
		s.tryCall(func(ctx context.Context) error { return s.passCommand(ctx, c) })
	})
	return (len(starts) == relayBatch || len(commands) == relayBatch) && !s.temporalDown.Load()
}

// returnStarts returns what was taken while Temporal was going down. Some may have been started: a
// repeated start with the same id is refused, and if two workflows have a delivery, only one gets the
// claim.
func (s *Starter) returnStarts(starts []webhook.Start) {
	ctx, cancel := context.WithTimeout(s.life, readTimeout)
	defer cancel()
	if err := s.outbox.ReturnStarts(ctx, starts); err != nil && !s.stopping() {
		s.log.Warn("deliveries that could not be started cannot be returned to the outbox; they are taken again later", "count", len(starts), "error", err)
	}
}

// startRelayed starts what the relay has taken. Deliveries that the relay has started before stay in their
// workflow as long as it runs. If they got another one each time, many workflows would wait for a
// worker that is not there.
func (s *Starter) startRelayed(starts []webhook.Start) {
	var unassigned, single []webhook.Start
	assigned := map[string][]webhook.Start{}
	for _, start := range starts {
		switch {
		case start.AssignedTo == "" || s.needsOwnWorkflow(&start):
			unassigned = append(unassigned, start)
		case start.Resume != nil && start.AssignedTo == start.WorkflowID():
			single = append(single, start) // a workflow that runs may not know that it is released: startDelivery looks
		default:
			assigned[start.AssignedTo] = append(assigned[start.AssignedTo], start)
		}
	}
	var mu sync.Mutex
	forEach(concurrentLookups, slices.Collect(maps.Keys(assigned)), func(id string) {
		together, each := s.withoutWorkflow(id, assigned[id])
		mu.Lock()
		defer mu.Unlock()
		unassigned, single = append(unassigned, together...), append(single, each...)
	})
	s.startEach(single)
	s.start(unassigned)
}

// withoutWorkflow returns the deliveries of a group that their workflow does not have. If it was never
// started, they can share another one. If it has ended without a first write of them, or runs
// without them, each needs its own.
func (s *Starter) withoutWorkflow(id string, group []webhook.Start) (together, each []webhook.Start) {
	s.tryCall(func(ctx context.Context) error {
		found, err := s.inspect(ctx, id)
		switch {
		case err != nil:
			return err
		case found.status == statusNone:
			together = group
		case found.status == statusRunning:
			for _, start := range group {
				if !s.hasMember(ctx, found, start.DeliveryID) {
					each = append(each, start)
				}
			}
		default:
			each = group
		}
		return nil
	})
	return together, each
}

// assignWorkflow notes in the outbox which workflow the relay is about to start for deliveries. If it
// cannot, they are not started, and the outbox returns them again later.
func (s *Starter) assignWorkflow(ctx context.Context, id string, group []webhook.Start) bool {
	var relayed []webhook.DeliveryID
	for i := range group {
		if group[i].Relayed > 0 {
			relayed = append(relayed, group[i].DeliveryID)
		}
	}
	if len(relayed) == 0 {
		return true
	}
	err := s.outbox.AssignWorkflow(ctx, id, relayed)
	if err != nil && !s.stopping() {
		s.log.WarnContext(ctx, "deliveries of the outbox could not be assigned to a workflow yet", "count", len(group), "error", err)
	}
	return err == nil
}
