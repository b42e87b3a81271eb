package admission

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRequest is somebody new for an endpoint that is new.
func newRequest() Request {
	endpoint := webhook.NewEndpointID()
	return Request{Endpoint: endpoint, Delivery: newDelivery(endpoint)}
}

func newDelivery(endpoint webhook.EndpointID) webhook.DeliveryID {
	return webhook.DeliveryIDOf(webhook.NewEventID(), endpoint)
}

// kind is which of the three a Decision is.
type kind string

const (
	isAdmitted kind = "admitted"
	isDeferred kind = "deferred"
	isHeld     kind = "held"
)

func kindOf(d Decision) kind {
	switch {
	case d.Permit != nil:
		return isAdmitted
	case d.Deferred():
		return isDeferred
	}
	return isHeld
}

// canceled is a context with which nobody waits.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func delivered(latency time.Duration) Result {
	return Result{Latency: latency, Number: 1, Reason: retry.ReasonDelivered, Delivered: true, Answered: true}
}

func refused(latency time.Duration) Result {
	return Result{Latency: latency, Number: 1, Reason: "http_503", Answered: true, BreakerFailure: true}
}

// clock is one that a test turns.
type clock struct{ time.Time }

func (c *clock) now() time.Time           { return c.Time }
func (c *clock) advance(by time.Duration) { c.Time = c.Add(by) }
func newClock() *clock                    { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }
func (c *clock) gate(f ...func(*Config)) *Controller {
	config := Config{Now: c.now}
	for _, set := range f {
		set(&config)
	}
	return New(config)
}

// elapse lets a bubble's time go by.
func elapse(d time.Duration) { <-time.After(d) }
