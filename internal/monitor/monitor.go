// Package monitor follows the health of endpoints over time.
//
// Notes take down the outcome of every attempt and every change of a circuit. From these a Monitor counts failures and disables endpoints
// that only fail, warns of retry storms, stores operational events, and replays dead letters after an outage. It shares
// what this process sees of its endpoints with the other processes. A View answers the API's questions about all of them.
package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"

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
	Notes     *Notes
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

// Monitor goes by the notes of one process, in goroutines of its own between Start and Stop.
type Monitor struct {
	notes     *Notes
	admission Admission
	metrics   Metrics
	log       *slog.Logger
	now       func() time.Time

	failures *failureRecorder
	events   *eventWriter
	replays  *autoReplayer
	sharing  *sharing

	running sync.WaitGroup
	end     context.CancelFunc

	publishing sync.WaitGroup
	cutOff     context.CancelFunc // cuts off a write of publishing
}

// New makes a Monitor that has not been started.
func New(c Config) *Monitor {
	return &Monitor{
		notes: c.Notes, admission: c.Admission, metrics: c.Metrics, log: c.Logger, now: c.Now,
		failures: &failureRecorder{
			store: c.Failures, endpoints: c.Endpoints, metrics: c.Metrics, log: c.Logger, now: c.Now, counter: c.Notes.counter,
		},
		events: &eventWriter{
			store: c.Events, endpoints: c.Endpoints, starter: c.Starter, metrics: c.Metrics, log: c.Logger, now: c.Now, queue: c.Notes.announced,
		},
		replays: &autoReplayer{
			store: c.Replays, endpoints: c.Endpoints, starter: c.Starter, log: c.Logger, now: c.Now, queue: c.Notes.recoveries,
		},
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
	m.running.Go(func() { m.watchRetryStorms(ctx) })
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
	m.notes.outages.prune(time.Now(), func(id webhook.EndpointID) bool {
		state, known := m.admission.State(id)
		return known && state.Circuit != webhook.CircuitClosed
	})
}
