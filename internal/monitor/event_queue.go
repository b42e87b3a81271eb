package monitor

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxEvents bounds the operational events that wait to be stored.
	maxEvents = 10_000
	// eventBatch is how many are stored together.
	eventBatch = 500
	// reportDroppedEvery is how often it is logged that events were dropped.
	reportDroppedEvery = 10 * time.Second
)

// pendingEvent is an operational event that waits to be stored. The event of an endpoint gets its tenant and its endpoint
// when it is stored.
type pendingEvent struct {
	event    webhook.OperationalEvent
	endpoint webhook.EndpointID
}

// eventQueue holds the operational events that wait to be stored. It never blocks its caller.
type eventQueue struct {
	mu       sync.Mutex
	events   []pendingEvent
	dropped  int // since reported
	reported time.Time
	wake     chan struct{}
}

func newEventQueue() *eventQueue { return &eventQueue{wake: make(chan struct{}, 1)} }

// put adds an event; false when the queue is full. dropped is how many events were dropped since the last report, when
// another report is due.
func (q *eventQueue) put(e pendingEvent, now time.Time) (ok bool, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) >= maxEvents {
		q.dropped++
		if now.Sub(q.reported) >= reportDroppedEvery {
			dropped, q.dropped, q.reported = q.dropped, 0, now
		}
		return false, dropped
	}
	q.events = append(q.events, e)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true, 0
}

// first returns the next batch, which stays in the queue until it is removed.
func (q *eventQueue) first() []pendingEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.events), eventBatch)
	return q.events[:n:n]
}

// remove removes the first n events and returns how many are left.
func (q *eventQueue) remove(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.events[:n])
	if q.events = q.events[n:]; len(q.events) == 0 {
		q.events = nil
	}
	return len(q.events)
}
