package events

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxBatchDeliveries bounds the transaction of a batch, for which all other events wait.
	maxBatchDeliveries = 20_000
	maxExpected        = 20 // deliveries of a request whose endpoints are read meanwhile
)

// newEventID makes an id that carries the time by the database's clock. All of a batch are
// shifted alike, so that they keep their order.
func newEventID(shift time.Duration) webhook.EventID {
	return webhook.NewEventID().Later(shift)
}

// match gives the events their ids and finds the endpoints they go to.
func (s *Events) match(ctx context.Context, in *posting) error {
	of, err := s.cache.OfTenant(ctx, in.TenantID)
	if err != nil {
		return err
	}
	if err := s.setLimits(ctx, in); err != nil {
		return err
	}
	in.begun, in.created, in.numbered = time.Now(), s.core.Now().Truncate(time.Microsecond), false
	shift := s.core.IDShift()
	of.Read(func(v endpoints.View) {
		in.Version = v.Version()
		for i := range in.Arrivals {
			a := &in.Arrivals[i]
			a.id, a.Starts, a.numbered, a.verdicts, a.reason, a.unknown = newEventID(shift), nil, nil, nil, "", webhook.EndpointID{}
			if a.event.EndpointIDs == nil {
				a.candidates = v.Match(a.event.Type, in.most())
			} else {
				in.matchNamed(a, v)
			}
		}
	})
	deliveries := 0
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		if a.event.EndpointIDs == nil {
			in.matchFilters(a)
		}
		deliveries += len(a.Starts)
	}
	if in.batch && deliveries > maxBatchDeliveries {
		return &webhook.Error{Code: webhook.CodeTooLarge, Fields: []webhook.FieldError{{
			Field: "events", Message: "make more than " + strconv.Itoa(maxBatchDeliveries) + " deliveries together; post fewer at a time",
		}}}
	}
	if s.sends && deliveries <= maxExpected {
		for i := range in.Arrivals {
			for _, start := range in.Arrivals[i].Starts {
				s.cache.Expect(ctx, start.EndpointID)
			}
		}
	}
	return nil
}

// most is how many deliveries an event may get: one more than the tenant's limit, because such an event is refused.
func (in *posting) most() int {
	switch {
	case in.exempt:
		return webhook.MaxOperational
	case in.limits.EndpointsPerEvent > 0:
		return in.limits.EndpointsPerEvent + 1
	}
	return math.MaxInt
}

// matchFilters starts the deliveries to those candidates whose filters match. It looks at the payload only if one has a filter, and without
// the lock of the endpoints: filters may take a while.
func (in *posting) matchFilters(a *arrival) {
	var seen *filter.Event
	for _, e := range a.candidates {
		if len(a.Starts) == in.most() {
			break
		}
		if e.Filter != nil {
			if seen == nil {
				seen = a.event.Filtered()
			}
			matched := e.Filter.Match(seen)
			a.verdicts = append(a.verdicts, webhook.FilterVerdict{EndpointID: e.ID, Matched: matched})
			if !matched {
				continue
			}
		}
		in.start(a, e)
	}
	a.candidates = nil
	if len(a.Starts) == 0 {
		a.reason = webhook.ReasonNoMatch
	}
}

// matchNamed leaves what is wrong to the flush: the endpoints may be older than the
// one that is missing here, and an event that is known already is not matched again.
func (in *posting) matchNamed(a *arrival, of endpoints.View) {
	for _, id := range a.event.EndpointIDs {
		e := of.Endpoint(id)
		if e == nil || e.Internal {
			a.unknown = id
			return
		}
		in.start(a, e)
	}
}

func (in *posting) start(a *arrival, e *webhook.Endpoint) {
	from := in.created
	if a.event.DeliverAt.After(from) {
		from = a.event.DeliverAt
	}
	policy, _ := e.PolicyInForce()
	a.Starts = append(a.Starts, webhook.Start{
		Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(a.id, e.ID), EventID: a.id, EndpointID: e.ID,
			TenantID: in.TenantID, EventType: a.event.Type,
		},
		Run: 1, CreatedAt: in.created, ReceivedAt: in.begun, NotBefore: a.event.DeliverAt,
		GiveUpAt: from.Add(policy.GiveUpAfter).Truncate(time.Microsecond),
	})
	// What waits for a time has no place among what is sent at once.
	if e.Ordering.By == webhook.OrderingNumber && !in.exempt && a.event.DeliverAt.IsZero() {
		in.numbered = true
		a.numbered = append(a.numbered, len(a.Starts)-1)
	}
}
