package monitor

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Notes are what this process sees of endpoints, until a Monitor goes by them. Taking one never blocks, and reads and writes nothing but memory,
// so that the admission and the store can be given Notes that are made before them. Their times are by this process's clock; those
// of the counter are by the database's. They are safe for concurrent use.
type Notes struct {
	metrics Metrics
	log     *slog.Logger

	counter    *counter
	storms     *retryStorms
	outages    *outages
	announced  *eventQueue
	recoveries *replayQueue
}

// NewNotes returns empty Notes.
func NewNotes(metrics Metrics, log *slog.Logger) *Notes {
	return &Notes{
		metrics: metrics, log: log,
		counter: newCounter(), storms: newRetryStorms(), outages: newOutages(), announced: newEventQueue(), recoveries: newReplayQueue(),
	}
}

// Attempted notes an attempt and where it left its delivery.
func (n *Notes) Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	now := time.Now()
	if a.Outcome.Decision == retry.Delivered {
		n.counter.succeeded(ref.EndpointID, a.StartedAt.Add(a.Latency))
		if since, over := n.outages.delivered(ref.EndpointID); over {
			n.recovered(ref.EndpointID, now, since)
		}
	} else if f := failuresOf(ref, a, p); f.Failed() {
		n.counter.failed(f)
	}
	if webhook.IsOperational(ref.EventType) { // operational events never cause others
		return
	}
	if a.Number > 1 {
		n.storms.retried(ref.EndpointID, now)
	}
	if endedDelivery(a, p) && p.State == webhook.StateDeadLettered {
		n.deadLettered(ref, p, now)
	}
}

// Ended notes a delivery that ended without an attempt, at a time of the database's clock.
func (n *Notes) Ended(ref webhook.Ref, p webhook.Progress, at time.Time) {
	if p.State != webhook.StateDeadLettered {
		return
	}
	if p.Reason == string(retry.ReasonGiveUpTime) && p.RunAttempts > 0 { // without an attempt it is no failure of the receiver
		n.counter.failed(webhook.EndpointFailures{EndpointID: ref.EndpointID, Exhausted: 1, First: at, Last: at, Began: at})
	}
	if !webhook.IsOperational(ref.EventType) {
		n.deadLettered(ref, p, time.Now())
	}
}

// deadLettered announces that a delivery became a dead letter.
func (n *Notes) deadLettered(ref webhook.Ref, p webhook.Progress, now time.Time) {
	n.announce(pendingEvent{event: webhook.OperationalEvent{
		Type: webhook.EventDeadLettered, TenantID: ref.TenantID, At: now,
		Delivery: &webhook.OperationalEventDelivery{
			ID: ref.DeliveryID, EventID: ref.EventID, EventType: ref.EventType, EndpointID: ref.EndpointID, Reason: p.Reason, Attempts: p.Attempts,
		},
		Summary: explain.GivenUp(p.Attempts, p.Reason),
		Key:     fmt.Sprintf("%s/%s/%d", webhook.EventDeadLettered, ref.DeliveryID, p.Run),
	}})
}

// CircuitChanged notes a change of a circuit.
func (n *Notes) CircuitChanged(c webhook.CircuitChange) {
	switch {
	case c.To == webhook.CircuitOpen && c.From == webhook.CircuitClosed:
		n.outages.opened(c.EndpointID, c.At)
		if c.TakenOver {
			return // the other process has announced it
		}
		n.announce(pendingEvent{endpoint: c.EndpointID, event: webhook.OperationalEvent{
			Type: webhook.EventCircuitOpened, At: c.At,
			Summary: explain.CircuitOpened(c.Why),
		}})
	case c.To == webhook.CircuitClosed && c.From != webhook.CircuitClosed:
		if since, over := n.outages.closed(c.EndpointID, c.At); over {
			n.recovered(c.EndpointID, c.At, since)
		}
	}
}

// recovered announces that an endpoint accepts requests again, since when its circuit was open, and has its dead letters
// replayed.
func (n *Notes) recovered(id webhook.EndpointID, at, since time.Time) {
	n.recoveries.put(id, outageReplay{since: since})
	n.announce(pendingEvent{endpoint: id, event: webhook.OperationalEvent{
		Type: webhook.EventEndpointRecovered, At: at,
		Summary: explain.Recovered(at.Sub(since)),
	}})
}

// EndpointChanged calls reset, which makes the admission forget what it has learned of an endpoint whose settings have changed. Its circuit
// closes with that, which does not mean that the receiver has recovered.
func (n *Notes) EndpointChanged(id webhook.EndpointID, reset func(webhook.EndpointID)) {
	n.outages.resetting(id, func() { reset(id) })
}

// announce queues an operational event.
func (n *Notes) announce(e pendingEvent) {
	if e.event.Key == "" { // so that it can be stored again when it is not known whether it was stored
		e.event.Key = fmt.Sprintf("%s/%s/%d", e.event.Type, e.endpoint, e.event.At.UnixMicro())
	}
	ok, dropped := n.announced.put(e, time.Now())
	if !ok {
		n.metrics.OperationalEventsDropped(1)
	}
	if dropped > 0 {
		n.log.Warn("more operational events than can be stored; some were dropped", "count", dropped)
	}
}

// ByClock converts a time of this process's clock to another clock.
func ByClock(now func() time.Time, at time.Time) time.Time { return now().Add(time.Until(at)) }
