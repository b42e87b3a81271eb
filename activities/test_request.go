package activities

import (
	"context"
	"errors"
	"time"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxTests bounds the test requests under way in a process: each lasts for as long as its
	// receiver takes, up to the endpoint's timeout.
	maxTests         = 100
	testsPerTenant   = 10
	testsPerEndpoint = 3
	// testRetryAfter is the Retry-After of a test that exceeds one of these limits, testFaultRetryAfter
	// that of an internal fault.
	testRetryAfter      = 5 * time.Second
	testFaultRetryAfter = time.Second
)

// Tests sends the requests of POST …/endpoints/{id}/test. They go at once, without admission, and
// nothing of them is recorded.
type Tests struct {
	// Now is the clock by which requests are signed. NewTests sets it to time.Now.
	Now func() time.Time

	sender      Sender
	ofTenants   *fair.Semaphore
	ofEndpoints *fair.Semaphore
}

// NewTests returns Tests that send through the sender.
func NewTests(sender Sender) *Tests {
	return &Tests{
		Now: time.Now, sender: sender,
		ofTenants: fair.NewCapped(maxTests, testsPerTenant), ofEndpoints: fair.NewCapped(maxTests, testsPerEndpoint),
	}
}

// Acquire admits a test of a tenant's endpoint. release is to be called when it has ended.
// CodeRateLimited: too many are under way.
func (t *Tests) Acquire(tenantID string, id webhook.EndpointID) (release func(), err error) {
	var message string
	switch endpoint := id.String(); {
	case t.ofTenants.TryAcquire(tenantID):
		if t.ofEndpoints.TryAcquire(endpoint) {
			return func() {
				t.ofEndpoints.Release(endpoint, 1)
				t.ofTenants.Release(tenantID, 1)
			}, nil
		}
		t.ofTenants.Release(tenantID, 1)
		message = "this endpoint is being tested already; wait for the answers"
	case t.ofTenants.Held(tenantID) >= testsPerTenant:
		message = "ten endpoints of this tenant are being tested already; wait for the answers"
	default:
		message = "too many endpoints are being tested at the moment"
	}
	return nil, &webhook.Error{Code: webhook.CodeRateLimited, Message: message, RetryAfter: testRetryAfter}
}

// Send sends one signed request with the payload, as the first attempt of a new event but with the
// number 0, and returns its outcome; that the receiver refuses it is no error. Send takes no longer
// than the endpoint's timeout. CodeUnavailable: an internal fault, or ctx has ended; nothing is
// known of the receiver.
func (t *Tests) Send(ctx context.Context, target *webhook.Target, eventType string, payload []byte) (webhook.Attempt, error) {
	event, now := webhook.NewEventID(), t.Now()
	made, _, err := post(ctx, t.sender, now, target, message{
		event: event, delivery: webhook.DeliveryIDOf(event, target.ID), eventType: eventType, created: now,
	}, payload)
	if fault, ok := errors.AsType[*sendError](err); ok {
		return webhook.Attempt{}, &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "the request could not be made because of a fault of Everpost; nothing is known of the receiver",
			RetryAfter: testFaultRetryAfter, Err: fault,
		}
	}
	return made, err
}
