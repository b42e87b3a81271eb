package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// aReceiver is one of which nothing is known, with the limits.
func aReceiver(limits Limits) *receiver {
	r := &receiver{breaker: breaker{state: webhook.CircuitClosed}}
	r.configure(0, limits.withDefaults())
	return r
}

// A receiver is shut while its answer or its circuit says so. A time that is over does not count.
func TestShut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*receiver)
		want   bool
	}{
		"healthy":   {func(*receiver) {}, false},
		"blocked":   {func(r *receiver) { r.blockedUntil = time.Minute + 1 }, true},
		"over":      {func(r *receiver) { r.blockedUntil = time.Minute }, false},
		"open":      {func(r *receiver) { r.breaker.state, r.breaker.until = webhook.CircuitOpen, time.Hour }, true},
		"probe due": {func(r *receiver) { r.breaker.state = webhook.CircuitOpen }, true},
		"half open": {func(r *receiver) { r.breaker.state = webhook.CircuitHalfOpen }, true},
		"full":      {func(r *receiver) { r.slots.limit = 0 }, false},
	} {
		r := aReceiver(Limits{})
		c.change(r)
		require.Equal(t, c.want, r.shut(time.Minute), name)
		s := &schedule{receiver: *r}
		until, _ := s.blocked(time.Minute)
		require.Equal(t, c.want, until > time.Minute, name)
	}
}

// A probe is expected to take half as long again as requests did, within bounds.
func TestProbeTime(t *testing.T) {
	t.Parallel()
	for latency, want := range map[time.Duration]time.Duration{
		time.Millisecond: minProbe, time.Second: 1500 * time.Millisecond, 9 * time.Second: 10 * time.Second,
	} {
		r := aReceiver(Limits{Timeout: 10 * time.Second})
		r.slots.measure(latency)
		require.Equal(t, want, r.probeTime(0), latency)
	}
}

// The first failure of a row remembers the rate before it. A latency is that of the result, or the age of the request.
func TestObserve(t *testing.T) {
	t.Parallel()
	r := aReceiver(Limits{Timeout: 10 * time.Second})
	for now := range 60 {
		r.rate.charge(time.Duration(now)*time.Second, 0, 1)
	}
	failed := Result{BreakerFailure: true}
	r.observe(time.Minute, &activeRequest{start: 58 * time.Second, timeout: 10 * time.Second}, &failed)
	require.Equal(t, 2*time.Second, r.slots.latency)
	require.InDelta(t, 1, r.rate.earlier, 0.1)
	earlier := r.rate.earlier
	r.observe(10*time.Minute, &activeRequest{timeout: 10 * time.Second}, &Result{BreakerFailure: true, Latency: time.Second})
	require.Equal(t, 2, r.failures)
	require.InDelta(t, earlier, r.rate.earlier, 0, "it is that before the row")
	r.observe(10*time.Minute, &activeRequest{timeout: 10 * time.Second}, &Result{Delivered: true, Latency: time.Second})
	require.Zero(t, r.failures)
	require.Equal(t, 1, r.recent.successStreak)
}
