// Package lanes is a queue that is fair among tenants.
package lanes

import (
	"slices"
	"sync"
)

// greed is how many times as many as there are places left a tenant may have in the
// queue: one that is alone fills all but a sixteenth.
const greed = 15

// Queue is a queue in which each tenant has a lane of its own, and the lanes are served
// in turns, one item each: between two of one tenant, every other that waits gets one,
// however much anybody brings. An operation costs O(1). Empty lanes are forgotten. It may be used by many at a time.
type Queue[T any] struct {
	// Ready holds something whenever something waits and nobody is about to take it.
	Ready <-chan struct{}

	ready chan struct{}

	mu          sync.Mutex
	size        int
	waiting     int
	byTenant    map[string]*lane[T]
	first, last *lane[T] // whose turn it is, and who comes after all others
}

type lane[T any] struct {
	tenant string
	items  []T // never empty
	next   *lane[T]
}

// New returns a queue with so many places.
func New[T any](size int) *Queue[T] {
	ready := make(chan struct{}, 1)
	return &Queue[T]{Ready: ready, ready: ready, size: size, byTenant: map[string]*lane[T]{}}
}

// Put queues an item behind those of its tenant, and wakes somebody; false when there is
// no place: a tenant that has filled the queue leaves some of it to the others.
func (q *Queue[T]) Put(tenant string, item T) bool {
	if !q.append(tenant, item) {
		return false
	}
	q.Wake()
	return true
}

// Return gives items back that were taken, before all others of their tenant, and wakes
// somebody. There is always a place for them.
func (q *Queue[T]) Return(tenant string, items ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.laneOf(tenant)
	l.items = slices.Insert(l.items, 0, items...)
	q.waiting += len(items)
	q.Wake()
}

// laneOf is a tenant's lane, a new one if need be.
func (q *Queue[T]) laneOf(tenant string) *lane[T] {
	l := q.byTenant[tenant]
	if l == nil {
		l = &lane[T]{tenant: tenant}
		q.byTenant[tenant] = l
		q.toEnd(l)
	}
	return l
}

func (q *Queue[T]) append(tenant string, item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byTenant[tenant]
	if l == nil && q.waiting >= q.size || l != nil && len(l.items) >= greed*(q.size-q.waiting) {
		return false
	}
	l = q.laneOf(tenant)
	l.items = append(l.items, item)
	q.waiting++
	return true
}

// Next takes the item whose turn it is. Whoever leaves some behind has to Wake.
func (q *Queue[T]) Next() (item T, ok bool) {
	return q.NextIf(func(T) bool { return true })
}

// NextIf is Next if that item is wanted; else it keeps its turn.
func (q *Queue[T]) NextIf(wanted func(T) bool) (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first == nil || !wanted(q.first.items[0]) {
		return item, false
	}
	return q.takeAfter(nil), true
}

// NextBut is Next of all tenants but one, which keeps its turn.
func (q *Queue[T]) NextBut(tenant string) (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var before *lane[T]
	l := q.first
	if l != nil && l.tenant == tenant {
		before, l = l, l.next
	}
	if l == nil {
		return item, false
	}
	return q.takeAfter(before), true
}

// takeAfter takes an item of the lane after before, or of the first one, which has the
// last turn then.
func (q *Queue[T]) takeAfter(before *lane[T]) (item T) {
	place := &q.first
	if before != nil {
		place = &before.next
	}
	l := *place
	if *place = l.next; *place == nil {
		q.last = before
	}
	var none T
	item, l.items[0] = l.items[0], none // what it refers to is not kept
	l.items = l.items[1:]
	q.waiting--
	if len(l.items) == 0 {
		delete(q.byTenant, l.tenant)
	} else {
		q.toEnd(l)
	}
	return item
}

// toEnd gives the lane the last turn of all.
func (q *Queue[T]) toEnd(l *lane[T]) {
	l.next = nil
	if q.last == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
}

// Wake tells somebody who waits for Ready, if anybody, that there is something. He may
// find nothing, when another was faster.
func (q *Queue[T]) Wake() {
	select {
	case q.ready <- struct{}{}:
	default: // he is told already
	}
}

// Len is how many wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
