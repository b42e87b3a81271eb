package dispatch

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// troubleWait is how long deliveries to receivers that fail or are slow wait for one another. They will be tried more
// than once, or take a second, anyway; a workflow for each would cost everybody else ten times as much. Who is kept
// waiting by a rate alone, and for less, is not in trouble.
const troubleWait = time.Second

// setAside takes those out of a batch that are to wait for others in trouble, and returns
// the rest. It gives their places in the queue back: where they wait has a bound of its own.
func (d *Dispatcher) setAside(batch []webhook.Start) []webhook.Start {
	if d.Gate == nil || d.Width == 1 {
		return batch
	}
	now := time.Now()
	rest := batch[:0]
	for _, s := range batch {
		if s.Held == nil && !d.goesAlone(&s, now) && d.Gate.Troubled(s.EndpointID, troubleWait) && d.troubled.Put(s.TenantID, s) {
			d.room.give(s.TenantID, 1)
		} else {
			rest = append(rest, s)
		}
	}
	return rest
}

// serveTroubled starts what was set aside, in as few workflows as it fits into.
func (d *Dispatcher) serveTroubled() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-d.stopped:
			return
		case <-d.troubled.Ready:
		}
		wait.Reset(troubleWait)
		select {
		case <-d.stopped:
			return // it stays in the outbox
		case <-wait.C:
		}
		for { // what comes meanwhile waits for company, too, once there is no full batch any more
			batch := d.gatherTroubled()
			d.beginEach(d.startShared(batch))
			if len(batch) < d.Width {
				break
			}
		}
	}
}

func (d *Dispatcher) gatherTroubled() (batch []webhook.Start) {
	now := time.Now()
	for len(batch) < d.Width {
		start, ok := d.troubled.Next()
		if !ok {
			break
		}
		if !d.isLate(&start, now) {
			batch = append(batch, start)
		}
	}
	return batch
}
