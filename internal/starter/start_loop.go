package starter

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// recentStart is for how long after a start its tenant is taken to have more to start.
	recentStart = time.Second
	// largePart: a start of at least 1/largePart of the width is large, so that other tenants would
	// have to wait for it.
	largePart = 4
	// smallPart: a tenant with at most 1/smallPart of the width has few deliveries in a start. As many
	// are started at a time concurrently with a dominant tenant's start.
	smallPart = 8
)

// startLoop makes one start after another, each of all that is queued, up to the width of a workflow.
// At a low rate that is a single delivery; at a high rate many share a workflow.
type startLoop struct {
	*Starter

	latest, other tenantStart // the last start, and the last one of another tenant
}

type tenantStart struct {
	tenant string
	at     time.Time
}

func (d *Starter) runStartLoop() {
	l := startLoop{Starter: d}
	l.run()
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

func (l *startLoop) run() {
	for !l.stopping() { // select would choose any case that is ready
		select {
		case <-l.stopped:
			return
		case <-l.queue.Ready:
			l.startNext()
		case <-l.gatherings.ready:
			l.startGathered(false)
		}
	}
}

func (l *startLoop) startNext() {
	batch := l.nextBatch()
	if len(batch) == 0 { // another start loop has taken it
		return
	}
	if dominant := l.dominantTenant(batch); dominant != "" {
		l.startConcurrently(dominant, batch)
		return
	}
	l.startBatch(batch)
}

// dominantTenant returns the tenant that has most of a large batch while another tenant has had
// something to start a moment ago; "" if there is none. Several start loops run concurrently anyway.
func (l *startLoop) dominantTenant(batch []webhook.Start) (dominant string) {
	now := time.Now()
	count := map[string]int{}
	for i := range batch {
		tenant := batch[i].TenantID
		count[tenant]++
		if count[tenant] > len(batch)/2 {
			dominant = tenant
		}
		if tenant != l.latest.tenant {
			l.other = l.latest
		}
		l.latest = tenantStart{tenant, now}
	}
	if l.startLoops > 1 || l.width < 2*smallPart || len(batch) < l.width/largePart || dominant == "" {
		return ""
	}
	for _, last := range []tenantStart{l.latest, l.other} {
		if last.tenant != dominant && now.Sub(last.at) < recentStart {
			return dominant
		}
	}
	return ""
}

// startConcurrently starts a batch that is mostly one tenant's, and until that is done, what arrives
// from other tenants.
func (l *startLoop) startConcurrently(dominant string, batch []webhook.Start) {
	done := make(chan struct{})
	l.workers.Go(func() { // Stop cannot be waiting yet: it waits for this loop, too
		defer close(done)
		l.startBatch(batch)
	})
	for !l.stopping() { // as in run
		select {
		case <-done:
			l.queue.Wake() // for what is left in the queue
			return
		case <-l.stopped:
			return
		case <-l.queue.Ready:
			few := l.nextBatchWithout(dominant)
			for i := range few {
				l.other = tenantStart{few[i].TenantID, time.Now()}
			}
			l.startBatch(few)
		case <-l.gatherings.ready:
			l.startGathered(false)
		}
	}
}

// startBatch starts a batch and releases its permits.
func (d *Starter) startBatch(batch []webhook.Start) {
	d.start(batch)
	for i := range batch {
		d.permits.Release(batch[i].TenantID, 1)
	}
}

// nextBatch takes what is to be started next, one of each tenant in turn.
func (l *startLoop) nextBatch() []webhook.Start { return l.takeBatch(l.queue.Next, l.width) }

// nextBatchWithout takes a few deliveries of other tenants.
func (l *startLoop) nextBatchWithout(dominant string) []webhook.Start {
	return l.takeBatch(func() (webhook.Start, bool) { return l.queue.NextBut(dominant) }, max(l.width/smallPart, 1))
}

// takeBatch takes up to limit deliveries. Of those that need a workflow of their own, which cost most
// by far, it takes no more than are started at a time: so a batch takes short, whatever a tenant has
// posted. It sets aside what is not to be started now.
func (d *Starter) takeBatch(next func() (webhook.Start, bool), limit int) (batch []webhook.Start) {
	now, own := time.Now(), 0
	for len(batch) < limit && own < concurrentStarts {
		start, ok := next()
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
	d.queue.Wake() // another start loop; if there is none, this one when it is back
	return batch
}

// leftToRelay reports that a delivery has waited too long, or that Temporal is not available.
func (d *Starter) leftToRelay(start *webhook.Start, now time.Time) bool {
	return !start.OwnWorkflow && now.Sub(start.ReceivedAt) >= queueTime || d.temporalDown.Load()
}
