package monitor

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// gatherFor is how long failures are gathered before they are stored.
	gatherFor = 100 * time.Millisecond
	// refreshEvery is how often the failures that other processes have stored are read.
	refreshEvery = 2 * time.Second
	// failureBatch is how many endpoints one transaction counts.
	failureBatch = 200
	// failureTimeout bounds one read or write.
	failureTimeout = 15 * time.Second
)

// Failures stores the failures of endpoints.
type Failures interface {
	// CountFailures adds what this process has seen and returns those of the endpoints that have stored failures then.
	CountFailures(ctx context.Context, seen []webhook.EndpointFailures) ([]webhook.FailingEndpoint, error)
	// FailingEndpoints are all active endpoints that have stored failures.
	FailingEndpoints(ctx context.Context) ([]webhook.FailingEndpoint, error)
	// DisableFailing disables an endpoint if its failures are still enough for that. It returns the reason, or "" if it
	// has not disabled the endpoint.
	DisableFailing(ctx context.Context, tenantID string, id webhook.EndpointID) (why string, err error)
}

// failuresOf is what an attempt that did not deliver counts for: nothing, unless it ended the delivery or was answered 410.
func failuresOf(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) webhook.EndpointFailures {
	ended := a.StartedAt.Add(a.Latency)
	f := webhook.EndpointFailures{EndpointID: ref.EndpointID, First: ended, Last: ended, Began: a.StartedAt, Reason: string(a.Outcome.Reason)}
	permanent := a.Outcome.Decision == retry.Permanent
	if permanent && a.Outcome.Status == http.StatusGone {
		f.Gone = a.StartedAt
	}
	if !endedDelivery(a, p) || p.State != webhook.StateDeadLettered {
		return f
	}
	switch reason := retry.Reason(p.Reason); {
	case permanent, reason == retry.ReasonAmbiguousLimit:
		f.Permanent = 1
	case reason == retry.ReasonMaxAttempts, reason == retry.ReasonGiveUpTime, reason == retry.ReasonRetryAfterPastGiveUp:
		f.Exhausted = 1
	}
	return f
}

// endedDelivery reports whether the attempt is the one that ended the delivery.
func endedDelivery(a *webhook.Attempt, p webhook.Progress) bool {
	return !p.State.Open() && p.Run == a.Run && p.Attempts == a.Number
}

// failureRecorder stores the failures that a counter gathers and disables endpoints that have enough of them.
type failureRecorder struct {
	store     Failures
	endpoints Endpoints
	metrics   Metrics
	log       *slog.Logger
	now       func() time.Time
	counter   *counter
}

// run stores what is gathered, and reads what other processes have stored, until ctx ends.
func (r *failureRecorder) run(ctx context.Context) {
	tick := time.Tick(refreshEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			r.refresh(ctx)
			r.flush(ctx) // what could not be stored before
			continue
		case <-r.counter.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gatherFor):
		}
		r.flush(ctx)
	}
}

// refresh reads all stored failures. It also disables the endpoints that have enough of them: the process that was about
// to do so may have ended.
func (r *failureRecorder) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, failureTimeout)
	defer cancel()
	failing, err := r.store.FailingEndpoints(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "failing endpoints cannot be read; trying again", "error", err)
		}
		return
	}
	r.counter.loaded(failing, r.now())
	r.disable(ctx, failing)
}

// flush stores what is gathered. What cannot be stored is kept for the next time.
func (r *failureRecorder) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, failureTimeout)
	defer cancel()
	seen := r.ofActive(ctx, r.counter.take())
	for len(seen) > 0 {
		part := seen[:min(len(seen), failureBatch)]
		failing, err := r.store.CountFailures(ctx, part)
		if err != nil {
			r.counter.restore(seen) // the next failure, or the next refresh, stores it
			r.log.WarnContext(ctx, "failures of endpoints cannot be stored; trying again", "error", err)
			return
		}
		r.counter.stored(part, failing)
		r.disable(ctx, failing)
		seen = seen[len(part):]
	}
}

// ofActive leaves out endpoints that are no longer active. Thousands of requests to an endpoint may still fail after it
// was disabled.
func (r *failureRecorder) ofActive(ctx context.Context, seen []webhook.EndpointFailures) []webhook.EndpointFailures {
	active := seen[:0]
	for _, f := range seen {
		target, err := r.endpoints.Target(ctx, f.EndpointID)
		deleted := webhook.CodeOf(err) == webhook.CodeNotFound
		if deleted || err == nil && target.State != webhook.EndpointActive {
			continue
		}
		active = append(active, f)
	}
	return active
}

// disable disables the endpoints whose stored failures are enough.
func (r *failureRecorder) disable(ctx context.Context, failing []webhook.FailingEndpoint) {
	for _, e := range failing {
		if !e.Disable {
			continue
		}
		why, err := r.store.DisableFailing(ctx, e.TenantID, e.EndpointID)
		switch {
		case webhook.CodeOf(err) == webhook.CodeNotFound: // deleted meanwhile
		case err != nil:
			r.log.WarnContext(ctx, "a failing endpoint cannot be disabled; trying again", "endpoint", e.EndpointID, "error", err)
		case why != "":
			r.metrics.Disabled()
			r.log.WarnContext(ctx, "an endpoint was disabled", "endpoint", e.EndpointID, "why", why)
		}
	}
}
