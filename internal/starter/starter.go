// Package starter brings deliveries and commands from PostgreSQL to Temporal. It starts the workflows
// of deliveries, up to 100 of which share one, and signals each command: at once if it can, else from
// the outbox.
//
// No call to Temporal has to succeed. The relay repeats a start or a signal that was not made, was
// not answered, or was lost with the process. A repeated start has the same workflow id, and only one
// workflow of an id can run.
//
// The files, in the order in which a delivery passes through them:
//
//	starter                     configuration, start and stop
//	start_queue, fresh_token    what the API hands over; payloads for the first attempts
//	gathering                   workflows of deliveries that eager requests have delivered
//	start_loop                  takes what is queued, as one start
//	unhealthy                   deliveries to unhealthy endpoints, collected before their start
//	start, hand_over, spans     the start of a workflow
//	signal, replay_workflow     commands and replays
//	outbox_relay, reconciler    what was not started, what has lost its workflow
//	tenant_deletion             the workflow that deletes a tenant
//	workflow_status             what Temporal says of a workflow
//	release, held_endpoints     held deliveries
//	temporal_health, calls      whether Temporal is available; bounded calls
package starter

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// stopTimeout is how long Stop waits for calls under way before it cancels them.
const stopTimeout = 1500 * time.Millisecond

// Config is what a starter needs.
type Config struct {
	Client    client.Client
	Namespace string // of the client; defaults to the SDK's default
	Logger    *slog.Logger
	// Converter is the client's; defaults to the SDK's default.
	Converter converter.DataConverter

	// Without Outbox nothing is relayed: in a process that may not read all tenants' deliveries. The same holds for Replays, Overdue and HeldStore.
	Outbox  Outbox
	Replays Replays
	// Overdue is read by the reconciler, every ReconcileEvery, which defaults to 5 min.
	Overdue        Overdue
	ReconcileEvery time.Duration
	// Deletions are read with it; may be nil.
	Deletions TenantDeletions
	// HeldStore has the held deliveries. A process with a worker releases them.
	HeldStore HeldStore
	// TellHeld tells the process that admits the requests to an endpoint that it has held deliveries. May be nil.
	TellHeld func(webhook.EndpointID)

	// Admission is that of this process's worker; nil without one.
	Admission AdmissionForecast
	// Forwarder forwards new deliveries to the processes that admit the requests to their endpoints; nil if this process shares no limits.
	Forwarder Forwarder
	// StartLoops is the number of start loops. Defaults to 1: then deliveries that arrive during a
	// start share the next one.
	StartLoops int
	// MaxPerWorkflow is how many deliveries may share a workflow. Defaults to 100; with 1 none do.
	MaxPerWorkflow int
	// MaxEventIDs is the number of events by which a shared workflow can be found. Defaults to
	// workflows.MaxEventIDs; more needs a Temporal that accepts longer search attributes.
	MaxEventIDs int
	// QueueLength is how many deliveries may wait for a start before ReserveRoom waits. Defaults to 1,000.
	// A single tenant gets half of it, several get less each: see fair.NewDynamic.
	QueueLength int
	// KeepDeadLetters is how long a dead letter is kept. Defaults to 30 days.
	KeepDeadLetters time.Duration
	// LocalWorker says that a worker of this process, on the same client, runs workflows. The starter
	// then keeps the payloads of new events for it, sends first requests eagerly, and starts workflows eagerly.
	LocalWorker bool
	// Tracer makes a span of each start; nil: there are none.
	Tracer *tracing.Tracer
	// Now is the database's clock, for deliver_at. Defaults to time.Now.
	Now func() time.Time
}

// Requests is what the starter needs of this process's worker.
type Requests interface {
	// SendEagerly sends the first request of a delivery before its workflow is started, if it can be
	// sent at once. It must not block.
	SendEagerly(in activities.AttemptInput, start activities.EagerStart) bool
	// KnowsEndpoint reports whether an endpoint is in memory, which SendEagerly needs. It must not block.
	KnowsEndpoint(id webhook.EndpointID) bool
	// ReadEndpoint brings an endpoint into memory. If that fails, the first attempt finds out why.
	ReadEndpoint(ctx context.Context, id webhook.EndpointID)
	// CheckEndpoint finds out whether requests to an endpoint are possible again after an internal fault. Its
	// error is shown to users.
	CheckEndpoint(ctx context.Context, id webhook.EndpointID) error
}

// Forwarder forwards new deliveries to the processes that admit the requests to their endpoints: *fleet.Fleet.
type Forwarder interface {
	// Forward does not block. It calls done once for each delivery.
	Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult))
}

// Starter starts and signals workflows. Start it once, Stop it once.
type Starter struct {
	client    client.Client
	namespace string
	log       *slog.Logger
	converter converter.DataConverter
	tracer    *tracing.Tracer
	admission AdmissionForecast        // nil without a worker
	forwarder Forwarder                // nil if this process shares no limits
	requests  atomic.Pointer[Requests] // nil without a worker, and until Start

	// Each may be nil; its loop then does not run.
	outbox    Outbox
	replays   Replays
	overdue   Overdue
	heldStore HeldStore
	tellHeld  func(webhook.EndpointID)
	deletions TenantDeletions

	startLoops, maxPerWorkflow, maxEventIDs, queueLength int
	reconcileEvery, keepDeadLetters                      time.Duration
	localWorker                                          bool
	now                                                  func() time.Time

	queue         *fair.Queue[webhook.Start]
	permits       *fair.Semaphore            // of the start queue
	unhealthy     *fair.Queue[webhook.Start] // deliveries to unhealthy endpoints: see setAside
	endpointQueue endpointCounts
	gatherings    *gatherings
	fresh         *Fresh
	handOvers     *fair.Semaphore
	async         chan struct{} // a token for each asynchronous call
	deleting      chan struct{} // a token while outbox rows are being deleted
	reading       chan struct{} // a token for each forwarded delivery that waits for its endpoint

	heldEndpoints heldEndpoints
	lanesTakenAt  atomic.Int64 // in Unix nanoseconds; 0: never

	temporalDown   atomic.Bool   // Temporal cannot be written to; deliveries stay in the outbox
	temporalDownAt atomic.Int64  // since when, in microseconds of Unix time
	checkNow       chan struct{} // wakes the check
	suspicionMu    sync.Mutex
	suspicion      chan struct{} // closed by the check's verdict; nil while nothing is suspected

	stopped chan struct{}
	life    context.Context //nolint:containedctx // of calls that outlive their callers; ended by Stop
	end     context.CancelFunc
	// mu is held to add to workers from outside of them, so that none is added during Stop's Wait.
	mu      sync.Mutex
	workers sync.WaitGroup
}

// New returns a starter. Start begins its work.
func New(c Config) *Starter {
	c.MaxPerWorkflow, c.QueueLength = cmp.Or(c.MaxPerWorkflow, 100), cmp.Or(c.QueueLength, 1000)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Converter == nil {
		c.Converter = converter.GetDefaultDataConverter()
	}
	s := &Starter{
		client: c.Client, namespace: cmp.Or(c.Namespace, client.DefaultNamespace), log: c.Logger, converter: c.Converter,
		tracer: c.Tracer, admission: c.Admission, forwarder: c.Forwarder,
		outbox: c.Outbox, replays: c.Replays, overdue: c.Overdue, heldStore: c.HeldStore, tellHeld: c.TellHeld, deletions: c.Deletions,
		startLoops: cmp.Or(c.StartLoops, 1), queueLength: c.QueueLength,
		maxPerWorkflow: c.MaxPerWorkflow, maxEventIDs: cmp.Or(c.MaxEventIDs, workflows.MaxEventIDs),
		reconcileEvery: cmp.Or(c.ReconcileEvery, defaultReconcileEvery), keepDeadLetters: cmp.Or(c.KeepDeadLetters, 30*24*time.Hour),
		localWorker: c.LocalWorker, now: c.Now,

		queue:      fair.New[webhook.Start](queueOverdraft * c.QueueLength),
		permits:    fair.NewDynamic(c.QueueLength, 1),
		unhealthy:  fair.New[webhook.Start](c.QueueLength),
		gatherings: newGatherings(c.MaxPerWorkflow),
		fresh:      newFresh(time.Now),
		handOvers:  fair.NewCapped(maxHandOvers, maxHandOvers),
		async:      make(chan struct{}, maxAsync),
		deleting:   make(chan struct{}, 1),
		reading:    make(chan struct{}, maxReading),
		checkNow:   make(chan struct{}, 1),
		stopped:    make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Start begins the work. requests is nil in a process without a worker.
func (s *Starter) Start(requests Requests) {
	if requests != nil {
		s.requests.Store(&requests)
	}
	for range s.startLoops {
		s.workers.Go(s.runStartLoop)
	}
	for _, loop := range []struct {
		needed bool
		run    func()
	}{
		{true, s.checkTemporal},
		{s.outbox != nil, s.relay},
		{s.overdue != nil, s.reconcile},
		{s.admission != nil, s.startUnhealthy},
		{s.releases(), s.release},
		{s.releases(), s.findAllHeld},
	} {
		if loop.needed {
			s.workers.Go(loop.run)
		}
	}
}

// Stop ends the work within 4 s, normally at once. What is not started by then is left to another process, by the outbox.
func (s *Starter) Stop() {
	s.mu.Lock()
	close(s.stopped)
	s.mu.Unlock()
	cancel := time.AfterFunc(stopTimeout, s.end)
	s.workers.Wait()
	cancel.Stop()
	s.end()
	s.leaveUnhealthy()
}

// stopping reports whether Stop was called.
func (s *Starter) stopping() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// Healthy reports whether Temporal was available when it was last checked.
func (s *Starter) Healthy() bool { return !s.temporalDown.Load() }

// TemporalDownSince is since when Temporal has not been available; zero if it is.
func (s *Starter) TemporalDownSince() time.Time {
	if s.Healthy() {
		return time.Time{}
	}
	return time.UnixMicro(s.temporalDownAt.Load()).UTC()
}

// Waiting is how many deliveries wait for their start in this process.
func (s *Starter) Waiting() int { return s.queue.Len() + s.unhealthy.Len() }

// Fresh returns the payloads of new events, for the worker of this process.
func (s *Starter) Fresh() *Fresh { return s.fresh }
