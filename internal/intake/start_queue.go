package intake

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// queueTime is how long after its ReceivedAt a delivery may be started from the queue. A delivery
	// that waits longer is left to the relay, so that both rarely start the same one: see RelayAfter.
	queueTime = 5 * time.Second
	// queueOverdraft bounds the queue, in queue lengths: an event with many endpoints may overdraw its
	// tenant's permits.
	queueOverdraft = 16
)

// startQueue has the deliveries that wait for a start, fairly among tenants. A delivery has a permit from before its commit until it is
// started.
type startQueue struct {
	waiting *fair.Queue[webhook.Start]
	permits *fair.Semaphore
	length  int // of the permits; what is queued may overdraw it

	endpoints endpointCounts
}

func newStartQueue(length int) *startQueue {
	return &startQueue{waiting: fair.New[webhook.Start](queueOverdraft * length), permits: fair.NewDynamic(length, 1), length: length}
}

// put queues a delivery for its start. It returns false if the queue is full; then the relay
// starts the delivery.
func (q *startQueue) put(start *webhook.Start) bool {
	q.permits.Overdraw(start.TenantID, 1)
	q.endpoints.add(start, 1)
	if !q.waiting.Put(start.TenantID, *start) {
		q.endpoints.add(start, -1)
		q.release(start)
		return false
	}
	return true
}

// take takes the next delivery, one of each tenant in turn. It keeps its permit.
func (q *startQueue) take() (start webhook.Start, ok bool) {
	if start, ok = q.waiting.Next(); ok {
		q.endpoints.add(&start, -1)
	}
	return start, ok
}

// release gives back the permit of a delivery.
func (q *startQueue) release(start *webhook.Start) { q.permits.Release(start.TenantID, 1) }

// hasRoomFor reports whether a first request to an endpoint may be sent before its workflow is started: starts keep up, and no earlier delivery
// of the endpoint waits.
func (q *startQueue) hasRoomFor(endpoint webhook.EndpointID) bool {
	return q.waiting.Len() < q.length && !q.endpoints.has(endpoint)
}

// endpointCounts counts, by endpoint, the queued deliveries whose first requests are still to be
// made. A later delivery of the endpoint is not sent eagerly before them.
type endpointCounts struct {
	mu sync.Mutex
	n  map[webhook.EndpointID]int // without those that are 0
}

// add counts a delivery that is queued, or with -1 one that has left the queue. Deliveries whose
// first request was sent eagerly do not count.
func (c *endpointCounts) add(start *webhook.Start, n int) {
	if start.OwnWorkflow {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[webhook.EndpointID]int{}
	}
	c.n[start.EndpointID] += n
	if c.n[start.EndpointID] == 0 {
		delete(c.n, start.EndpointID)
	}
}

func (c *endpointCounts) has(endpoint webhook.EndpointID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[endpoint] > 0
}
