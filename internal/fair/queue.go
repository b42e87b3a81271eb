// Package fair shares a queue, or the permits of a semaphore, among tenants, so that no tenant can
// keep the others waiting.
package fair

import (
	"sync"
)

// overcommit bounds a tenant's share of the queue: it may have this many items for each free
// place. A tenant that has the queue to itself fills all but a sixteenth of it.
const overcommit = 15

// Queue is a first-in, first-out queue for each tenant, served round robin: each turn takes
// one item of one tenant. Between two items of a tenant every other waiting tenant gets a
// turn, however many items each has queued. Each operation is O(1). A tenant
// without items takes no memory. A Queue is safe for concurrent use.
type Queue[T any] struct {
	// Ready receives a value when an item can be taken. One value may stand for many items.
	Ready <-chan struct{}

	ready chan struct{}

	mu          sync.Mutex
	size        int
	waiting     int
	byTenant    map[string]*tenantQueue[T]
	first, last *tenantQueue[T] // the next turn, and the last one
}

// tenantQueue holds the items of one tenant.
type tenantQueue[T any] struct {
	tenant string
	items  []T // never empty
	next   *tenantQueue[T]
}

// New returns a queue for up to size items.
func New[T any](size int) *Queue[T] {
	ready := make(chan struct{}, 1)
	return &Queue[T]{Ready: ready, ready: ready, size: size, byTenant: map[string]*tenantQueue[T]{}}
}

// Put queues an item after the tenant's other items and signals Ready. It returns false when
// the queue is full or the tenant has used up its share.
func (q *Queue[T]) Put(tenant string, item T) bool {
	if !q.append(tenant, item) {
		return false
	}
	q.Wake()
	return true
}

// queueOf returns the tenant's queue and creates it if it does not exist.
func (q *Queue[T]) queueOf(tenant string) *tenantQueue[T] {
	of := q.byTenant[tenant]
	if of == nil {
		of = &tenantQueue[T]{tenant: tenant}
		q.byTenant[tenant] = of
		q.pushLast(of)
	}
	return of
}

func (q *Queue[T]) append(tenant string, item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byTenant[tenant]
	if of == nil && q.waiting >= q.size || of != nil && len(of.items) >= overcommit*(q.size-q.waiting) {
		return false
	}
	of = q.queueOf(tenant)
	of.items = append(of.items, item)
	q.waiting++
	return true
}

// Next takes the next item. A caller that stops before the queue is empty has to call Wake.
func (q *Queue[T]) Next() (item T, ok bool) {
	return q.NextIf(func(T) bool { return true })
}

// NextIf takes the next item if wanted accepts it. If not, the item keeps its turn.
func (q *Queue[T]) NextIf(wanted func(T) bool) (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first == nil || !wanted(q.first.items[0]) {
		return item, false
	}
	return q.take(), true
}

// take takes the first tenant's next item. That tenant then gets the last turn.
func (q *Queue[T]) take() (item T) {
	of := q.first
	if q.first = of.next; q.first == nil {
		q.last = nil
	}
	var none T
	item, of.items[0] = of.items[0], none // so that the slice does not keep what the item refers to
	of.items = of.items[1:]
	q.waiting--
	if len(of.items) == 0 {
		delete(q.byTenant, of.tenant)
	} else {
		q.pushLast(of)
	}
	return item
}

// pushLast gives a tenant the last turn.
func (q *Queue[T]) pushLast(of *tenantQueue[T]) {
	of.next = nil
	if q.last == nil {
		q.first = of
	} else {
		q.last.next = of
	}
	q.last = of
}

// Wake signals Ready. The reader that receives the signal may find the queue empty.
func (q *Queue[T]) Wake() {
	select {
	case q.ready <- struct{}{}:
	default: // a signal is pending
	}
}

// Len returns the number of queued items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
