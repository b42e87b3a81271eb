package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// testsOfEndpoint and testsAtATime bound the tests under way in a process: each may
	// wait for as long as its receiver lets it.
	testsOfEndpoint = 3
	testsOfTenant   = 10
	testsAtATime    = 100
	// testPause is when somebody may come back who found no place.
	testPause = 5 * time.Second
	// testFaultPause is the same after an internal fault.
	testFaultPause = time.Second
)

// Tests are single requests that people ask for to find out whether a receiver takes
// them in. They go at once, past the gate, and nothing of them is recorded.
type Tests struct {
	// Now is the clock that requests are signed by; time.Now of new ones.
	Now func() time.Time

	sender Sender

	mu       sync.Mutex
	underWay map[webhook.EndpointID]int
	byTenant map[string]int
	all      int
}

// NewTests makes them through a sender.
func NewTests(sender Sender) *Tests {
	return &Tests{Now: time.Now, sender: sender, underWay: map[webhook.EndpointID]int{}, byTenant: map[string]int{}}
}

// Take takes a place for a test of a tenant's endpoint, which has to be given back.
// CodeRateLimited: there is none.
func (t *Tests) Take(tenantID string, id webhook.EndpointID) (giveBack func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.underWay[id] >= testsOfEndpoint:
		return nil, &webhook.Error{Code: webhook.CodeRateLimited, Message: "this endpoint is being tested already; wait for the answers", RetryAfter: testPause}
	case t.byTenant[tenantID] >= testsOfTenant:
		return nil, &webhook.Error{
			Code: webhook.CodeRateLimited, Message: "ten endpoints of this tenant are being tested already; wait for the answers", RetryAfter: testPause,
		}
	case t.all >= testsAtATime:
		return nil, &webhook.Error{Code: webhook.CodeRateLimited, Message: "too many endpoints are being tested at the moment", RetryAfter: testPause}
	}
	t.all++
	t.underWay[id]++
	t.byTenant[tenantID]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all--
		t.underWay[id]--
		if t.underWay[id] == 0 {
			delete(t.underWay, id)
		}
		t.byTenant[tenantID]--
		if t.byTenant[tenantID] == 0 {
			delete(t.byTenant, tenantID)
		}
	}, nil
}

// Send makes one signed request with the payload, as the first attempt of a new event
// but for the number 0, and returns what it came to; a receiver's refusal is no error.
// It takes as long as the endpoint's timeout at most. CodeUnavailable: a fault of our
// own, or ctx has ended; nothing is known of the receiver.
func (t *Tests) Send(ctx context.Context, target *webhook.Target, eventType string, payload []byte) (webhook.Attempt, error) {
	event, now := webhook.NewEventID(), t.Now()
	made, err := post(ctx, t.sender, now, target, message{event, webhook.DeliveryIDOf(event, target.ID), eventType, now, 0}, payload)
	if fault, ok := errors.AsType[*sendError](err); ok {
		return webhook.Attempt{}, &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "the request could not be made, for a reason of our own; nothing is known of the receiver",
			RetryAfter: testFaultPause, Err: fault,
		}
	}
	return made, err
}
