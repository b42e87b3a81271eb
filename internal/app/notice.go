package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/dispatch"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// watch sees what becomes of deliveries and circuits, and does what follows from it: it
// counts endpoints' failures, disables those that only fail, warns of retry storms,
// writes operational events, and begins replays after an outage. It is told on the way of
// every attempt: there it only notes, and goroutines of its own do the rest.
//
// It is an activities.Observer.
type watch struct {
	*telemetry.Metrics

	store      *postgres.Store
	dispatcher *dispatch.Dispatcher
	gate       *admission.Controller
	log        *slog.Logger

	tally   tally
	storms  storms
	outage  outages
	queue   noticeQueue
	replays autoReplays

	end     context.CancelFunc
	running sync.WaitGroup
}

// watchPatience is how long a process that ends tries to write what has been noted.
const watchPatience = 2 * time.Second

func newWatch(store *postgres.Store, d *dispatch.Dispatcher, g *admission.Controller, m *telemetry.Metrics, log *slog.Logger) *watch {
	return &watch{
		Metrics: m, store: store, dispatcher: d, gate: g, log: log,
		tally: newTally(), storms: newStorms(), outage: newOutages(), queue: newNoticeQueue(), replays: newAutoReplays(),
	}
}

// start begins the work in the background; ctx is its life.
func (w *watch) start(ctx context.Context) {
	ctx, w.end = context.WithCancel(ctx)
	w.refreshTrouble(ctx)
	w.running.Go(func() { w.keepTally(ctx) })
	w.running.Go(func() { w.keepNotifying(ctx) })
	w.running.Go(func() { w.keepReplaying(ctx) })
}

// stop ends it, and writes what has been noted until ctx ends.
func (w *watch) stop(ctx context.Context) {
	w.end()
	w.running.Wait()
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	w.flushTally(ctx)
	if left := w.notifyAll(ctx); left > 0 {
		w.NoticesLost(left)
		w.log.WarnContext(ctx, "operational events were not stored: the process ends", "count", left)
	}
	if left := w.replayAll(ctx); left > 0 {
		w.log.WarnContext(ctx, "dead letters of outages are not replayed by themselves: the process ends", "endpoints", left)
	}
}

// Attempted implements activities.Observer.
func (w *watch) Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	w.Metrics.Attempted(ref, a, p)
	now := w.store.Now()
	if a.Outcome.Decision == retry.Delivered {
		w.tally.succeeded(ref.EndpointID, a.StartedAt.Add(a.Latency))
		if since, over := w.outage.delivered(ref.EndpointID); over {
			w.recovered(ref.EndpointID, now, since)
		}
	} else if t := troubleOf(ref, a, p); t.Failed() {
		w.tally.failed(t)
	}
	if webhook.IsOperational(ref.EventType) { // they never cause others
		return
	}
	if a.Number > 1 && w.storms.due(ref.EndpointID, now) {
		w.checkStorm(ref.EndpointID, now)
	}
	if endedWith(a, p) && p.State == webhook.StateDeadLettered {
		w.deadLettered(ref, p, now)
	}
}

// ended is told of a delivery that came to rest without an attempt.
func (w *watch) ended(ref webhook.Ref, p webhook.Progress) {
	if p.State != webhook.StateDeadLettered {
		return
	}
	now := w.store.Now()
	if p.Reason == string(retry.ReasonGiveUpTime) && p.RunAttempts > 0 { // else it was never tried, which is our doing
		w.tally.failed(postgres.Trouble{EndpointID: ref.EndpointID, Exhausted: 1, First: now, Last: now, Began: now})
	}
	if !webhook.IsOperational(ref.EventType) {
		w.deadLettered(ref, p, now)
	}
}

// endedWith reports whether it is this attempt that left the delivery where it stands.
func endedWith(a *webhook.Attempt, p webhook.Progress) bool {
	return !p.State.Open() && p.Run == a.Run && p.Attempts == a.Number
}

// troubleOf is what an attempt that did not deliver counts for: nothing, unless it was
// the last one, or the receiver is gone.
func troubleOf(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) postgres.Trouble {
	ended := a.StartedAt.Add(a.Latency)
	t := postgres.Trouble{EndpointID: ref.EndpointID, First: ended, Last: ended, Began: a.StartedAt, Reason: string(a.Outcome.Reason)}
	permanent := a.Outcome.Decision == retry.Permanent
	if permanent && a.Outcome.Status == http.StatusGone {
		t.Gone = a.StartedAt
	}
	if !endedWith(a, p) || p.State != webhook.StateDeadLettered {
		return t
	}
	switch reason := retry.Reason(p.Reason); {
	case permanent, reason == retry.ReasonAmbiguousLimit:
		t.Permanent = 1
	case reason == retry.ReasonMaxAttempts, reason == retry.ReasonGiveUpTime:
		t.Exhausted = 1
	}
	return t
}

// deadLettered notes that a delivery was given up.
func (w *watch) deadLettered(ref webhook.Ref, p webhook.Progress, now time.Time) {
	w.note(job{notice: webhook.Notice{
		Type: webhook.NoticeDeadLettered, TenantID: ref.TenantID, At: now,
		Delivery: &webhook.NoticeDelivery{
			ID: ref.DeliveryID, EventID: ref.EventID, EventType: ref.EventType, EndpointID: ref.EndpointID, Reason: p.Reason, Attempts: p.Attempts,
		},
		Summary: fmt.Sprintf("the delivery was given up after %s (%s); it can be replayed", plural(p.Attempts, "attempt"), p.Reason),
		Key:     fmt.Sprintf("%s/%s/%d", webhook.NoticeDeadLettered, ref.DeliveryID, p.Run),
	}})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// circuitChanged is told when an endpoint's circuit opens, is probed or closes.
func (w *watch) circuitChanged(c admission.CircuitChange) {
	switch {
	case c.To == admission.CircuitOpen && c.From == admission.CircuitClosed:
		w.outage.opened(c.Endpoint, c.At)
		w.note(job{endpoint: c.Endpoint, notice: webhook.Notice{
			Type: webhook.NoticeCircuitOpened, At: c.At,
			Summary: "the endpoint is given a rest: " + c.Why,
		}})
	case c.To == admission.CircuitClosed && c.From != admission.CircuitClosed:
		if since, over := w.outage.closed(c.Endpoint, c.At); over {
			w.recovered(c.Endpoint, c.At, since)
		}
	}
}

// recovered notes that an endpoint takes requests again, since its circuit opened, and
// that its dead letters may be replayed.
func (w *watch) recovered(id webhook.EndpointID, at, since time.Time) {
	w.replays.put(id, autoReplay{since: since})
	w.note(job{endpoint: id, notice: webhook.Notice{
		Type: webhook.NoticeRecovered, At: at,
		Summary: "the endpoint takes requests again, " + at.Sub(since).Round(time.Second).String() + " after it was given a rest",
	}})
}

// reset lets the gate forget what it has learnt of an endpoint that was changed. That
// its circuit closes with it says nothing of the receiver.
func (w *watch) reset(id webhook.EndpointID) {
	w.outage.resetting(id, func() { w.gate.Reset(id) })
}
