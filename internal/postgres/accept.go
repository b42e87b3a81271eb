package postgres

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// relayAfter is when the relay takes up what nobody has begun: longer than the
	// life of a token, a start's timeout and a workflow task's timeout together.
	relayAfter = 15 * time.Second

	matchRounds = 5 // repetitions of a match against endpoints that changed meanwhile
)

// intake is one event on its way into the store, with what its flush found out.
type intake struct {
	event    webhook.NewEvent
	id       webhook.EventID
	created  time.Time
	version  int64 // of the tenant's endpoints that the match was made with
	starts   []webhook.Start
	reason   string
	keys     []intakeKey
	sum      [sha256.Size]byte
	stale    bool            // result: the endpoints changed, match again
	unknown  bool            // result: there is no such tenant
	earlier  webhook.EventID // result: an earlier request's event has one of the keys
	mismatch bool            // result: … and its body was another one
}

// Accept stores an event and its deliveries. When it returns without an error,
// all of it is committed.
//
// Errors: CodeNotFound (no such tenant), CodeInvalid (an unknown endpoint id),
// CodeMismatch (a key came back with another body), CodeConflict (a request with
// the same key is under way), CodeUnavailable.
func (s *Store) Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	in := &intake{event: e, sum: sha256.Sum256(e.Payload)}
	if e.ExternalID != "" {
		in.keys = append(in.keys, intakeKey{keyExternalID, e.ExternalID})
	}
	if e.IdempotencyKey != "" {
		in.keys = append(in.keys, intakeKey{keyIdempotency, e.IdempotencyKey})
	}
	if !s.inFlight.enter(e.TenantID, in.keys) {
		return webhook.Accepted{}, &webhook.Error{
			Code: webhook.CodeConflict, Message: "a request with the same key is under way; repeat it to get its answer", RetryAfter: time.Second,
		}
	}
	// A client that left does not take its item out of the queue: its keys stay under
	// way until that is settled.
	leave := func() { s.inFlight.leave(e.TenantID, in.keys) }
	left := false
	defer func() {
		if !left {
			leave()
		}
	}()

	for range matchRounds {
		if err := s.match(ctx, in); err != nil {
			return webhook.Accepted{}, err
		}
		var err error
		if left, err = s.ingest.doUntilSettled(ctx, in, leave); err != nil {
			return webhook.Accepted{}, err
		}
		switch {
		case in.unknown:
			return webhook.Accepted{}, webhook.NotFound("tenant")
		case !in.earlier.IsZero():
			again, err := s.acceptedBefore(ctx, in)
			if webhook.CodeOf(err) != webhook.CodeNotFound {
				return again, err
			}
			// Retention has removed that event: its keys are free.
			if err := s.freeKeys(ctx, in); err != nil {
				return webhook.Accepted{}, err
			}
		case in.stale:
			s.endpointCache.ForgetTenant(e.TenantID)
		default:
			return webhook.Accepted{Event: in.stored(), Deliveries: in.starts, Payload: in.event.Payload}, nil
		}
	}
	return webhook.Accepted{}, &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "the tenant's endpoints are changing too fast", RetryAfter: time.Second,
	}
}

// match gives the event its id and finds the endpoints it goes to.
func (s *Store) match(ctx context.Context, in *intake) error {
	endpoints, version, err := s.endpointCache.OfTenant(ctx, in.event.TenantID)
	if err != nil {
		return err
	}
	in.id = webhook.NewEventID()
	in.created = time.Now().UTC().Truncate(time.Microsecond)
	in.version, in.reason, in.starts = version, "", nil
	in.stale, in.unknown, in.mismatch, in.earlier = false, false, false, webhook.EventID{}

	if in.event.EndpointIDs != nil {
		return in.matchNamed(endpoints)
	}
	for i := range endpoints {
		if endpoints[i].Wants(in.event.Type) {
			in.add(&endpoints[i])
		}
	}
	if len(in.starts) == 0 {
		in.reason = webhook.ReasonNoMatch
	}
	return nil
}

func (in *intake) matchNamed(endpoints []webhook.Endpoint) error {
	for _, id := range in.event.EndpointIDs {
		i := slices.IndexFunc(endpoints, func(e webhook.Endpoint) bool { return e.ID == id })
		if i < 0 {
			return webhook.Invalid("endpoint_ids", "names an endpoint that does not exist: "+id.String())
		}
		in.add(&endpoints[i])
	}
	return nil
}

func (in *intake) add(e *webhook.Endpoint) {
	from := in.created
	if in.event.DeliverAt.After(from) {
		from = in.event.DeliverAt
	}
	in.starts = append(in.starts, webhook.Start{
		Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(in.id, e.ID), EventID: in.id, EndpointID: e.ID,
			TenantID: in.event.TenantID, EventType: in.event.Type,
		},
		Run: 1, CreatedAt: in.created, NotBefore: in.event.DeliverAt,
		GiveUpAt: from.Add(e.RetryPolicy.GiveUpAfter).Truncate(time.Microsecond),
	})
}

func (in *intake) stored() webhook.Event {
	e := webhook.Event{
		ID: in.id, TenantID: in.event.TenantID, Type: in.event.Type, ExternalID: in.event.ExternalID,
		CreatedAt: in.created, DeliverAt: in.event.DeliverAt, PayloadSize: len(in.event.Payload), Reason: in.reason,
	}
	for _, start := range in.starts {
		e.EndpointIDs = append(e.EndpointIDs, start.EndpointID)
	}
	return e
}

// acceptedBefore is the answer that the first request with the same key got;
// CodeMismatch when its body was another one, CodeNotFound when its event is gone.
func (s *Store) acceptedBefore(ctx context.Context, in *intake) (webhook.Accepted, error) {
	tenantID := in.event.TenantID
	e, err := s.event(ctx, tenantID, in.earlier)
	if err != nil {
		return webhook.Accepted{}, err
	}
	if in.mismatch {
		return webhook.Accepted{}, &webhook.Error{
			Code: webhook.CodeMismatch, Message: "this key was used before with another body",
		}
	}
	again := webhook.Accepted{Event: e, Replayed: true}
	for _, endpoint := range e.EndpointIDs {
		again.Deliveries = append(again.Deliveries, webhook.Start{Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(e.ID, endpoint), EventID: e.ID, EndpointID: endpoint,
			TenantID: tenantID, EventType: e.Type,
		}, Run: 1, CreatedAt: e.CreatedAt, NotBefore: e.DeliverAt})
	}
	return again, nil
}
