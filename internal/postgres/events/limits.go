package events

import (
	"context"
	"strconv"

	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/webhook"
)

// setLimits looks up what a request of events must keep to.
func (s *Events) setLimits(ctx context.Context, in *posting) error {
	if in.exempt {
		in.limits, in.pending = webhook.Limits{}, nil
		return nil
	}
	limits, err := s.quotas.Limits(ctx, in.TenantID)
	if err != nil {
		return err
	}
	in.limits, in.pending = limits, nil
	if limits.PendingDeliveries > 0 {
		in.pending, err = s.quotas.Pending(ctx, in.TenantID)
	}
	return err
}

// renewPending gives requests that have waited for their flush the present counts.
func (s *Events) renewPending(items []*posting) {
	for _, in := range items {
		if in.pending == nil {
			continue
		}
		if present, ok := s.quotas.PendingKnown(in.TenantID); ok {
			in.pending = present
		}
	}
}

// countStored adds what a flush has committed to the present counts, whether or not
// their callers still wait for the answers.
func (s *Events) countStored(items []*posting) {
	for _, in := range items {
		if !in.stores() {
			continue
		}
		if present, ok := s.quotas.PendingKnown(in.TenantID); ok {
			_, made := in.makes()
			present.Add(made)
		}
	}
}

// makes is how many deliveries a request's new events have, the most of one event and
// all together.
func (in *posting) makes() (most, all int) {
	for i := range in.Arrivals {
		if a := &in.Arrivals[i]; !a.isKnown() {
			most, all = max(most, len(a.Starts)), all+len(a.Starts)
		}
	}
	return most, all
}

// over is why a request that is over a quota of its tenant is refused; nil of any other. It is
// called when it is known which of the events are new: the answer to an earlier one does not count.
func (in *posting) over() *webhook.Error {
	most, all := in.makes()
	quota, pending := in.limits.PendingDeliveries, 0
	if in.pending != nil {
		pending = in.pending.Now()
	}
	switch {
	case in.limits.EndpointsPerEvent > 0 && most > in.limits.EndpointsPerEvent:
		return in.tooMany(in.limits.EndpointsPerEvent)
	case quota == 0 || all == 0 || pending+all <= quota:
		return nil
	case all > quota:
		return tenants.QuotaError("pending deliveries", quota)
	default:
		return &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: tenants.PendingFor,
			Message: "the tenant's limit of pending deliveries is " + strconv.Itoa(quota) + ", and it has about " + strconv.Itoa(pending),
		}
	}
}

// tooMany is the error of a request with an event that would have more deliveries than it may.
func (in *posting) tooMany(most int) *webhook.Error {
	err := &webhook.Error{
		Code: webhook.CodeTooManyDeliveries, Message: "the event goes to more than " + strconv.Itoa(most) + " endpoints, the tenant's limit for one event",
	}
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		if in.batch && !a.isKnown() && len(a.Starts) > most {
			err.Fields = append(err.Fields, webhook.FieldError{Field: "events[" + strconv.Itoa(i) + "]", Message: err.Message})
		}
	}
	return err
}
