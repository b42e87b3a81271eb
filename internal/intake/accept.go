package intake

import (
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

// local accepts deliveries that this process starts.
type local struct {
	health   *engine.Health
	lifetime *engine.Lifetime
	requests Requests // nil without a worker
	fresh    *Fresh   // nil without a worker
	now      func() time.Time

	queue   *startQueue
	starts  *starts
	started atomic.Bool
}

// accept sends the first request of a delivery eagerly, or queues its start. Without Temporal, the relay starts it.
func (l *local) accept(event *webhook.Accepted, start *webhook.Start) {
	if !l.health.Up() {
		return
	}
	if l.fresh != nil && !l.starts.engine.IsScheduled(start) {
		l.fresh.put(start.Ref, webhook.Content{
			Payload: event.Payload, SHA256: event.SHA256, CreatedAt: start.CreatedAt, Headers: event.Headers, Sequence: start.Sequence,
		}, start.ReceivedAt)
		if l.sendEagerly(*start) {
			return
		}
	}
	l.queue.put(start)
}

// sends reports whether this process sends requests now: it has a worker, and has started.
func (l *local) sends() bool { return l.requests != nil && l.started.Load() }

// sendEagerly sends the first request of a delivery from a process with a worker, unless earlier deliveries of its endpoint are
// queued, or starts do not keep up.
func (l *local) sendEagerly(start webhook.Start) bool {
	return l.sends() && l.queue.hasRoomFor(start.EndpointID) && l.starts.gatherings.hasRoom() && l.requests.SendEagerly(
		activities.AttemptInput{Ref: start.Ref, Progress: start.Progress(), FirstTask: true, Trace: start.Trace},
		&eagerStart{starts: l.starts, start: start},
	)
}
