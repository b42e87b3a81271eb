package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/pool"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// queryTime bounds what an attempt does besides the request: queries and writes.
	queryTime = 20 * time.Second
	// slowWait replaces FastWait if the receiver is known to be slow. If an attempt has no
	// permit by then, Attempt goes on waiting.
	slowWait = 300 * time.Millisecond
	// keptGoroutines is how many goroutines wait for the next attempt: about as many as two processors keep busy.
	keptGoroutines = 128
)

// Statuses reads what the store has of a delivery.
type Statuses interface {
	// ClaimStatus reads a status, and until when another process than the claimant has a claim. CodeNotFound: there is no such delivery.
	ClaimStatus(ctx context.Context, ref webhook.Ref, claimant string) (webhook.DeliveryStatus, error)
}

// AttemptStore keeps the attempts of deliveries, and the rights to make them.
type AttemptStore interface {
	Statuses
	// Claim takes the right to send an attempt, and reads what the request needs. CodeNotFound: no such delivery is stored.
	Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error)
	// RecordStep writes one step. The status that it returns is authoritative. CodeNotFound: no such delivery is stored.
	RecordStep(ctx context.Context, s webhook.Step) (webhook.DeliveryStatus, error)
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

// Admission decides when a request may be sent: *admission.Controller, or *fleet.Fleet.
type Admission interface {
	Prospects
	Acquire(ctx context.Context, r admission.Request) admission.Decision
	TryAcquire(r admission.Request) *admission.Permit
	Forget(endpoint webhook.EndpointID, delivery webhook.DeliveryID)
}

// Prospects tells what is likely to become of a request, before admission is asked.
type Prospects interface {
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

// process is what all attempts of a process share: what they use, and the bounds of how many there are.
type process struct {
	*reporter

	store     AttemptStore
	history   History
	targets   Targets
	fresh     Fresh
	sender    Sender
	admission Admission
	faults    Faults
	observer  Observer
	tracer    *tracing.Tracer
	claimant  string

	fastWait        time.Duration
	leastRetryDelay time.Duration
	maxHeld         time.Duration
	maxPayload      int // bytes

	executions  executions
	goroutines  *pool.Pool      // of attempts
	slowPlaces  *fair.Semaphore // of requests to slow receivers
	eagerPlaces *fair.Semaphore // of eager requests
	payloads    *fair.Semaphore // of running attempts, in steps of payloadStep
	base        context.Context //nolint:containedctx // of requests that outlive their activity; ended by Stop
	cancel      context.CancelFunc
	records     context.Context //nolint:containedctx // of the recording of outcomes; outlives base by lastRecords
	endRecords  context.CancelFunc
}
