package monitor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// eventRetryAfter is the pause before operational events are tried again while PostgreSQL is away.
	eventRetryAfter = time.Second
	// eventTimeout bounds the storing of one batch.
	eventTimeout = 20 * time.Second
	// reserveTimeout bounds how long stored events wait for room in the queue of starts.
	reserveTimeout = 50 * time.Millisecond
)

// Events stores operational events.
type Events interface {
	// Listens reports whether an endpoint subscribes to operational events of this type about the tenant.
	Listens(ctx context.Context, tenantID, eventType string) (bool, error)
	// Notify stores events for the tenants that subscribe to them and returns what it stored, also with an error. It does not
	// store an event again whose key is known.
	Notify(ctx context.Context, events []webhook.OperationalEvent) ([]webhook.Accepted, error)
}

// eventWriter stores operational events and has their deliveries started.
type eventWriter struct {
	store     Events
	endpoints Endpoints
	starter   Starter
	metrics   Metrics
	log       *slog.Logger
	now       func() time.Time // the database's clock
	queue     *eventQueue
}

// run stores what is in the queue, until ctx ends.
func (w *eventWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.queue.wake:
		}
		for w.writeAll(ctx) > 0 { // PostgreSQL is away
			select {
			case <-ctx.Done():
				return
			case <-time.After(eventRetryAfter):
			}
		}
	}
}

// writeAll stores what is in the queue and returns how many events are left because PostgreSQL is away.
func (w *eventWriter) writeAll(ctx context.Context) (left int) {
	for {
		events := w.queue.first()
		if len(events) == 0 {
			return 0
		}
		if !w.write(ctx, events) {
			return w.queue.remove(0)
		}
		w.queue.remove(len(events))
	}
}

// write stores events together, or one by one when one of them is refused. False: they are to be tried again.
func (w *eventWriter) write(ctx context.Context, events []pendingEvent) bool {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	err := w.insert(ctx, events)
	if err == nil {
		return true
	}
	if ctx.Err() != nil || temporary(err) {
		w.log.WarnContext(ctx, "operational events cannot be stored; trying again", "waiting", len(events), "error", err)
		return false
	}
	for i := range events {
		err := w.insert(ctx, events[i:i+1])
		if err != nil && (ctx.Err() != nil || temporary(err)) {
			return false // what was stored is known by its key
		}
		if err != nil {
			w.metrics.OperationalEventsDropped(1)
			w.log.WarnContext(ctx, "an operational event was refused", "type", events[i].event.Type, "error", err)
		}
	}
	return true
}

// temporary reports an error that may not occur again. Of several, one is enough: what was stored for other tenants is
// known by its key.
func temporary(err error) bool {
	code := webhook.CodeOf(err)
	if code == webhook.CodeUnavailable || code == webhook.CodeConflict || code == webhook.CodeRateLimited {
		return true
	}
	several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	return ok && slices.ContainsFunc(several.Unwrap(), temporary)
}

// insert stores the events to which an endpoint subscribes, and has their deliveries started.
func (w *eventWriter) insert(ctx context.Context, pending []pendingEvent) error {
	events := make([]webhook.OperationalEvent, 0, len(pending))
	for i := range pending {
		e, wanted, err := w.complete(ctx, &pending[i])
		if err != nil {
			return err
		}
		if wanted {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil
	}
	stored, err := w.store.Notify(ctx, events)
	for i := range stored {
		w.metrics.OperationalEventStored(stored[i].Event.Type)
	}
	for batch := range slices.Chunk(stored, webhook.MaxBatchEvents) {
		w.start(ctx, batch)
	}
	return err
}

// start has the deliveries of stored events started. When there is no room they are left to the relay: the events that
// users post come first.
func (w *eventWriter) start(ctx context.Context, stored []webhook.Accepted) {
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	release, err := w.starter.ReserveRoom(ctx, stored[0].Event.TenantID, len(stored))
	if err != nil {
		return
	}
	defer release()
	w.starter.Accepted(stored...)
}

// complete fills in the tenant and the endpoint of an event; false when no endpoint subscribes to the event.
func (w *eventWriter) complete(ctx context.Context, p *pendingEvent) (e webhook.OperationalEvent, wanted bool, err error) {
	e = p.event
	e.At = ByClock(w.now, e.At)
	if !p.endpoint.IsZero() {
		target, err := w.endpoints.Target(ctx, p.endpoint)
		if webhook.CodeOf(err) == webhook.CodeNotFound { // deleted meanwhile
			return e, false, nil
		}
		if err != nil || target.OperationalOnly() { // operational events never cause others
			return e, false, err
		}
		e.TenantID, e.Endpoint = target.TenantID, &target.Endpoint
	}
	wanted, err = w.store.Listens(ctx, e.TenantID, e.Type)
	return e, wanted, err
}
