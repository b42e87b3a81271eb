package starter

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// troubleWait is how long deliveries to receivers that fail or are slow wait for one another. They will be tried more
// than once, or take a second, anyway; a workflow for each would cost everybody else ten times as much. Who is kept
// waiting by its rate or its places alone, and for less, is not in trouble.
const troubleWait = time.Second

// setAside reports that a delivery is not to be started now, and waits elsewhere: for others in trouble, where it gives
// its place in the queue back, since there is a bound of its own there; or for its turn.
func (d *Starter) setAside(s webhook.Start, now time.Time) bool {
	if d.Gate == nil || s.OwnWorkflow || s.Resume != nil || d.goesAlone(&s) {
		return false
	}
	wait, rate, troubled := d.Gate.Turn(s.EndpointID)
	if troubled || wait > troubleWait || d.faulty.has(s.EndpointID) {
		aside := d.troubled.Put(s.TenantID, s)
		if aside {
			d.permits.Release(s.TenantID, 1)
		}
		return aside
	}
	waits := rate >= earlyRate && now.Sub(s.ReceivedAt) < earlyTime && (wait > earlyTurn || d.early.has(s.EndpointID))
	if waits {
		d.early.put(s)
	}
	return waits
}

// serveTroubled starts what was set aside, in as few workflows as it fits into.
func (d *Starter) serveTroubled() {
	for d.waitFor(d.troubled.Ready, troubleWait) {
		for !d.stopping() { // what comes meanwhile waits for company, too, once there is no full batch any more
			batch := d.gatherTroubled()
			d.beginEach(d.startShared(batch))
			if len(batch) < d.Width {
				break
			}
		}
	}
}

// waitFor waits until something is there, and then for as long as that is to wait; false when the starter
// stops, and what is there stays in the outbox.
func (d *Starter) waitFor(ready <-chan struct{}, wait time.Duration) bool {
	select {
	case <-d.stopped:
		return false
	case <-ready:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.stopped:
		return false
	case <-timer.C:
		return true
	}
}

func (d *Starter) gatherTroubled() (batch []webhook.Start) {
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
