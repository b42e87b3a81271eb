package starter

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// runStartLoop makes one start after another, each of all that is queued, up to maxPerWorkflow. At a
// low rate that is a single delivery; at a high rate many share a workflow.
func (d *Starter) runStartLoop() {
	for !d.stopping() { // select would choose any case that is ready
		select {
		case <-d.stopped:
		case <-d.queue.Ready:
			d.startBatch(d.nextBatch())
		case <-d.gatherings.ready:
			d.startGathered(false)
		}
	}
	d.startBeforeStop()
}

// startBeforeStop starts the workflows of deliveries whose eager requests were sent. Everything else
// stays in the outbox.
func (d *Starter) startBeforeStop() {
	var sent []webhook.Start
	for start, ok := d.queue.Next(); ok; start, ok = d.queue.Next() {
		if start.OwnWorkflow {
			sent = append(sent, start)
		}
	}
	d.start(sent)
	d.startGathered(true)
}

// startBatch starts a batch and releases its permits.
func (d *Starter) startBatch(batch []webhook.Start) {
	if len(batch) == 0 { // another start loop has taken it
		return
	}
	d.start(batch)
	for i := range batch {
		d.permits.Release(batch[i].TenantID, 1)
	}
}

// nextBatch takes the deliveries of the next start from the queue, one of each tenant in turn, up to
// maxPerWorkflow. It takes no more deliveries that need their own workflow than are started at a
// time, because such starts cost the most: so a batch takes a short time, whatever a tenant has posted.
// It sets aside those that are not to be started now.
func (d *Starter) nextBatch() (batch []webhook.Start) {
	now, own := time.Now(), 0
	for len(batch) < d.maxPerWorkflow && own < concurrentStarts {
		start, ok := d.queue.Next()
		if !ok {
			return batch
		}
		d.endpointQueue.add(&start, -1)
		if d.leftToRelay(&start, now) {
			d.permits.Release(start.TenantID, 1)
			continue
		}
		if d.setAside(start) {
			continue
		}
		if d.needsOwnWorkflow(&start) {
			own++
		}
		batch = append(batch, start)
	}
	d.queue.Wake() // another start loop, or this one again
	return batch
}

// leftToRelay reports that a delivery has waited too long, or that Temporal is not available.
func (d *Starter) leftToRelay(start *webhook.Start, now time.Time) bool {
	return !start.OwnWorkflow && now.Sub(start.ReceivedAt) >= queueTime || d.temporalDown.Load()
}
