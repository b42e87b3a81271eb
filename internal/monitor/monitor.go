// Package monitor follows the health of endpoints over time.
//
// It sees the outcome of every attempt and every change of a circuit. From these it counts failures and disables endpoints
// that only fail, warns of retry storms, stores operational events, and replays dead letters after an outage. It shares
// what this process sees of its endpoints with the other processes, and answers the API's questions about all of them.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// flushPatience bounds how long Stop tries to store what has been gathered.
const flushPatience = 2 * time.Second

// Admission is what the admission of this process knows of its endpoints. Its times are by the database's clock.
type Admission interface {
	// State is the health of an endpoint; false when the admission does not know it.
	State(id webhook.EndpointID) (webhook.Observation, bool)
	// EachUnhealthy calls visit with every endpoint that fails, is slow, recovers, or has requests waiting.
	EachUnhealthy(visit func(webhook.EndpointID, webhook.Observation))
	// Reset closes the circuit of an endpoint and forgets what its responses have shown.
	Reset(id webhook.EndpointID)
	Circuits
}

// Circuits are the circuits of this process.
type Circuits interface {
	OpenCircuits() []webhook.EndpointID
	// CloseCircuit makes an open circuit half open. A repeated call with the same time does nothing.
	CloseCircuit(id webhook.EndpointID, at time.Time)
}

// Metrics counts what the monitor does.
type Metrics interface {
	Disabled()
	RetryStorm()
	OperationalEventStored(eventType string)
	OperationalEventsDropped(n int)
}

// Endpoints are the endpoints and their settings, from a cache.
type Endpoints interface {
	Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error)
}

// Starter starts the workflows of deliveries and replays.
type Starter interface {
	// ReserveRoom waits for room for n events of a tenant. The caller calls release after Accepted.
	ReserveRoom(ctx context.Context, tenantID string, n int) (release func(), err error)
	// Accepted starts the deliveries of events that have been stored.
	Accepted(events ...webhook.Accepted)
	// WakeReplay starts the workflow of a replay that has been stored.
	WakeReplay(ctx context.Context, r webhook.Replay)
}

// Config is what a Monitor needs. All fields are required unless they say otherwise.
type Config struct {
	Admission Admission
	Endpoints Endpoints
	Failures  Failures
	Events    Events
	Starter   Starter
	Replays   Replays
	Shared    Shared
	Metrics   Metrics
	Logger    *slog.Logger
	Now       func() time.Time // the database's clock

	// Process is the name under which this process shares what it sees.
	Process string
	// ShareEvery is how often it does so. Defaults to 3 s.
	ShareEvery time.Duration
}

// Monitor follows the endpoints to which this process sends. Its observing methods only take notes, and never block:
// goroutines of its own do the rest between Start and Stop. It is safe for concurrent use.
type Monitor struct {
	admission Admission
	metrics   Metrics
	log       *slog.Logger
	now       func() time.Time

	failures    *failureRecorder
	retryStorms *retryStorms
	outages     *outages
	events      *eventWriter
	replays     *autoReplayer
	sharing     *sharing

	running sync.WaitGroup
	end     context.CancelFunc

	publishing sync.WaitGroup
	cutOff     context.CancelFunc // cuts off a write of publishing
}

// New makes a Monitor that has not been started.
func New(c Config) *Monitor {
	return &Monitor{
		admission: c.Admission, metrics: c.Metrics, log: c.Logger, now: c.Now,
		failures: &failureRecorder{
			store: c.Failures, endpoints: c.Endpoints, metrics: c.Metrics, log: c.Logger, now: c.Now, counter: newCounter(),
		},
		retryStorms: newRetryStorms(),
		outages:     newOutages(),
		events: &eventWriter{
			store: c.Events, endpoints: c.Endpoints, starter: c.Starter, metrics: c.Metrics, log: c.Logger, queue: newEventQueue(),
		},
		replays: &autoReplayer{store: c.Replays, endpoints: c.Endpoints, starter: c.Starter, log: c.Logger, queue: newReplayQueue()},
		sharing: newSharing(c),
	}
}

// Start begins the work in the background, which ends with ctx or Stop.
func (m *Monitor) Start(ctx context.Context) {
	var writing context.Context
	writing, m.cutOff = context.WithCancel(context.WithoutCancel(ctx))
	ctx, m.end = context.WithCancel(ctx)
	m.failures.refresh(ctx)
	m.running.Go(func() { m.failures.run(ctx) })
	m.running.Go(func() { m.keepOutages(ctx) })
	m.running.Go(func() { m.events.run(ctx) })
	m.running.Go(func() { m.replays.run(ctx) })
	m.publishing.Go(func() { m.sharing.publish(ctx, writing) })
	m.running.Go(func() { m.sharing.followClosings(ctx) })
}

// Stop ends the work in the background and stores what has been gathered, for two seconds or until ctx ends.
func (m *Monitor) Stop(ctx context.Context) {
	m.end()
	m.running.Wait()
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	m.failures.flush(ctx)
	if left := m.events.writeAll(ctx); left > 0 {
		m.metrics.OperationalEventsDropped(left)
		m.log.WarnContext(ctx, "operational events were not stored: the process ends", "count", left)
	}
	if left := m.replays.startAll(ctx); left > 0 {
		m.log.WarnContext(ctx, "dead letters of outages are not replayed automatically: the process ends", "endpoints", left)
	}
	defer m.cutOff()
	context.AfterFunc(ctx, m.cutOff)
	m.publishing.Wait()
	m.sharing.withdraw(ctx)
}

// Attempted observes an attempt and where it left its delivery.
func (m *Monitor) Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	now := m.now()
	if a.Outcome.Decision == retry.Delivered {
		m.failures.counter.succeeded(ref.EndpointID, a.StartedAt.Add(a.Latency))
		if since, over := m.outages.delivered(ref.EndpointID); over {
			m.recovered(ref.EndpointID, now, since)
		}
	} else if f := failuresOf(ref, a, p); f.Failed() {
		m.failures.counter.failed(f)
	}
	if webhook.IsOperational(ref.EventType) { // operational events never cause others
		return
	}
	if a.Number > 1 && m.retryStorms.checkDue(ref.EndpointID, now) {
		m.checkRetryStorm(ref.EndpointID, now)
	}
	if endedDelivery(a, p) && p.State == webhook.StateDeadLettered {
		m.deadLettered(ref, p, now)
	}
}

// Ended observes a delivery that ended without an attempt.
func (m *Monitor) Ended(ref webhook.Ref, p webhook.Progress) {
	if p.State != webhook.StateDeadLettered {
		return
	}
	now := m.now()
	if p.Reason == string(retry.ReasonGiveUpTime) && p.RunAttempts > 0 { // without an attempt it is no failure of the receiver
		m.failures.counter.failed(webhook.EndpointFailures{EndpointID: ref.EndpointID, Exhausted: 1, First: now, Last: now, Began: now})
	}
	if !webhook.IsOperational(ref.EventType) {
		m.deadLettered(ref, p, now)
	}
}

// deadLettered announces that a delivery became a dead letter.
func (m *Monitor) deadLettered(ref webhook.Ref, p webhook.Progress, now time.Time) {
	m.events.announce(pendingEvent{event: webhook.OperationalEvent{
		Type: webhook.EventDeadLettered, TenantID: ref.TenantID, At: now,
		Delivery: &webhook.OperationalEventDelivery{
			ID: ref.DeliveryID, EventID: ref.EventID, EventType: ref.EventType, EndpointID: ref.EndpointID, Reason: p.Reason, Attempts: p.Attempts,
		},
		Summary: explain.GivenUp(p.Attempts, p.Reason),
		Key:     fmt.Sprintf("%s/%s/%d", webhook.EventDeadLettered, ref.DeliveryID, p.Run),
	}})
}

// CircuitChanged observes a change of a circuit, at a time of the database's clock.
func (m *Monitor) CircuitChanged(c webhook.CircuitChange) {
	switch {
	case c.To == webhook.CircuitOpen && c.From == webhook.CircuitClosed:
		m.outages.opened(c.EndpointID, c.At)
		if c.TakenOver {
			return // the other process has announced it
		}
		m.events.announce(pendingEvent{endpoint: c.EndpointID, event: webhook.OperationalEvent{
			Type: webhook.EventCircuitOpened, At: c.At,
			Summary: explain.CircuitOpened(c.Why),
		}})
	case c.To == webhook.CircuitClosed && c.From != webhook.CircuitClosed:
		if since, over := m.outages.closed(c.EndpointID, c.At); over {
			m.recovered(c.EndpointID, c.At, since)
		}
	}
}

// recovered announces that an endpoint accepts requests again, since when its circuit was open, and has its dead letters
// replayed.
func (m *Monitor) recovered(id webhook.EndpointID, at, since time.Time) {
	m.replays.queue.put(id, outageReplay{since: since})
	m.events.announce(pendingEvent{endpoint: id, event: webhook.OperationalEvent{
		Type: webhook.EventEndpointRecovered, At: at,
		Summary: explain.Recovered(at.Sub(since)),
	}})
}

// EndpointChanged resets what the admission has learned of an endpoint whose settings have changed. Its circuit closes
// with that, which does not mean that the receiver has recovered.
func (m *Monitor) EndpointChanged(id webhook.EndpointID) {
	m.outages.resetting(id, func() { m.admission.Reset(id) })
}

// keepOutages forgets outages of endpoints that the admission has forgotten, until ctx ends.
func (m *Monitor) keepOutages(ctx context.Context) {
	tick := time.Tick(refreshEvery)
	for {
		select {
		case <-tick:
			m.pruneOutages()
		case <-ctx.Done():
			return
		}
	}
}

func (m *Monitor) pruneOutages() {
	m.outages.prune(m.now(), func(id webhook.EndpointID) bool {
		state, known := m.admission.State(id)
		return known && state.Circuit != webhook.CircuitClosed
	})
}
