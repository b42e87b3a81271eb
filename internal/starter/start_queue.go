package starter

import (
	"context"
	"sync"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// queueTime is how long after its commit a delivery may be started from the queue. A delivery
	// that waits longer is left to the relay, so that both rarely start the same one: see RelayAfter.
	queueTime = 5 * time.Second
	// reserveTimeout is how long ReserveRoom waits.
	reserveTimeout = time.Second
	// queueOverdraft bounds the queue, in queue lengths: an event with many endpoints may overdraw its
	// tenant's permits.
	queueOverdraft = 16
	// maxGathered bounds the deliveries in gatherings, in multiples of maxPerWorkflow.
	maxGathered = 4
	// maxReading bounds the forwarded deliveries that wait until their endpoint has been read, and readingTime how long one waits.
	maxReading, readingTime = 256, 250 * time.Millisecond
)

// ReserveRoom waits up to 1 s until the tenant may queue the deliveries of n events that are about to be
// stored. It does not wait because of what other tenants have queued beyond their share. The caller
// calls release once, after Accepted or when it accepts nothing.
//
// While Temporal is not available, and after Stop, ReserveRoom does not wait, because nothing is queued
// then. A process that forwards does wait without Temporal. If the queue is full and Temporal is suspected not to be available, ReserveRoom waits for the
// check's verdict.
func (s *Starter) ReserveRoom(ctx context.Context, tenantID string, n int) (release func(), err error) {
	if s.startsNothing() {
		return func() {}, nil
	}
	if s.permits.Acquire(ctx, tenantID, n, reserveTimeout) {
		return func() { s.permits.Release(tenantID, n) }, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, Message: "the request was abandoned", Err: err}
	}
	if s.isDown(ctx) || s.stopping() {
		return func() {}, nil
	}
	return nil, &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "more events are arriving than can be started; try again shortly", RetryAfter: time.Second,
	}
}

// Accepted queues deliveries that have just been committed, or forwards them. It never blocks and never fails: what
// does not fit into the queue, or comes after Stop, is started by the relay.
func (s *Starter) Accepted(all ...webhook.Accepted) {
	if s.startsNothing() {
		return
	}
	for _, event := range all {
		elsewhere := event.Deliveries[:0:0]
		for i := range event.Deliveries {
			if s.forwards(event.Deliveries[i].EndpointID) {
				elsewhere = append(elsewhere, event.Deliveries[i])
			} else {
				s.accept(&event, &event.Deliveries[i])
			}
		}
		if len(elsewhere) > 0 {
			event.Deliveries = elsewhere
			s.forward(event)
		}
	}
}

// forwards reports that another process admits the requests to an endpoint, and starts its new deliveries.
func (s *Starter) forwards(endpoint webhook.EndpointID) bool {
	return s.forwarder != nil && (s.admission == nil || !s.admission.Admits(endpoint))
}

// startsNothing reports that new deliveries are left to the relay. Without Temporal they can still be forwarded: another process may
// reach it.
func (s *Starter) startsNothing() bool {
	return s.stopping() || s.forwarder == nil && s.temporalDown.Load()
}

// accept sends the first request of a delivery eagerly, or queues its start. Without Temporal, the relay starts it.
func (s *Starter) accept(event *webhook.Accepted, start *webhook.Start) {
	if s.temporalDown.Load() {
		return
	}
	// All times count from before the commit, as the relay's do, however long the commit took.
	if s.localWorker && !s.isScheduled(start) {
		s.fresh.put(start.Ref, event.Payload, event.SHA256, start.CreatedAt, start.ReceivedAt)
		if s.sendEagerly(*start) {
			return
		}
	}
	s.enqueue(start)
}

// forward forwards the deliveries of an event, and accepts those that no other process takes. Meanwhile they count as queued.
func (s *Starter) forward(event webhook.Accepted) {
	for i := range event.Deliveries {
		s.permits.Overdraw(event.Deliveries[i].TenantID, 1)
	}
	s.forwarder.Forward(event, func(start webhook.Start, result webhook.ForwardResult) {
		s.permits.Release(start.TenantID, 1)
		switch {
		case result != webhook.ForwardRefused:
		case s.stopping():
			s.leave(start)
		default:
			s.accept(&event, &start)
		}
	})
}

// Forwarded accepts deliveries that another process has committed and forwarded. It returns those that this process does not start:
// their tenants' queues are full, Temporal is not available, or this process has not started or stops, which it says as well.
func (s *Starter) Forwarded(event webhook.Accepted) (refused []webhook.DeliveryID, stops bool) {
	for i := range event.Deliveries {
		start := &event.Deliveries[i]
		if s.requests.Load() == nil || s.temporalDown.Load() || s.stopping() || !s.permits.TryAcquire(start.TenantID) {
			refused = append(refused, start.DeliveryID)
			continue
		}
		start.ReceivedAt = time.Now().Add(min(start.CreatedAt.Sub(s.now()), 0)) // its age by the database's clock, which is not exact
		s.acceptForwarded(&event, start)
	}
	return refused, s.stopping()
}

// acceptForwarded accepts a delivery that has its permit, and gives that back. Only the process that stores an event reads its
// endpoints beforehand; this one reads an endpoint that it does not know, so that the first request can still go eagerly. If many
// deliveries wait for that, the delivery does not wait, and its workflow reads the endpoint.
func (s *Starter) acceptForwarded(event *webhook.Accepted, start *webhook.Start) {
	requests := *s.requests.Load()
	if !requests.KnowsEndpoint(start.EndpointID) && s.acceptOnceRead(requests, *event, *start) {
		return
	}
	s.accept(event, start)
	s.permits.Release(start.TenantID, 1)
}

func (s *Starter) acceptOnceRead(requests Requests, event webhook.Accepted, start webhook.Start) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping() {
		return false
	}
	select {
	case s.reading <- struct{}{}:
	default:
		return false
	}
	s.workers.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, readingTime)
		requests.ReadEndpoint(ctx, start.EndpointID)
		cancel()
		<-s.reading
		s.accept(&event, &start)
		s.permits.Release(start.TenantID, 1)
	})
	return true
}

// enqueue queues a delivery for its start. It returns false if the queue is full; then the relay
// starts the delivery.
func (s *Starter) enqueue(start *webhook.Start) bool {
	s.permits.Overdraw(start.TenantID, 1)
	s.endpointQueue.add(start, 1)
	if !s.queue.Put(start.TenantID, *start) {
		s.endpointQueue.add(start, -1)
		s.permits.Release(start.TenantID, 1)
		return false
	}
	return true
}

// sendEagerly sends the first request of a delivery from a process with a worker, unless earlier deliveries of its endpoint are
// queued, or starts do not keep up.
func (s *Starter) sendEagerly(start webhook.Start) bool {
	requests := s.requests.Load()
	return requests != nil && s.queue.Len() < s.queueLength && s.gatherings.len() < maxGathered*s.maxPerWorkflow &&
		!s.endpointQueue.has(start.EndpointID) &&
		(*requests).SendEagerly(
			activities.AttemptInput{Ref: start.Ref, Progress: start.Progress(), FirstTask: true, Trace: start.Trace},
			&eagerStart{starter: s, start: start},
		)
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
