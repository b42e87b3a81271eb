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

// releaseWidth is how many endpoints are worked on at a time, so that one slow call delays few.
const releaseWidth = 8

// HeldStore releases held deliveries.
type HeldStore interface {
	// ReleaseHeld releases the oldest of an endpoint. The relay starts what the caller does not start.
	ReleaseHeld(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error)
	// ReleaseExpired releases deliveries that are to be given up.
	ReleaseExpired(ctx context.Context, limit int) ([]webhook.Start, error)
}

// Admission says how many held deliveries an endpoint can take.
type Admission interface {
	// Admits reports whether this process admits the requests to an endpoint. If not, another process does, and releases its
	// held deliveries.
	Admits(id webhook.EndpointID) bool
	// Releasable is how many held deliveries are to be released now.
	Releasable(id webhook.EndpointID) int
}

// Requests is what the release needs of the worker of this process.
type Requests interface {
	// CheckEndpoint finds out whether requests to an endpoint are possible again after an internal fault. Its
	// error is shown to users.
	CheckEndpoint(ctx context.Context, id webhook.EndpointID) error
}

// ReleaseConfig is what a release needs. All fields are required unless they say otherwise.
type ReleaseConfig struct {
	Engine    *engine.Engine
	Held      *HeldEndpoints
	Store     HeldStore
	Admission Admission
	Requests  Requests
	// TellHeld tells the process that admits the requests to an endpoint that it has held deliveries. May be nil.
	TellHeld func(webhook.EndpointID)
	Logger   *slog.Logger
}

// Release releases held deliveries of active endpoints, as many as admission can take.
//
// A round costs, for each endpoint on the list of HeldEndpoints that admission has room for, one transaction: by the index deliveries_backlog some
// ten blocks for each partition, and four for each row that it releases; and one read of what has expired, by deliveries_overdue, a few blocks
// for each partition. Up to eight endpoints are worked on at a time. An endpoint leaves the list when nothing of it is left.
type Release struct {
	engine    *engine.Engine
	held      *HeldEndpoints
	store     HeldStore
	admission Admission
	requests  Requests
	tellHeld  func(webhook.EndpointID)
	log       *slog.Logger
}

// NewRelease returns a release that does not run.
func NewRelease(c ReleaseConfig) *Release {
	return &Release{
		engine: c.Engine, held: c.Held, store: c.Store, admission: c.Admission, requests: c.Requests, tellHeld: c.TellHeld, log: c.Logger,
	}
}

// Run releases every second until ctx ends.
func (r *Release) Run(ctx context.Context) {
	everyTick(ctx, releaseEvery, func() {
		_, _ = r.runOnce(ctx) // the error is logged, and the next round tries again
	})
}

// released is how many deliveries one round has released.
type released struct{ held, expired int }

// runOnce releases what is due of each endpoint on the list, and what has expired. The error is that of the store.
func (r *Release) runOnce(ctx context.Context) (done released, err error) {
	held, err := r.releaseDue(ctx)
	expired, failed := r.releaseExpired(ctx)
	return released{held, expired}, errors.Join(err, failed)
}

// releaseDue releases held deliveries of all endpoints that are due. It ends when Temporal goes down:
// the relay would start all that is released then at once later.
func (r *Release) releaseDue(ctx context.Context) (n int, err error) {
	var mu sync.Mutex
	engine.ForEach(releaseWidth, r.held.due(time.Now()), func(endpoint webhook.EndpointID) {
		if !r.engine.Health.Up() || ctx.Err() != nil {
			return
		}
		some, failed := r.releaseOf(ctx, endpoint)
		mu.Lock()
		defer mu.Unlock()
		n, err = n+some, errors.Join(err, failed)
	})
	return n, err
}

// releaseOf releases some of an endpoint's held deliveries. After an internal fault it checks first:
// what a request needs, and then one delivery, because there are faults that only a request meets.
// Then twice as many go each time. If admission permits none now, a successful check ends the
// fault, so that new deliveries are not held.
func (r *Release) releaseOf(ctx context.Context, endpoint webhook.EndpointID) (n int, err error) {
	now := time.Now()
	limit, check := r.held.allowed(endpoint)
	if check {
		if err := r.checkEndpoint(ctx, endpoint); err != nil {
			r.held.checkFailed(endpoint, err, now)
			return 0, nil
		}
	}
	room := min(r.admission.Releasable(endpoint)-r.held.underWay(endpoint, now), limit)
	switch {
	case room > 0:
		return r.releaseSome(ctx, endpoint, room, now)
	case !r.admission.Admits(endpoint):
		r.held.released(endpoint, 0, false, now) // no longer of interest here
		if check && r.tellHeld != nil {          // this process has held them
			r.tellHeld(endpoint)
		}
	case check:
		r.held.checkSucceeded(endpoint, now)
	}
	return 0, nil
}

// releaseSome releases up to limit held deliveries of an endpoint. now is when their number was asked for.
func (r *Release) releaseSome(ctx context.Context, endpoint webhook.EndpointID, limit int, now time.Time) (n int, err error) {
	lasting, cancel := engine.Outlive(ctx, readTimeout)
	defer cancel()
	starts, err := r.store.ReleaseHeld(lasting, endpoint, limit)
	if err != nil {
		if ctx.Err() == nil {
			again := r.held.failed(endpoint, time.Now())
			r.log.WarnContext(ctx, "held deliveries of an endpoint cannot be released", "endpoint", endpoint, "error", err, "again_in", again)
		}
		return 0, err
	}
	// Before the starts: one of them may meet the fault again.
	if r.held.released(endpoint, len(starts), len(starts) == limit, now) {
		r.log.InfoContext(ctx, "an endpoint can be sent to again; its held deliveries are being released", "endpoint", endpoint)
	}
	r.engine.Starts.Assigned(starts)
	return len(starts), nil
}

// checkEndpoint finds out whether all that a request to an endpoint needs is there.
func (r *Release) checkEndpoint(ctx context.Context, endpoint webhook.EndpointID) error {
	lasting, cancel := engine.Outlive(ctx, readTimeout)
	defer cancel()
	return r.requests.CheckEndpoint(lasting, endpoint)
}

// releaseExpired starts held deliveries that are to be given up.
func (r *Release) releaseExpired(ctx context.Context) (n int, err error) {
	for r.engine.Health.Up() && ctx.Err() == nil {
		starts, err := readBatch(ctx, r.log, r.store.ReleaseExpired)
		if err != nil {
			return n, err
		}
		r.engine.Starts.Assigned(starts)
		n += len(starts)
		if len(starts) < batchSize {
			break
		}
	}
	return n, nil
}
