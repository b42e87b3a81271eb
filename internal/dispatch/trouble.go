package dispatch

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// troubleWait is how long deliveries to receivers that fail or are slow wait for one another. They will be tried more
// than once, or take a second, anyway; a workflow for each would cost everybody else ten times as much. Who is kept
// waiting by a rate alone, and for less, is not in trouble.
const troubleWait = time.Second

// crowdTurn is how near its turn must be for a delivery to be started: the gate lets it wait for 250 ms, and what is being
// started before it will wait there, too. crowdWait is how long it waits to look again, and crowdTime for how long it does
// so at most, from its commit on: an endpoint that cannot take it in that time is not crowded, it is slow.
const (
	crowdTurn = 100 * time.Millisecond
	crowdWait = 25 * time.Millisecond
	crowdTime = 500 * time.Millisecond
)

// setAside takes those out of a batch that are not to be started now, and returns the rest: those that are to wait for
// others in trouble, and those whose turn comes so soon that it is cheaper to wait for it here than with a timer of
// their workflow. It gives the places of the former in the queue back: where they wait has a bound of its own. The latter
// keep theirs, so that the door waits for them.
func (d *Dispatcher) setAside(batch []webhook.Start) []webhook.Start {
	if d.Gate == nil || d.Width == 1 {
		return batch
	}
	now := time.Now()
	rest := batch[:0]
	for _, s := range batch {
		switch {
		case s.Held != nil || d.goesAlone(&s, now):
			rest = append(rest, s)
		case d.Gate.Troubled(s.EndpointID, troubleWait):
			if d.troubled.Put(s.TenantID, s) {
				d.room.give(s.TenantID, 1)
			} else {
				rest = append(rest, s)
			}
		case now.Sub(s.CreatedAt) >= crowdTime || !d.Gate.Troubled(s.EndpointID, crowdTurn) || !d.crowd.Put(s.TenantID, s):
			rest = append(rest, s)
		}
	}
	return rest
}

// serveCrowd puts those back into the queue whose turn was not near.
func (d *Dispatcher) serveCrowd() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-d.stopped:
			return
		case <-d.crowd.Ready:
		}
		wait.Reset(crowdWait)
		select {
		case <-d.stopped:
			return
		case <-wait.C:
		}
		for range d.crowd.Len() { // what comes meanwhile waits as long
			if s, ok := d.crowd.Next(); ok && !d.queue.Put(s.TenantID, s) {
				d.room.give(s.TenantID, 1) // to the relay
			}
		}
	}
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
