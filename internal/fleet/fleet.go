// Package fleet makes the limits of endpoints apply across several processes: for each endpoint one process decides when requests
// are sent, and the others ask it.
//
// An endpoint belongs to a lane. Each lane has one owner, by a lease in PostgreSQL, whose admission.Controller admits the requests
// to the endpoints in it. New deliveries are forwarded to the owner, which sends them. A process that runs the workflow of a delivery in
// another one's lane asks the owner for a permit, sends the request, and reports the result to the owner.
//
// A process that sends nothing, an API, owns no lanes.
//
// An owner admits requests until
//
//	renewalStarted + leaseTime
//
// of its last successful renewal. The lease in the database ends 2 s more than leaseTime after the transaction that renewed it began,
// which is after renewalStarted. So an owner stops at least 2 s before another process may take its lanes, however long the renewal took.
//
//	strangers, peers  connections to other processes, and how they know each other
//	permits, grants   the permits that this process has, and those that it has granted to others
//	transfer          what a lane's owner gives to the next one
//	leases, reach     keeps the leases, takes lanes over, and finds out which processes have ended or do not reach each other
//	forward           new deliveries, from the process that has stored them to the owner, which starts them
//	admission         what a process calls: asks its own controller, or the owner
//	serve             what other processes call: a Server is made after what starts the deliveries that they forward
//
// See docs/adr/0025.
package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// renewEvery is how often the leases are renewed.
	renewEvery = time.Second
	// leaseTime is for how long after the start of a successful renewal this process admits requests: see the package's comment.
	leaseTime = 6 * time.Second
	// usableTime is how long after it was asked for a permit may be used.
	usableTime = 5 * time.Second
	// leavePatience is how long Leave waits.
	leavePatience = 3 * time.Second
	// overtime is how much longer than its timeout a request may be under way.
	overtime = time.Second
	// knownForecasts is for how many endpoints of other owners the forecast is kept.
	knownForecasts = 10_000
)

// Store has the leases.
type Store interface { //nolint:interfacebloat // five steps in the life of a process
	// Renew notes that a process runs, releases some of its lanes, renews its other leases, and takes lanes without an owner.
	Renew(ctx context.Context, self webhook.Process, release []int) (webhook.Fleet, error)
	// Register notes that a process runs which owns no lanes.
	Register(ctx context.Context, self webhook.Process) (webhook.Fleet, error)
	// Owners returns the processes that may own lanes and were seen lately.
	Owners(ctx context.Context) ([]webhook.Process, error)
	// Leave removes this process. Its leases end at once.
	Leave(ctx context.Context, id string) error
	// Evict removes another process that has ended, unless it was seen lately.
	Evict(ctx context.Context, id string) (evicted bool, err error)
}

// Config configures a Fleet.
type Config struct {
	Store      Store
	Controller *admission.Controller // for the lanes of this process; nil if it owns none, as Listener
	ID         string                // of this process; unique among all that ever ran
	Listener   net.Listener          // for the other processes; the fleet closes it
	Address    string                // where they reach it; "" if it owns no lanes
	Machine    string                // see webhook.Process
	Logger     *slog.Logger
}

// Fleet is this process among those that share the limits of endpoints. Start it once, and Leave and Stop it once.
type Fleet struct {
	// PermitsAsked counts the permits that this process has asked other processes for.
	PermitsAsked atomic.Uint64

	store      Store
	controller *admission.Controller // nil in a process that owns no lanes, as listener
	self       webhook.Process
	identity   tls.Certificate
	listener   net.Listener
	log        *slog.Logger
	forecasts  *forecasts

	life     context.Context //nolint:containedctx // of all goroutines; ended by Stop
	end      context.CancelFunc
	work     sync.WaitGroup
	renewNow chan struct{} // asks the goroutine of the leases for a renewal at once
	lastID   atomic.Uint64 // of the permits that this process has asked for

	mu    sync.Mutex // guards all below
	lanes [webhook.Lanes]lane

	// Written by each renewal.
	peers          map[string]*peer    // that may own lanes, by the ids of their processes
	callers        map[[32]byte]string // ids of processes that own no lanes, by the hashes of their certificates
	renewalStarted time.Time           // the last successful one
	renewalEnded   time.Time
	share          int // lanes that a process should own at most

	// Written as permits come and go, and when lanes change their owner.
	obtained map[uint64]obtainedPermit  // from other processes
	granted  map[grantID]*grantedPermit // to other processes
	released map[int]releasedLane       // whose next owner has not asked yet
}

// New makes a Fleet.
func New(c Config) (*Fleet, error) {
	identity, fingerprint, err := newIdentity()
	if err != nil {
		return nil, fmt.Errorf("make a certificate for other processes: %w", err)
	}
	f := &Fleet{
		store: c.Store, controller: c.Controller, identity: identity, listener: c.Listener, log: c.Logger, forecasts: newForecasts(),
		self:     webhook.Process{ID: c.ID, Address: c.Address, Certificate: fingerprint, Machine: c.Machine},
		renewNow: make(chan struct{}, 1),
		peers:    map[string]*peer{}, obtained: map[uint64]obtainedPermit{}, granted: map[grantID]*grantedPermit{}, released: map[int]releasedLane{},
	}
	f.life, f.end = context.WithCancel(context.Background())
	return f, nil
}

// ownsLanes reports whether this process may own lanes: an API does not.
func (f *Fleet) ownsLanes() bool { return f.listener != nil }

// Start takes this process's share of the lanes; its Server listens already. It waits until ctx ends for the first
// renewal, and goes on trying after that. The error is that this process cannot be reached at its address, by itself or by another process
// that runs; Stop is to be called then, too.
func (f *Fleet) Start(ctx context.Context) error {
	if f.ownsLanes() {
		if err := (leases{f}).awaitReachable(ctx); err != nil {
			return err
		}
		conn, err := (&peer{process: f.self, fleet: f}).dial(ctx)
		if err != nil {
			return fmt.Errorf("EVERPOST_LANE_ADDRESS: this one does not reach itself there: %w", err)
		}
		_ = conn.Close()
	}
	first := make(chan struct{})
	f.work.Go(func() { leases{f}.keepLeases(first) }) //nolint:contextcheck // outlives the context of Start
	select {
	case <-first:
	case <-ctx.Done():
	}
	return nil
}

// Leave gives all lanes up, and waits up to leavePatience until the other processes have taken them. They admit the requests from
// then on, those of this process, too.
func (f *Fleet) Leave(ctx context.Context) {
	f.mu.Lock()
	f.self.Leaving = true
	f.mu.Unlock()
	f.renewSoon()
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	for waiting := true; waiting && !f.transferred(); {
		waiting = pause(ctx, retryPause)
	}
	pause(ctx, retryPause) // for the last answer to be written
}

// transferred reports whether the next owners of all released lanes have asked for their states, or no other process can take them.
func (f *Fleet) transferred() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lanes {
		if f.lanes[i].own {
			return false
		}
	}
	for _, p := range f.peers {
		if !p.leaving {
			return len(f.released) == 0
		}
	}
	return true
}

// Stop ends everything. No request may be under way any more.
func (f *Fleet) Stop(ctx context.Context) {
	f.end()
	if f.ownsLanes() {
		_ = f.listener.Close()
	}
	for _, p := range f.otherProcesses() {
		p.close()
	}
	f.work.Wait()
	if !f.ownsLanes() {
		return // it has no leases, and its row is removed a minute later
	}
	if err := f.store.Leave(ctx, f.self.ID); err != nil {
		f.log.WarnContext(ctx, "the leases of this process were not released; they end by themselves", "error", err)
	}
}

// Owned is how many lanes this process owns.
func (f *Fleet) Owned() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lanes {
		if f.lanes[i].own {
			n++
		}
	}
	return n
}

// Processes is how many processes share the limits.
func (f *Fleet) Processes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ownsLanes() {
		return len(f.peers)
	}
	return len(f.peers) + 1
}

// renewSoon asks for a renewal at once.
func (f *Fleet) renewSoon() {
	select {
	case f.renewNow <- struct{}{}:
	default: // it is asked for
	}
}
