// Package starter carries what the record holds to the engine: it starts a
// workflow for every delivery and signals every command, at once when it can and
// from the outbox when it could not.
//
// Nothing here has to succeed: a start that was not made, not answered or lost
// with the process is taken up again by the relay, with the same workflow id, of
// which there is one in the world.
package starter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Store is what the relay works on.
type Store interface {
	Outbox
	// TakeCommands takes commands that no step has answered for a while.
	TakeCommands(ctx context.Context, limit int) ([]webhook.CommandedDelivery, error)
}

// Outbox are the deliveries whose workflows are still to be started.
type Outbox interface {
	// TakeStarts takes deliveries that were stored a while ago and not begun.
	TakeStarts(ctx context.Context, limit int) ([]webhook.Start, error)
	// DeleteStarts deletes the rows of deliveries that are recorded and whose workflow has been started.
	DeleteStarts(ctx context.Context, ids []webhook.DeliveryID) error
	// AssignWorkflow notes into which workflow deliveries are put that TakeStarts took.
	AssignWorkflow(ctx context.Context, workflowID string, ids []webhook.DeliveryID) error
	// ReturnStarts gives back deliveries that were taken in vain: they keep their turn.
	ReturnStarts(ctx context.Context, starts []webhook.Start) error
}

const (
	// queueTime is how long after its commit a delivery may wait for its start; what
	// waits longer is left to the relay, so that both never work on the same delivery.
	queueTime = 5 * time.Second
	// startTimeout bounds one start, with the client's own repetitions.
	startTimeout = 5 * time.Second
	// doorPatience is how long a request waits for room in the queue.
	doorPatience = time.Second
	// relayEvery is how often the outbox is looked at, relayBatch how much is taken.
	relayEvery = time.Second
	relayBatch = 200
	// readTimeout bounds one look into the record.
	readTimeout = 10 * time.Second
	// probeEvery is how often Temporal is asked whether it is there. The timeout is
	// generous: a busy Temporal is not away.
	probeEvery   = time.Second
	probeTimeout = 3 * time.Second
	// doubtAfter is how long a call goes without an answer until it is asked whether Temporal can be
	// written to: before a request that has begun to wait at the door since then is refused.
	// settlePatience is how long others wait for what that comes to, after a probe that was under way.
	doubtAfter     = 3 * doorPatience / 4
	settlePatience = 2 * probeTimeout
	// probeTries are of a write that fails at once, probePause after one another: a single shard may
	// just be moving to another host.
	probeTries = 3
	probePause = 100 * time.Millisecond
	// probeLife ends a probe's workflow that no worker takes.
	probeLife = 10 * time.Second
	// handOverTurns is how many hand-overs are under way at a time.
	handOverTurns = 8
	// turnPatience is how long one waits for its turn; then it is tried again later.
	turnPatience = time.Second
	// maxGathered bounds the deliveries that wait for workflows which they share, in widths of those.
	maxGathered = 4
	// signalSlots bounds the signals under way.
	signalSlots = 16
	// stopPatience is how long Stop waits for calls under way before it cuts them off.
	stopPatience = 1500 * time.Millisecond
)

// Config is what a starter needs.
type Config struct {
	Client    client.Client
	Namespace string // of the client; defaults to the SDK's default
	Store     Store
	Replays   Replays // defaults to none
	Logger    *slog.Logger

	// StartSlots is how many starts are under way at a time. Defaults to 1: while one
	// is under way, what arrives gathers, and shares the next. Beside a large start of one
	// tenant a single slot makes those of others.
	StartSlots int
	// Width is how many deliveries may share a workflow for their first attempts.
	// Defaults to 100; 1 gives each one of its own.
	Width int
	// EventIDs is how many of their events a workflow can be found by. Defaults to
	// workflows.EventIDs; more needs a Temporal that takes longer search attributes.
	EventIDs int
	// QueueLength is how many deliveries may wait for a start before the door waits.
	// Defaults to 1,000: at 3,000 starts a second, a third of one. A tenant that is alone
	// gets half of it, several get less each: see room.
	QueueLength int
	// Gate admits requests to endpoints, in a process with a worker; nil: there is none.
	Gate Gate
	// Backlog is what is held because too much was waiting, and is released as the gate
	// has room for it.
	Backlog Backlog
	// Forgotten is what is held for active endpoints, and is released likewise; nil: none is.
	Forgotten Forgotten
	// FaultyBacklog is what is held because of faults of our own.
	FaultyBacklog FaultyBacklog
	// Overdue is read by the reconciler, every ReconcileEvery (defaults to 5 min). Without
	// it there is none.
	Overdue        Overdue
	ReconcileEvery time.Duration
	// KeepDeadLetters is how long a dead letter is kept. Defaults to 30 days.
	KeepDeadLetters time.Duration
	// LocalWorker says that a worker of this process, on the same client, runs the
	// workflows: then it gets the payloads of new events handed over, and the first
	// task with the answer to the start.
	LocalWorker bool
	// SoleWorker says that no other process runs the workflows: then first requests are sent eagerly,
	// before their workflows are started.
	SoleWorker bool
	// Now is the database's clock, which says whether a delivery's time has come. Defaults to time.Now.
	Now func() time.Time
}

// Requests are what a worker of this process can do at an endpoint.
type Requests interface {
	// SendEagerly sends the first request of a delivery before its workflow is started, if it can be
	// sent at once. It must be quick.
	SendEagerly(in activities.AttemptInput, start activities.EagerStart) bool
	// Probe finds out whether an endpoint can be sent to again after a fault of our own. Its error is
	// for people.
	Probe(ctx context.Context, id webhook.EndpointID) error
}

// Starter starts and signals workflows. Start it once, Stop it once.
type Starter struct {
	Config

	requests   atomic.Pointer[Requests] // nil without a worker, and until Start
	gatherings *gatherings

	fresh     *Fresh
	permits   *fair.Semaphore // of the start queue
	handOvers *fair.Semaphore
	queue     *fair.Queue[webhook.Start]
	// troubled are those that wait for company: see setAside.
	troubled *fair.Queue[webhook.Start]
	early    *early // those whose turn is not near
	behind   behind // those whose first requests wait for workflows
	signals  chan struct{}
	ending   chan struct{} // holds something while outbox rows are being deleted
	away     atomic.Bool   // Temporal cannot be written to; the outbox keeps everything
	backlog  backlog
	// forgotten are the endpoints that may have something held although they are active.
	forgotten backlog
	doubt     chan struct{} // a call was late or failed: ask now whether Temporal is there
	doubtMu   sync.Mutex
	doubted   chan struct{} // closed when that is settled; nil while nothing is in doubt
	stopped   chan struct{}
	life      context.Context //nolint:containedctx // of the calls to Temporal, which outlive who asked for them; ended by Stop
	end       context.CancelFunc
	faulty    faulty

	mu      sync.Mutex // workers grows only with mu held and stopped open, or by one of them, so never beside Stop's Wait
	workers sync.WaitGroup
}

// New returns a starter. Start begins its work.
func New(c Config) *Starter {
	if c.StartSlots == 0 {
		c.StartSlots = 1
	}
	if c.Namespace == "" {
		c.Namespace = client.DefaultNamespace
	}
	if c.Width == 0 {
		c.Width = 100
	}
	if c.EventIDs == 0 {
		c.EventIDs = workflows.EventIDs
	}
	if c.ReconcileEvery == 0 {
		c.ReconcileEvery = reconcileEvery
	}
	if c.KeepDeadLetters == 0 {
		c.KeepDeadLetters = 30 * 24 * time.Hour
	}
	if c.QueueLength == 0 {
		c.QueueLength = 1000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	d := &Starter{
		Config:     c,
		gatherings: newGatherings(c.Width),

		fresh:     newFresh(time.Now),
		permits:   fair.NewDynamic(c.QueueLength, 1),
		handOvers: fair.NewCapped(handOverTurns, handOverTurns),
		queue:     fair.New[webhook.Start](16 * c.QueueLength), // the room bounds it; an event may overdraw it by its endpoints
		troubled:  fair.New[webhook.Start](c.QueueLength),
		early:     newEarly(),
		signals:   make(chan struct{}, signalSlots),
		ending:    make(chan struct{}, 1),
		doubt:     make(chan struct{}, 1),
		stopped:   make(chan struct{}),
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// Fresh is where a worker of this process finds the payloads of new events.
func (d *Starter) Fresh() *Fresh { return d.fresh }

// OnlyStart leaves what was left behind, what is overdue and what is held to other
// processes: this one may not read all tenants' deliveries. It is called before Start.
func (d *Starter) OnlyStart() {
	d.Store, d.Replays, d.Overdue, d.Backlog, d.Forgotten, d.FaultyBacklog = nil, nil, nil, nil, nil, nil
}

// Start begins to start, relay and probe. requests is nil in a process without a worker.
func (d *Starter) Start(requests Requests) {
	if requests != nil {
		d.requests.Store(&requests)
	}
	for range d.StartSlots {
		d.workers.Go(d.serve)
	}
	d.workers.Go(d.probe)
	if d.Store != nil {
		d.workers.Go(d.relay)
	}
	if d.Overdue != nil {
		d.workers.Go(d.reconcile)
	}
	if d.Gate != nil {
		d.workers.Go(d.serveTroubled)
		d.workers.Go(d.serveEarly)
	}
	if d.Gate != nil && d.Backlog != nil {
		d.workers.Go(d.release)
	}
	if d.Gate != nil && d.Forgotten != nil {
		d.workers.Go(d.releaseForgotten)
	}
	if d.probes() {
		d.workers.Go(d.probeFaulty)
	}
}

// Stop ends the work within about 2 s. What waits or is cut off stays in the outbox.
func (d *Starter) Stop() {
	d.mu.Lock()
	close(d.stopped)
	d.mu.Unlock()
	cut := time.AfterFunc(stopPatience, d.end)
	d.workers.Wait()
	cut.Stop()
	d.end()
}

// stopping reports whether Stop was called.
func (d *Starter) stopping() bool {
	select {
	case <-d.stopped:
		return true
	default:
		return false
	}
}

// Healthy reports whether Temporal could be written to when that was last in doubt, and
// answers.
func (d *Starter) Healthy() bool { return !d.away.Load() }

// Waiting is how many deliveries wait for their start in this process.
func (d *Starter) Waiting() int { return d.queue.Len() + d.troubled.Len() + d.early.len() }

// Reserve waits up to 1 s for room in the queue for the tenant, and not behind those
// who wait because their own tenant has too much in it. n is how many events are about
// to be stored: as many wait for their commit together, and so before others'. Call
// release once, after Accepted, or when nothing was accepted. While Temporal is away, and
// after Stop, there is always room: nothing is queued then. Whether it is may be in doubt
// when the queue is full; that is waited for.
func (d *Starter) Reserve(ctx context.Context, tenantID string, n int) (release func(), err error) {
	if d.away.Load() || d.stopping() {
		return func() {}, nil
	}
	if !d.permits.Acquire(ctx, tenantID, n, doorPatience) {
		if err := ctx.Err(); err != nil {
			return nil, &webhook.Error{Code: webhook.CodeUnavailable, Message: "the request was abandoned", Err: err}
		}
		if d.awayAfterAll(ctx) || d.stopping() {
			return func() {}, nil
		}
		return nil, &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "more events are arriving than can be started; try again shortly", RetryAfter: time.Second,
		}
	}
	return func() { d.permits.Release(tenantID, n) }, nil
}

// Accepted takes deliveries that have just been committed. It never blocks and
// never fails: what does not find a place, or comes after Stop, is started by the relay.
func (d *Starter) Accepted(all ...webhook.Accepted) {
	if d.away.Load() || d.stopping() {
		return
	}
	for _, a := range all {
		d.queueUp(a)
	}
}

func (d *Starter) queueUp(a webhook.Accepted) {
	for _, start := range a.Deliveries {
		// All that is timed counts from the same moment as the relay's patience: from
		// before the commit, however long that took.
		if d.LocalWorker && !d.waits(&start) {
			d.fresh.put(start.DeliveryID, a.Payload, a.SHA256, start.CreatedAt, start.ReceivedAt)
			if d.sendEagerly(start) {
				continue
			}
		}
		d.enqueue(&start)
	}
}

// enqueue puts a delivery into the queue for its start; false when that is full, and the relay starts it.
func (d *Starter) enqueue(start *webhook.Start) bool {
	d.permits.Overdraw(start.TenantID, 1)
	d.behind.add(start, 1)
	if !d.queue.Put(start.TenantID, *start) {
		d.behind.add(start, -1)
		d.permits.Release(start.TenantID, 1)
		return false
	}
	return true
}

// sendEagerly sends the first request of a delivery, unless others for its endpoint wait for
// their workflows, or starts do not keep up.
func (d *Starter) sendEagerly(start webhook.Start) bool {
	requests := d.requests.Load()
	return d.SoleWorker && requests != nil && d.queue.Len() < d.QueueLength && d.gatherings.len() < maxGathered*d.Width &&
		!d.early.has(start.EndpointID) && !d.behind.has(start.EndpointID) &&
		(*requests).SendEagerly(activities.AttemptInput{Ref: start.Ref, Progress: begun(start), FirstTask: true}, &eagerStart{d: d, start: start})
}
