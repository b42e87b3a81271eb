package activities

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/pool"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// Store keeps the deliveries. See docs/adr/0003.
type Store interface {
	AttemptStore
	DeadLetterStore
}

// Config configures Activities.
type Config struct {
	Store       Store
	History     History
	Targets     Targets
	Fresh       Fresh
	Sender      Sender
	Admission   Admission // defaults to a controller with default limits
	DeadLetters DeadLetterStarter
	Faults      Faults // nil: none is remembered
	Replays     ReplayStore
	Audit       Audit
	Tenants     TenantErasure
	Observer    Observer        // may be nil
	Tracer      *tracing.Tracer // makes a span of each attempt; may be nil

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
	// MaxHeld is for how long the clock of a held delivery may stand still in a run, see webhook.Progress. Defaults to 30 days.
	MaxHeld time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Activities has the activities of a worker, by what they are about, and what the intake and the recovery use beside them.
type Activities struct {
	Attempts        *Attempts
	Steps           *Steps
	DeadLetters     *DeadLetters
	Replays         *Replays
	RefusedSignals  *RefusedSignals
	TenantDeletions *TenantDeletions

	Eager  *EagerRequests  // of the intake
	Checks *EndpointChecks // of the recovery
}

// New returns the activities. Call Stop of its Attempts when the worker has stopped.
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
	if c.MaxHeld == 0 {
		c.MaxHeld = 30 * 24 * time.Hour
	}
	if c.KeepDeadLetters == 0 {
		c.KeepDeadLetters = 30 * 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	report := &reporter{log: c.Logger, now: c.Now}
	p := newProcess(c, report)
	return &Activities{
		Attempts:        &Attempts{p},
		Steps:           &Steps{p},
		DeadLetters:     &DeadLetters{reporter: report, store: c.Store, starter: c.DeadLetters, keepFor: c.KeepDeadLetters},
		Replays:         &Replays{report, c.Replays},
		RefusedSignals:  &RefusedSignals{report, c.Audit},
		TenantDeletions: &TenantDeletions{c.Tenants},
		Eager:           &EagerRequests{p},
		Checks:          &EndpointChecks{report, c.Targets},
	}
}

// newProcess makes what the attempts share, of a config with its defaults.
func newProcess(c Config, report *reporter) *process {
	p := &process{
		reporter: report,
		store:    c.Store, history: c.History, targets: c.Targets, fresh: c.Fresh, sender: c.Sender, admission: c.Admission, faults: c.Faults,
		observer: c.Observer, tracer: c.Tracer, claimant: c.Claimant,
		fastWait: c.FastWait, leastRetryDelay: c.LeastRetryDelay, maxHeld: c.MaxHeld, maxPayload: c.MaxPayload,
		executions: newExecutions(c.MaxRunning, rememberedExecutions), goroutines: pool.New(keptGoroutines),
		slowPlaces: fair.NewDynamic(max(c.MaxRunning/2, 1), 1), eagerPlaces: fair.NewDynamic(maxEager, 1), payloads: newPayloadRooms(),
	}
	p.base, p.cancel = context.WithCancel(context.Background())
	p.records, p.endRecords = context.WithCancel(context.Background())
	return p
}

// noObserver counts nothing.
type noObserver struct{}

func (noObserver) Attempted(webhook.Ref, *webhook.Attempt, webhook.Progress)     {}
func (noObserver) Counted(webhook.Ref, *webhook.Attempt, webhook.Progress, bool) {}
func (noObserver) Deferred(string)                                               {}
func (noObserver) InternalFault(error)                                           {}
