package admission

import (
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
