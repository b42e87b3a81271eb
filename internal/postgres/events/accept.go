// Package events takes events: it matches them against endpoints, checks quotas and idempotency keys, and
// writes them with the outbox rows of their deliveries, many requests at a time. Operational writes
// events of Everpost's own in the same way.
package events

import (
	"context"
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	postingWeight = 100 // of the requests in one flush, by their events

	matchRounds = 5 // repetitions of a match against endpoints that changed meanwhile

	deliveriesPerEvent = 10 // in the weight of a request: a row of the outbox costs a tenth of an event
)

// Events takes events, with the outbox rows of their deliveries, and reads them. What it
// stores of several requests at a time is one transaction.
type Events struct {
	core *postgres.Core

	endpoints  endpoints.Reader
	cache      *endpoints.Cache
	quotas     *tenants.Quotas
	deliveries *deliveries.Deliveries
	sends      bool
	types      Types

	ingest   *groupcommit.Writer[*posting]
	ordered  *groupcommit.Writer[*posting] // of requests that take numbers: see lines.go
	inFlight keysUnderWay

	linesTurn sync.Mutex // held by what writes requests whose lines are locked
}

// Config is what Events needs.
type Config struct {
	Endpoints  endpoints.Reader
	Cache      *endpoints.Cache
	Quotas     *tenants.Quotas
	Deliveries *deliveries.Deliveries
	Sends      bool
	Types      Types
}

// Types checks events against the catalogue of event types.
type Types interface {
	Check(ctx context.Context, tenantID string, e *webhook.NewEvent) (webhook.TypeVerdict, error)
}

// New makes an Events, which Close ends.
func New(s *postgres.Core, c Config) *Events {
	events := &Events{
		core: s, endpoints: c.Endpoints, cache: c.Cache, quotas: c.Quotas, deliveries: c.Deliveries,
		sends: c.Sends, types: c.Types, inFlight: keysUnderWay{Keys: map[string]struct{}{}},
	}
	events.ingest = postgres.NewWriter("accept event", postingWeight, events.flushPostings, s.ObserverOf("events"))
	events.ordered = postgres.NewRowWriter("accept event in order", postingWeight, events.flushPostings, events.lineLocks(), s.ObserverOf("ordered_events"))
	return events
}

// Close writes what was handed in, and ends the group commit.
func (s *Events) Close() {
	s.ingest.Stop()
	s.ordered.Stop()
}

// posting is one request on its way into the store, an event or a batch of them, with
// what its flush found out. It is stored as a whole or not at all.
type posting struct {
	TenantID string
	Arrivals []arrival
	batch    bool // earlier events may stand beside new ones, and errors say which event
	exempt   bool // from the tenant's quotas: the event is Everpost's own
	numbered bool // deliveries of it get numbers
	Body     [sha256.Size]byte
	keys     []postingKey

	begun   time.Time // of storing it, by this process's clock
	created time.Time // by the database's
	Version int64     // of the tenant's endpoints that the match was made with
	limits  webhook.Limits
	pending *tenants.PendingCount // nil without a quota

	Stale    bool           // result: the endpoints changed, match again
	Again    bool           // result: a key changed hands meanwhile, hand it in again
	answered bool           // result: earlier requests' events are the whole answer, nothing is stored
	refused  *webhook.Error // result: why nothing is stored
}

// arrival is one event of a request.
type arrival struct {
	event  webhook.NewEvent
	sum    [sha256.Size]byte // of the payload
	id     webhook.EventID
	Starts []webhook.Start
	// numbered are those of Starts that get the next number of their lines when they are stored.
	numbered []int
	reason   string
	verdict  webhook.TypeVerdict // of the catalogue
	unknown  webhook.EndpointID  // of its endpoint_ids, one that does not exist; zero: none
	// candidates are the endpoints that subscribe to its type, until their filters are asked.
	candidates []*webhook.Endpoint
	verdicts   []webhook.FilterVerdict // of the filters that were asked
	earlier    *webhook.Event          // result: what an earlier request stored in its place
}

func (a *arrival) isKnown() bool { return a.earlier != nil }

// Accept stores an event and its deliveries. When it returns without an error,
// all of it is committed.
//
// Errors: CodeNotFound (no such tenant), CodeInvalid (an unknown endpoint id, a type or
// version that the catalogue refuses), CodePayloadInvalid (the payload does not match an enforced schema),
// CodeMismatch (a key came back with another body), CodeConflict (a request with
// the same key is under way), CodeQuota and CodeRateLimited (a quota of the tenant is
// used up, the latter for now), CodeUnavailable.
func (s *Events) Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	in := &posting{TenantID: e.TenantID, Body: e.BodySHA256}
	in.add(e, e.IdempotencyKey)
	all, err := s.take(ctx, in)
	if err != nil {
		return webhook.Accepted{}, err
	}
	return all[0], nil
}

// AcceptBatch stores the events of a batch and their deliveries in one transaction,
// all or none. An event whose external id is known is answered with what was stored
// then, and the others are stored; with the Idempotency-Key of an earlier batch all
// of that one's answer comes again. The errors are Accept's, with the events they
// are about, and CodeTooLarge for a batch of too many deliveries.
func (s *Events) AcceptBatch(ctx context.Context, b webhook.NewBatch) ([]webhook.Accepted, error) {
	if len(b.Events) == 0 {
		return nil, webhook.Invalid("events", "must hold at least one event")
	}
	return s.take(ctx, postingOf(b))
}

func postingOf(b webhook.NewBatch) *posting {
	in := &posting{TenantID: b.TenantID, batch: true, Body: b.BodySHA256, Arrivals: make([]arrival, 0, len(b.Events))}
	key := b.IdempotencyKey
	for _, e := range b.Events {
		in.add(e, key)
		key = "" // once
	}
	return in
}

// add takes an event into the request, and the request's own key unless it is "".
func (in *posting) add(e webhook.NewEvent, key string) {
	if key != "" {
		in.keys = append(in.keys, postingKey{Kind: keyIdempotency, Key: key})
	}
	if e.ExternalID != "" {
		in.keys = append(in.keys, postingKey{Kind: keyExternalID, Key: e.ExternalID, at: len(in.Arrivals)})
	}
	in.Arrivals = append(in.Arrivals, arrival{event: e, sum: sha256.Sum256(e.Payload)})
}

// take hands the request in until it is settled, and returns its answer, an entry
// for each event.
func (s *Events) take(ctx context.Context, in *posting) ([]webhook.Accepted, error) {
	if err := s.judge(ctx, in); err != nil {
		return nil, err
	}
	if taken := s.inFlight.enter(in.TenantID, in.keys); taken != nil {
		return nil, in.underWay(taken)
	}
	// A client that left does not take its item out of the queue: its keys stay under
	// way until that is settled.
	leave := func() { s.inFlight.leave(in.TenantID, in.keys) }
	left := false
	defer func() {
		if !left {
			leave()
		}
	}()

	for range matchRounds {
		if err := s.match(ctx, in); err != nil {
			return nil, err
		}
		var err error
		writer := s.ingest
		if in.numbered {
			writer = s.ordered
		}
		if left, err = writer.DoUntilSettled(ctx, in, leave); err != nil {
			return nil, err
		}
		switch {
		case in.refused != nil:
			return nil, in.refused
		case in.Stale:
			s.cache.ForgetTenant(in.TenantID)
		case in.Again:
		default:
			return in.answer(), nil
		}
	}
	return nil, &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "the tenant's endpoints are changing too fast", RetryAfter: time.Second,
	}
}

// judge checks the events against the catalogue of event types. What it refuses is left to the flush: an event that is known already has been
// answered, and stays so when the catalogue changes.
func (s *Events) judge(ctx context.Context, in *posting) (err error) {
	if in.exempt {
		return nil
	}
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		if a.verdict, err = s.types.Check(ctx, in.TenantID, &a.event); err != nil {
			return err
		}
		catalogue.Complete(&a.event, a.verdict.OrderingPointer)
	}
	return nil
}

// answer is what the request is answered with once it is settled.
func (in *posting) answer() []webhook.Accepted {
	all := make([]webhook.Accepted, len(in.Arrivals))
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		if a.earlier != nil {
			all[i] = acceptedBefore(*a.earlier)
			continue
		}
		e := webhook.Event{
			ID: a.id, TenantID: in.TenantID, Type: a.event.Type, ExternalID: a.event.ExternalID,
			CreatedAt: in.created, DeliverAt: a.event.DeliverAt, PayloadSize: len(a.event.Payload), Reason: a.reason, Tags: a.event.Tags,
			Version: a.event.Version, SchemaError: a.schemaError(), OrderingKey: a.event.OrderingKey,
		}
		for _, start := range a.Starts {
			e.EndpointIDs = append(e.EndpointIDs, start.EndpointID)
		}
		all[i] = webhook.Accepted{
			Event: e, Deliveries: a.Starts, Payload: a.event.Payload, SHA256: a.sum, Headers: a.event.Headers, Verdicts: a.verdicts,
		}
	}
	return all
}

// acceptedBefore is the answer that an event got when it was stored.
func acceptedBefore(e webhook.Event) webhook.Accepted {
	again := webhook.Accepted{Event: e, Repeated: true}
	for i, endpoint := range e.EndpointIDs {
		again.Deliveries = append(again.Deliveries, webhook.Start{Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(e.ID, endpoint), EventID: e.ID, EndpointID: endpoint,
			TenantID: e.TenantID, EventType: e.Type,
		}, Run: 1, CreatedAt: e.CreatedAt, NotBefore: e.DeliverAt})
		if e.Sequences != nil {
			again.Deliveries[i].Sequence = e.Sequences[i]
		}
	}
	return again
}

// schemaError is the first mismatch of the payload; nil for none.
func (a *arrival) schemaError() *string {
	if a.verdict.SchemaError == "" {
		return nil
	}
	return &a.verdict.SchemaError
}

// field is the path of an event's field in the request.
func (in *posting) field(at int, name string) string {
	if !in.batch {
		return name
	}
	return "events[" + strconv.Itoa(at) + "]." + name
}
