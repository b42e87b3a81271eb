package intake

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// maxReading bounds the forwarded deliveries that wait until their endpoint has been read, and readingTime how long one waits.
const maxReading, readingTime = 256, 250 * time.Millisecond

// forwarding passes deliveries to other processes, and takes those of others.
type forwarding struct {
	*local

	admission Admission     // nil without a worker
	forwarder Forwarder     // nil if this process shares no limits
	reading   chan struct{} // a token for each forwarded delivery that waits for its endpoint
}

// forwards reports that another process admits the requests to an endpoint, and starts its new deliveries.
func (f *forwarding) forwards(endpoint webhook.EndpointID) bool {
	return f.forwarder != nil && (f.admission == nil || !f.admission.Admits(endpoint))
}

// forward forwards the deliveries of an event, and accepts those that no other process takes. Meanwhile they count as queued.
func (f *forwarding) forward(event webhook.Accepted) {
	for n := range event.Deliveries {
		f.queue.permits.Overdraw(event.Deliveries[n].TenantID, 1)
	}
	f.forwarder.Forward(event, func(start webhook.Start, result webhook.ForwardResult) {
		f.queue.release(&start)
		switch {
		case result != webhook.ForwardRefused:
		case f.lifetime.Stopped():
			f.starts.leave(start)
		default:
			f.accept(&event, &start)
		}
	})
}

// Forwarded accepts deliveries that another process has committed and forwarded. It returns those that this process does not start:
// their tenants' queues are full, Temporal is not available, or this process has not started or stops, which it says as well.
func (f *forwarding) Forwarded(event webhook.Accepted) (refused []webhook.DeliveryID, stops bool) {
	for n := range event.Deliveries {
		start := &event.Deliveries[n]
		if !f.sends() || !f.health.Up() || f.lifetime.Stopped() || !f.queue.permits.TryAcquire(start.TenantID) {
			refused = append(refused, start.DeliveryID)
			continue
		}
		start.ReceivedAt = time.Now().Add(min(start.CreatedAt.Sub(f.now()), 0)) // its age by the database's clock, which is not exact
		f.acceptForwarded(&event, start)
	}
	return refused, f.lifetime.Stopped()
}

// acceptForwarded accepts a delivery that has its permit, and gives that back. Only the process that stores an event reads its
// endpoints beforehand; this one reads an endpoint that it does not know, so that the first request can still go eagerly. If many
// deliveries wait for that, the delivery does not wait, and its workflow reads the endpoint.
func (f *forwarding) acceptForwarded(event *webhook.Accepted, start *webhook.Start) {
	if !f.requests.KnowsEndpoint(start.EndpointID) && f.acceptOnceRead(*event, *start) {
		return
	}
	f.accept(event, start)
	f.queue.release(start)
}

func (f *forwarding) acceptOnceRead(event webhook.Accepted, start webhook.Start) bool {
	select {
	case f.reading <- struct{}{}:
	default:
		return false
	}
	begun := f.lifetime.Go(func() {
		ctx, cancel := context.WithTimeout(f.lifetime.Calls(), readingTime)
		f.requests.ReadEndpoint(ctx, start.EndpointID)
		cancel()
		<-f.reading
		f.accept(&event, &start)
		f.queue.release(&start)
	})
	if !begun {
		<-f.reading
	}
	return begun
}
