package dispatch

import (
	"sync"

	"github.com/everpost/everpost/internal/webhook"
)

// laneGreed is how many times as many as there are places left a tenant may have in the
// queue: one that is alone fills all but a sixteenth.
const laneGreed = 15

// lanes is a queue in which each tenant has a lane of its own, and the lanes are served
// in turns, one delivery each: between two of one tenant, every other that waits gets
// one. However much one posts, the next start has place for another's. An operation
// costs O(1). Empty lanes are forgotten.
type lanes struct {
	ready chan struct{} // holds something whenever something waits and nobody is about to take it

	mu          sync.Mutex
	size        int
	waiting     int
	byTenant    map[string]*lane
	first, last *lane // whose turn it is, and who comes after all others
}

type lane struct {
	tenant string
	starts []webhook.Start // never empty
	next   *lane
}

func newLanes(size int) *lanes {
	return &lanes{size: size, ready: make(chan struct{}, 1), byTenant: map[string]*lane{}}
}

// put queues a delivery behind those of its tenant; false when there is no place: a
// tenant that has filled the queue leaves some of it to the others (as in a room).
func (q *lanes) put(start webhook.Start) bool {
	if !q.append(start) {
		return false
	}
	q.wake()
	return true
}

func (q *lanes) append(start webhook.Start) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byTenant[start.TenantID]
	switch {
	case l == nil && q.waiting < q.size:
		l = &lane{tenant: start.TenantID}
		q.byTenant[l.tenant] = l
		q.toEnd(l)
	case l == nil || len(l.starts) >= laneGreed*(q.size-q.waiting):
		return false
	}
	l.starts = append(l.starts, start)
	q.waiting++
	return true
}

// next takes the delivery whose turn it is. Whoever leaves some behind has to wake.
func (q *lanes) next() (start webhook.Start, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.first
	if l == nil {
		return start, false
	}
	start, l.starts[0] = l.starts[0], webhook.Start{} // what it refers to is not kept
	l.starts = l.starts[1:]
	q.waiting--
	if q.first = l.next; q.first == nil {
		q.last = nil
	}
	if len(l.starts) == 0 {
		delete(q.byTenant, l.tenant)
	} else {
		q.toEnd(l)
	}
	return start, true
}

// toEnd gives the lane the last turn of all.
func (q *lanes) toEnd(l *lane) {
	l.next = nil
	if q.last == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
}

// wake tells somebody who waits for ready, if anybody, that there is something. He may
// find nothing, when another was faster.
func (q *lanes) wake() {
	select {
	case q.ready <- struct{}{}:
	default: // he is told already
	}
}

// length is how many wait.
func (q *lanes) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
