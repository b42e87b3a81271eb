package gate

import (
	"testing"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// One request that nothing stands in the way of.
func BenchmarkEnterDone(b *testing.B) {
	g := New(Config{})
	en := entry()
	en.Limits = Limits{Rate: 1e9, Breaker: webhook.DefaultCircuitBreaker()}
	b.ReportAllocs()
	for b.Loop() {
		_, pass := g.Enter(b.Context(), en)
		if pass != nil {
			pass.Done(delivered(time.Millisecond))
		}
	}
}

// Many endpoints at a time.
func BenchmarkEnterDoneParallel(b *testing.B) {
	g := New(Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		en := entry()
		en.Limits = Limits{Rate: 1e9, Breaker: webhook.DefaultCircuitBreaker()}
		for pb.Next() {
			_, pass := g.Enter(b.Context(), en)
			if pass != nil {
				pass.Done(delivered(time.Millisecond))
			}
		}
	})
}

// Somebody who is turned down by an endpoint with a long line.
func BenchmarkHeld(b *testing.B) {
	g := New(Config{})
	en := entry()
	for range 11 {
		g.Enter(canceled(), en)
	}
	b.ReportAllocs()
	for b.Loop() {
		en.Delivery = newDelivery(en.Endpoint)
		g.Enter(canceled(), en)
	}
}
