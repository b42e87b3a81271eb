package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// One request that is admitted at once.
func BenchmarkAcquire(b *testing.B) {
	ctl := New(Config{})
	req := newRequest()
	req.Limits = Limits{Rate: 1e9, Breaker: webhook.DefaultCircuitBreaker()}
	b.ReportAllocs()
	for b.Loop() {
		permit := ctl.Acquire(b.Context(), req).Permit
		if permit != nil {
			permit.Done(delivered(time.Millisecond))
		}
	}
}

// Many endpoints at a time.
func BenchmarkAcquireParallel(b *testing.B) {
	ctl := New(Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := newRequest()
		req.Limits = Limits{Rate: 1e9, Breaker: webhook.DefaultCircuitBreaker()}
		for pb.Next() {
			permit := ctl.Acquire(b.Context(), req).Permit
			if permit != nil {
				permit.Done(delivered(time.Millisecond))
			}
		}
	})
}

// A request for an endpoint with many reservations.
func BenchmarkHeld(b *testing.B) {
	ctl := New(Config{})
	req := newRequest()
	for range 11 {
		ctl.Acquire(canceled(), req)
	}
	b.ReportAllocs()
	for b.Loop() {
		req.Delivery = newDelivery(req.Endpoint)
		ctl.Acquire(canceled(), req)
	}
}

// Requests for many endpoints of one host, most of which are deferred.
func BenchmarkSharedHost(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			clock := newClock()
			ctl := clock.controller(func(c *Config) { c.MaxInFlightPerHost = 20 })
			all := make([]Request, n)
			for i := range all {
				all[i] = at("receiver.test:443")
			}
			ctx, next := canceled(), 0
			ask := func() {
				permit := ctl.Acquire(ctx, another(all[next%n])).Permit
				next++
				clock.advance(50 * time.Microsecond)
				if permit != nil {
					permit.Done(delivered(10 * time.Millisecond))
				}
			}
			host := func() *host { return ctl.hosts["receiver.test:443"] }
			busy := make([]*Permit, 0, 20)
			for i := range 20 {
				busy = append(busy, ctl.Acquire(ctx, another(all[i])).Permit)
			}
			for range n {
				ask()
			}
			for _, p := range busy {
				p.Done(delivered(10 * time.Millisecond))
			}
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
			b.ReportMetric(float64(len(host().queue)), "queued")
		})
	}
}
