package starter

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// runStartLoop makes one start after another, each of all that is queued, up to maxPerWorkflow. At a
// low rate that is a single delivery; at a high rate many share a workflow.
func (s *Starter) runStartLoop() {
	for !s.stopping() { // select would choose any case that is ready
		select {
		case <-s.stopped:
		case <-s.queue.Ready:
			s.startBatch(s.nextBatch())
		case <-s.gatherings.ready:
			s.startGathered(false)
		}
	}
	s.startBeforeStop()
}

// startBeforeStop starts the workflows of deliveries whose eager requests were sent. Everything else
// is left to another process.
func (s *Starter) startBeforeStop() {
	var sent, left []webhook.Start
	for start, ok := s.queue.Next(); ok; start, ok = s.queue.Next() {
		if start.OwnWorkflow {
			sent = append(sent, start)
		} else {
			left = append(left, start)
		}
	}
	s.start(sent)
	s.startGathered(true)
	s.leave(left...)
}

// leave lets another process, or the next life of this one, start deliveries at once that this process has not tried to start.
func (s *Starter) leave(starts ...webhook.Start) {
	if len(starts) == 0 || s.outbox == nil {
		return
	}
	ids := make([]webhook.DeliveryID, len(starts))
	for i := range starts {
		ids[i] = starts[i].DeliveryID
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), leaveTimeout)
	defer cancel()
	if err := s.outbox.MakeDue(ctx, ids); err != nil {
		s.log.WarnContext(ctx, "deliveries that this process has not started are started by another one a few seconds later", "count", len(ids), "error", err)
	}
}

// startBatch starts a batch and releases its permits.
func (s *Starter) startBatch(batch []webhook.Start) {
	if len(batch) == 0 { // another start loop has taken it
		return
	}
	s.start(batch)
	for i := range batch {
		s.permits.Release(batch[i].TenantID, 1)
	}
}

// nextBatch takes the deliveries of the next start from the queue, one of each tenant in turn, up to
// maxPerWorkflow. It takes no more deliveries that need their own workflow than are started at a
// time, because such starts cost the most: so a batch takes a short time, whatever a tenant has posted.
// It sets aside those that are not to be started now.
func (s *Starter) nextBatch() (batch []webhook.Start) {
	now, own := time.Now(), 0
	for len(batch) < s.maxPerWorkflow && own < concurrentStarts {
		start, ok := s.queue.Next()
		if !ok {
			return batch
		}
		s.endpointQueue.add(&start, -1)
		if s.leftToRelay(&start, now) {
			s.permits.Release(start.TenantID, 1)
			continue
		}
		if s.setAside(start) {
			continue
		}
		if s.needsOwnWorkflow(&start) {
			own++
		}
		batch = append(batch, start)
	}
	s.queue.Wake() // another start loop, or this one again
	return batch
}

// leftToRelay reports that a delivery has waited too long, or that Temporal is not available.
func (s *Starter) leftToRelay(start *webhook.Start, now time.Time) bool {
	return !start.OwnWorkflow && now.Sub(start.ReceivedAt) >= queueTime || s.temporalDown.Load()
}
