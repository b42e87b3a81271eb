package admission

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRequest is a request for a new endpoint.
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

// canceled is a context with which no delivery waits.
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

// clock is one that a test sets. Timers of what is tested read it too.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock {
	var c clock
	c.set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return &c
}

func (c *clock) now() time.Time                      { return *c.at.Load() }
func (c *clock) set(to time.Time)                    { c.at.Store(&to) }
func (c *clock) advance(by time.Duration)            { c.set(c.Add(by)) }
func (c *clock) Add(d time.Duration) time.Time       { return c.now().Add(d) }
func (c *clock) Sub(earlier time.Time) time.Duration { return c.now().Sub(earlier) }
func (c *clock) controller(f ...func(*Config)) *Controller {
	config := Config{Now: c.now}
	for _, set := range f {
		set(&config)
	}
	return New(config)
}

// roomOf is how many more deliveries of an endpoint can get a reservation before the horizon: the
// most that may be released at once.
func roomOf(c *Controller, id webhook.EndpointID) int {
	n := unknownReserved
	c.look(id, func(e *endpoint, now time.Duration) {
		from, fit := now, 0.0
		if until, _ := e.blocked(now); until > now {
			from = until
		}
		const step = 5 * time.Second // within which a ramp-up hardly rises
		p := e.pacing(now)
		end := now + e.reach(now, p, true)
		for at := from; at < end; at += step {
			fit += float64(min(step, end-at)) / float64(p.interval(at))
		}
		n = max(min(int(fit), e.mayReserve()), alwaysReserved) - len(e.reservations.all)
	})
	return max(0, min(n, c.config.MaxReserved-int(c.reserved.total.Load())))
}

// rateOf is how many requests per second are admitted now.
func rateOf(c *Controller, id webhook.EndpointID, limits Limits) float64 {
	rate := limits.withDefaults().Rate
	c.look(id, func(e *endpoint, now time.Duration) { rate = min(rate, e.effectiveRate(now)) })
	return rate
}

// queue is internal state of an endpoint.
type queue struct {
	waiting, reserved int
	recent, earlier   float64 // rates: now, and before the last outage
}

func queueOf(c *Controller, id webhook.EndpointID) (q queue) {
	c.look(id, func(e *endpoint, now time.Duration) {
		q = queue{len(e.waiters), len(e.reservations.all) - len(e.waiters), e.rate.measured(now), e.rate.earlier}
	})
	return q
}

// elapse lets a bubble's time go by.
func elapse(d time.Duration) { <-time.After(d) }
