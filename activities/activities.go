package activities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// Store keeps the deliveries. See docs/adr/0003.
type Store interface {
	// Claim takes the right to send an attempt, and reads what the request needs. CodeNotFound: no such delivery is stored.
	Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error)
	// RecordStep writes one step. The status that it returns is authoritative. CodeNotFound: no such delivery is stored.
	RecordStep(ctx context.Context, s webhook.Step) (webhook.DeliveryStatus, error)
	// Reopen opens the next run of a dead letter of the given run.
	Reopen(ctx context.Context, ref webhook.Ref, run int, reason string) (webhook.DeliveryStatus, error)
	// ClaimStatus reads a status, and until when another process than the claimant has a claim. CodeNotFound: there is no such delivery.
	ClaimStatus(ctx context.Context, ref webhook.Ref, claimant string) (webhook.DeliveryStatus, error)
}

// History tells which attempts were made.
type History interface {
	// HasReused reports whether an attempt of the run met the end of a kept connection: retry.ReasonConnectionReused.
	HasReused(ctx context.Context, id webhook.DeliveryID, run int) (bool, error)
}

// Targets finds an endpoint with its secrets. CodeNotFound: it was deleted.
type Targets interface {
	Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error)
	// Known is Target for an endpoint in memory. It makes no query.
	Known(id webhook.EndpointID) (*webhook.Target, bool)
}

// Fresh holds the payloads of events that this process has just stored. Each is handed out once,
// as the permission to make the first attempt without a claim in the store.
type Fresh interface {
	Take(of webhook.Ref) (content webhook.Content, ok bool)
}

// Sender makes one POST. A failure is a value.
type Sender interface {
	Send(ctx context.Context, r egress.Request) egress.Response
}

// Admission decides when a request may be sent: *admission.Controller, or *fleet.Fleet.
type Admission interface {
	Acquire(ctx context.Context, r admission.Request) admission.Decision
	TryAcquire(r admission.Request) *admission.Permit
	Forget(endpoint webhook.EndpointID, delivery webhook.DeliveryID)
	LikelySlow(endpoint webhook.EndpointID) bool
	Near(r admission.Request) (timeout time.Duration, near bool)
}

// Observer counts attempts for metrics and statistics. Its methods must be quick.
type Observer interface {
	Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress)
	// Counted: a write of a delivery has added an attempt, nil for none, or ended the delivery in the
	// state of p, or both. It is called once, however often the write is repeated.
	Counted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress, ended bool)
	// Deferred: admission deferred or held a delivery.
	Deferred(reason string)
	InternalFault(err error)
}

// Config configures Activities.
type Config struct {
	Store     Store
	History   History
	Targets   Targets
	Fresh     Fresh
	Sender    Sender
	Admission Admission // defaults to a controller with default limits
	Starter   Starter
	Faults    Faults // nil: none is remembered
	Replays   Replays
	Audit     Audit
	Tenants   TenantErasure
	Observer  Observer        // may be nil
	Tracer    *tracing.Tracer // makes a span of each attempt; may be nil

	Logger   *slog.Logger
	Claimant string // of this process's claims; unique among processes

	// FastWait is how long a workflow task waits for a receiver, and for admission as long
	// again. Defaults to 1 s.
	FastWait time.Duration
	// MaxPayload is the largest payload that the API accepts, in bytes. Defaults to webhook.DefaultMaxPayload.
	MaxPayload int
	// MaxRunning bounds the attempts of a tenant that run at a time while it is alone. Others have a fifteenth more, and tenants that need
	// many places have the same number each. Defaults to 4,000.
	MaxRunning int
	// KeepDeadLetters is how long a dead letter is kept. Defaults to 30 days.
	KeepDeadLetters time.Duration
	// LeastRetryDelay is the shortest delay under the policy of a tenant or an endpoint. Defaults to none.
	LeastRetryDelay time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Activities are the activities of a worker. A slow request outlives the activity that began it,
// so a process has one Activities, which it stops last.
type Activities struct {
	store     Store
	history   History
	targets   Targets
	fresh     Fresh
	sender    Sender
	admission Admission
	starter   Starter
	faults    Faults
	replays   Replays
	audit     Audit
	tenants   TenantErasure
	observer  Observer
	tracer    *tracing.Tracer
	log       *slog.Logger
	claimant  string

	fastWait        time.Duration
	maxRunning      int
	leastRetryDelay time.Duration
	keepDeadLetters time.Duration
	now             func() time.Time

	executions executions
	attempts   sync.WaitGroup  // goroutines of attempts
	slow       *fair.Semaphore // requests to slow receivers
	payloads   *fair.Semaphore // of running attempts, in steps of payloadStep
	maxPayload int             // bytes
	eager      *fair.Semaphore // eager requests
	outage     outage          // of the store
	base       context.Context //nolint:containedctx // of requests that outlive their activity; ended by Stop
	cancel     context.CancelFunc
	records    context.Context //nolint:containedctx // of the recording of outcomes; outlives base by lastRecords
	endRecords context.CancelFunc
}

// New returns the activities. Call Stop when the worker has stopped.
func New(c Config) *Activities {
	if c.Admission == nil {
		c.Admission = admission.New(admission.Config{})
	}
	if c.Faults == nil {
		c.Faults = noFaults{}
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.FastWait == 0 {
		c.FastWait = time.Second
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = 4000
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = webhook.DefaultMaxPayload
	}
	if c.KeepDeadLetters == 0 {
		c.KeepDeadLetters = 30 * 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Activities{
		store: c.Store, history: c.History, targets: c.Targets, fresh: c.Fresh, sender: c.Sender, admission: c.Admission, starter: c.Starter, faults: c.Faults,
		replays: c.Replays, audit: c.Audit, tenants: c.Tenants, observer: c.Observer, tracer: c.Tracer,
		log: c.Logger, claimant: c.Claimant,
		fastWait: c.FastWait, maxRunning: c.MaxRunning, keepDeadLetters: c.KeepDeadLetters, leastRetryDelay: c.LeastRetryDelay, now: c.Now,
		executions: newExecutions(c.MaxRunning, rememberedExecutions),
		slow:       fair.NewDynamic(max(c.MaxRunning/2, 1), 1), payloads: newPayloadRooms(), maxPayload: c.MaxPayload, eager: fair.NewDynamic(maxEager, 1),
	}
	a.base, a.cancel = context.WithCancel(context.Background())
	a.records, a.endRecords = context.WithCancel(context.Background())
	return a
}

// Running is the number of attempts that are running.
func (a *Activities) Running() int {
	a.executions.mu.Lock()
	defer a.executions.mu.Unlock()
	return a.executions.running
}

// lastRecords is how long Stop waits for outcomes to be recorded after it has cancelled the requests.
const lastRecords = time.Second

// Stop refuses new attempts, and waits until ctx ends for the running ones to be made and recorded.
// Then it cancels the requests. What was answered by then is recorded, for which Stop takes up to
// lastRecords; any other attempt is made again by another process.
func (a *Activities) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		a.executions.close()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		a.cancel()
		limit := time.AfterFunc(lastRecords, a.endRecords)
		<-done
		limit.Stop()
	}
	a.cancel()
	a.endRecords()
	a.attempts.Wait()
}

// noObserver counts nothing.
type noObserver struct{}

func (noObserver) Attempted(webhook.Ref, *webhook.Attempt, webhook.Progress)     {}
func (noObserver) Counted(webhook.Ref, *webhook.Attempt, webhook.Progress, bool) {}
func (noObserver) Deferred(string)                                               {}
func (noObserver) InternalFault(error)                                           {}
