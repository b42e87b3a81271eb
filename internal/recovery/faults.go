package recovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// checkEvery is how often endpoints with an internal fault are looked at. firstCheck is how long after a fault its endpoint is checked. The
	// pause doubles up to lastCheck.
	checkEvery            = time.Second
	firstCheck, lastCheck = time.Second, time.Minute
	// checkWidth is how many endpoints are checked at a time, and checksPerRound how many in a round. checkTimeout bounds one check: a key service
	// that hangs takes a round no longer than 24 s.
	checkWidth, checksPerRound = 8, 64
	checkTimeout               = 3 * time.Second
	// faultMemory is how long an endpoint counts as faulty after a check that succeeded: some faults are met by a request only.
	faultMemory = lastCheck
	// maxFaulty bounds the endpoints whose faults are kept in memory. The deliveries of the others are held one by one.
	maxFaulty = 20_000
)

// Requests is what the checks need of the worker of this process.
type Requests interface {
	// CheckEndpoint finds out whether requests to an endpoint are possible again after an internal fault. Its
	// error is shown to users.
	CheckEndpoint(ctx context.Context, id webhook.EndpointID) error
}

// Faults are the internal faults that keep this process from sending to endpoints. While one is known, deliveries are held without an attempt.
type Faults struct {
	log *slog.Logger

	mu   sync.Mutex
	byID map[webhook.EndpointID]*fault
}

// NewFaults returns a list without faults.
func NewFaults(log *slog.Logger) *Faults { return &Faults{log: log} }

// fault is an internal fault that keeps an endpoint from being sent to.
type fault struct {
	what    string // for users
	active  bool   // deliveries are held until a check succeeds
	ended   time.Time
	pause   time.Duration // before the next check
	checkAt time.Time
}

// Faulted implements activities.Faults.
func (f *Faults) Faulted(endpoint webhook.EndpointID, what string) {
	if f.faulted(endpoint, what, time.Now()) {
		f.log.Warn("an internal fault prevents requests to an endpoint; its deliveries are held until a check succeeds", "endpoint", endpoint, "error", what)
	}
}

// faulted notes a fault. It reports the first one of an endpoint.
func (f *Faults) faulted(id webhook.EndpointID, what string, now time.Time) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.byID[id]
	switch {
	case known == nil && len(f.byID) >= maxFaulty:
		return false
	case known == nil:
		if f.byID == nil {
			f.byID = map[webhook.EndpointID]*fault{}
		}
		known = &fault{}
		f.byID[id] = known
		first = true
	case known.active: // met by another attempt that was under way
		return false
	}
	known.what = what
	known.activate(now)
	return first
}

// FaultOf returns the fault of an endpoint until a check succeeds. It implements activities.Faults.
func (f *Faults) FaultOf(id webhook.EndpointID) (what string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if it := f.byID[id]; it != nil && it.active {
		return it.what, true
	}
	return "", false
}

// IsFaulty reports an endpoint that has a fault, or had one a moment ago.
func (f *Faults) IsFaulty(id webhook.EndpointID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byID[id] != nil
}

// EndpointChanged says that an endpoint was changed: its next check does not wait.
func (f *Faults) EndpointChanged(id webhook.EndpointID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if it := f.byID[id]; it != nil {
		it.pause, it.checkAt = 0, time.Time{}
	}
}

// due returns up to limit endpoints to check, in no order, and forgets faults that ended a while ago.
func (f *Faults) due(now time.Time, limit int) (ids []webhook.EndpointID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, it := range f.byID {
		switch {
		case !it.active && now.Sub(it.ended) >= faultMemory:
			delete(f.byID, id)
		case it.active && !it.checkAt.After(now) && len(ids) < limit:
			ids = append(ids, id)
		}
	}
	return ids
}

// checked notes the result of a check. It reports that a fault has ended.
func (f *Faults) checked(id webhook.EndpointID, err error, now time.Time) (ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.byID[id]
	if it == nil || !it.active {
		return false
	}
	if err != nil {
		it.what = err.Error()
		it.activate(now)
		return false
	}
	it.active, it.ended = false, now
	return true
}

// activate puts the next check off.
func (f *fault) activate(now time.Time) {
	f.pause = min(max(2*f.pause, firstCheck), lastCheck)
	f.active, f.checkAt = true, now.Add(f.pause)
}

// Checks checks the endpoints with internal faults.
//
// A round checks up to 64 of those that are due, 8 at a time, each for 3 s at most; it reads nothing of the store but what a check needs. It is
// apart from the release: whatever a check waits for, no other endpoint's deliveries wait for it.
type Checks struct {
	faults   *Faults
	requests Requests
	log      *slog.Logger
}

// NewChecks returns checks that do not run.
func NewChecks(faults *Faults, requests Requests, log *slog.Logger) *Checks {
	return &Checks{faults: faults, requests: requests, log: log}
}

// Run checks every second until ctx ends.
func (c *Checks) Run(ctx context.Context) {
	everyTick(ctx, checkEvery, func() { _, _ = c.runOnce(ctx) }) // what a check has met is in the faults
}

// runOnce checks what is due, and returns how many faults have ended. The error is that of the checks.
func (c *Checks) runOnce(ctx context.Context) (ended int, err error) {
	var mu sync.Mutex
	engine.ForEach(checkWidth, c.faults.due(time.Now(), checksPerRound), func(id webhook.EndpointID) {
		if ctx.Err() != nil {
			return
		}
		lasting, cancel := engine.Outlive(ctx, checkTimeout)
		defer cancel()
		failed := c.requests.CheckEndpoint(lasting, id)
		mu.Lock()
		defer mu.Unlock()
		err = errors.Join(err, failed)
		if c.faults.checked(id, failed, time.Now()) {
			ended++
			c.log.InfoContext(ctx, "an endpoint can be sent to again", "endpoint", id)
		}
	})
	return ended, err
}
