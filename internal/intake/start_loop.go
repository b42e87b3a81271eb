package intake

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

// run makes one start after another, each of all that is queued, up to maxPerWorkflow. At a
// low rate that is a single delivery; at a high rate many share a workflow. It waits for no start longer than startPatience.
func (s *starts) run() {
	made, due := newStarters(s.patience), time.NewTimer(idle)
	defer made.stop()
	defer due.Stop()
	for !s.lifetime.Stopped() { // select would choose any case that is ready
		due.Reset(s.untilGathered())
		select {
		case <-s.lifetime.Stopping().Done():
		case <-s.queue.waiting.Ready:
			s.startBatch(made, s.nextBatch())
		case <-s.gatherings.changed: // the timer is set again
		case <-due.C:
			s.startGathered(made)
		case <-s.health.Recovered():
			s.startGathered(made)
		}
	}
	s.startBeforeStop()
}

// idle is how long the start loop waits if nothing wakes it.
const idle = time.Hour

// untilGathered is how long nothing is to be done about gatherings. While Temporal is not available, that is until it has recovered.
func (s *starts) untilGathered() time.Duration {
	if next, ok := s.gatherings.next(time.Now()); ok && s.health.Up() {
		return next
	}
	return idle
}

// startBeforeStop starts the workflows of deliveries whose eager requests were sent. Everything else
// is left to another process.
func (s *starts) startBeforeStop() {
	var sent, left []webhook.Start
	for start, ok := s.queue.waiting.Next(); ok; start, ok = s.queue.waiting.Next() {
		if start.OwnWorkflow {
			sent = append(sent, start)
		} else {
			left = append(left, start)
		}
	}
	s.start(sent)
	for _, one := range s.gatherings.take(true, time.Now()) {
		s.tryGathering(one)
	}
	s.leave(left...)
}

// startBatch starts a batch and releases its permits, also while the start is not answered: its deliveries do not wait for this process any more.
func (s *starts) startBatch(made *starters, batch []webhook.Start) {
	if len(batch) == 0 { // another start loop has taken it
		return
	}
	made.do(func() { s.start(batch) })
	for i := range batch {
		s.queue.release(&batch[i])
	}
}

// nextBatch takes the deliveries of the next start from the queue, one of each tenant in turn, up to
// maxPerWorkflow. It takes no more deliveries that need their own workflow than are started at a
// time, because such starts cost the most: so a batch takes a short time, whatever a tenant has posted.
// It sets aside those that are not to be started now.
func (s *starts) nextBatch() (batch []webhook.Start) {
	now, own := time.Now(), 0
	for len(batch) < s.engine.MaxPerWorkflow() && own < engine.ConcurrentStarts {
		start, ok := s.queue.take()
		if !ok {
			return batch
		}
		if s.leftToRelay(&start, now) {
			s.queue.release(&start)
			continue
		}
		if s.setAside(start) {
			continue
		}
		if s.engine.NeedsOwn(&start) {
			own++
		}
		batch = append(batch, start)
	}
	s.queue.waiting.Wake() // another start loop, or this one again
	return batch
}

// startGathered starts the workflows of the due gatherings. A start that fails is repeated with the same id, when Temporal is available: the
// deliveries have no outbox rows any more.
func (s *starts) startGathered(made *starters) {
	if !s.health.Up() {
		return // until it has recovered
	}
	for _, one := range s.gatherings.take(false, time.Now()) {
		made.do(func() {
			if !s.tryGathering(one) {
				s.gatherings.retry(one, time.Now())
			}
		})
	}
}

func (s *starts) tryGathering(one *gathering) (started bool) {
	s.calls.Try(func(ctx context.Context) error {
		err := s.startGathering(ctx, one)
		started = err == nil
		return err
	})
	return started
}

func (s *starts) startGathering(ctx context.Context, one *gathering) error {
	if one.shared {
		return s.engine.Shared(ctx, one.id, one.members)
	}
	return s.engine.Own(ctx, one.members[0])
}
