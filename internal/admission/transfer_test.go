package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// all selects every endpoint.
func all(webhook.EndpointID) bool { return true }

func TestStatesOfHealthyEndpointsAreNotTransferred(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := clock.controller()
	r := newRequest()
	for range 3 {
		c.TryAcquire(r).Done(delivered(20 * time.Millisecond))
		clock.advance(time.Second)
	}
	require.Empty(t, c.Export(all))
}

// What one controller has learnt of an endpoint holds in another one.
func TestTransfer(t *testing.T) {
	t.Parallel()
	limits := Limits{MaxInFlight: 5, Rate: 100, Breaker: webhook.CircuitBreaker{Enabled: true, MinRequests: 2, Cooldown: time.Minute}}
	for name, test := range map[string]struct {
		result func() Result
		reason string
		until  time.Duration // when requests are admitted again
	}{
		"an open circuit": {func() Result { return refused(time.Millisecond) }, webhook.ReasonCircuitOpen, time.Minute},
		"a pause asked for": {func() Result {
			return Result{Latency: time.Millisecond, Delivered: true, Answered: true, DeferFor: 20 * time.Second}
		}, webhook.ReasonRetryAfter, 20 * time.Second},
		"a rate limit's hint": {func() Result {
			return Result{Latency: time.Millisecond, Delivered: true, Answered: true, PaceFor: 5 * time.Second}
		}, webhook.ReasonRateLimitHint, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			var changes []webhook.CircuitChange
			from, to := clock.controller(), clock.controller(func(c *Config) {
				c.OnCircuitChange = func(change webhook.CircuitChange) { changes = append(changes, change) }
			})
			r := newRequest()
			r.Limits = limits
			one, two := from.TryAcquire(r), from.TryAcquire(r)
			one.Done(test.result())
			two.Done(test.result())
			before := from.Health(r.Endpoint)

			states := from.Export(all)
			require.Len(t, states, 1)
			clock.advance(2 * time.Second)
			states[0].Age = 2 * time.Second
			states[0].Request.Since = clock.now()
			from.Drop(all)
			to.Import(states[0])

			after := to.Health(r.Endpoint)
			require.Equal(t, before.Circuit, after.Circuit)
			require.Equal(t, before.Why, after.Why)
			require.Equal(t, before.NextProbe, after.NextProbe)
			require.Equal(t, before.BlockedUntil, after.BlockedUntil)
			if before.Circuit == webhook.CircuitOpen {
				require.Equal(t, before.Since, after.Since)
				require.Len(t, changes, 1)
				require.True(t, changes[0].TakenOver)
			} else {
				require.Empty(t, changes)
			}
			r.Delivery = newDelivery(r.Endpoint)
			d := to.Acquire(canceled(), r)
			require.Equal(t, test.reason, d.Reason)
			require.GreaterOrEqual(t, d.Wait, test.until-2*time.Second)
			require.Less(t, d.Wait, test.until)
			clock.advance(d.Wait)
			require.Equal(t, isAdmitted, kindOf(to.Acquire(canceled(), r)))
			require.Equal(t, isAdmitted, kindOf(from.Acquire(canceled(), r)), "nothing is left there")
		})
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := clock.controller()
	r := newRequest()
	r.Limits = Limits{MaxInFlight: 2, Rate: 10}
	r.Since = clock.now()
	var adopted []*Permit
	for range 3 {
		adopted = append(adopted, c.Adopt(r, 5*time.Second, 15*time.Second))
	}
	require.Equal(t, 3, c.Health(r.Endpoint).InFlight)
	clock.advance(time.Second)
	require.Nil(t, c.TryAcquire(r))
	adopted[0].Done(delivered(time.Second))
	require.Nil(t, c.TryAcquire(r), "two are under way")
	adopted[1].Cancel()
	adopted[1].Cancel()
	d := c.Acquire(canceled(), r)
	require.NotNil(t, d.Permit)
	d.Permit.Cancel()
	adopted[2].Cancel()
	require.Zero(t, c.Health(r.Endpoint).InFlight)
}

// The rate counts as if a request had gone when the controller took over.
func TestRateAfterATakeOver(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := clock.controller()
	r := newRequest()
	r.Limits, r.Since = Limits{MaxInFlight: 10, Rate: 2}, clock.now()
	require.Nil(t, c.TryAcquire(r))
	clock.advance(500 * time.Millisecond)
	require.NotNil(t, c.TryAcquire(r))
	require.Nil(t, c.TryAcquire(r))
}

// Deliveries that wait at an endpoint that is dropped do not leave reservations behind.
func TestDropWhileDeliveriesWait(t *testing.T) {
	t.Parallel()
	c := New(Config{})
	r := newRequest()
	r.Limits = Limits{MaxInFlight: 10, Rate: 5}
	require.NotNil(t, c.TryAcquire(r))
	decisions := make(chan Decision)
	r.Delivery = newDelivery(r.Endpoint)
	go func() { decisions <- c.Acquire(t.Context(), r) }()
	require.Eventually(t, func() bool { return c.Totals().Waiting == 1 }, 5*time.Second, time.Millisecond)
	c.Drop(all)
	require.Equal(t, isDeferred, kindOf(<-decisions))
	require.Zero(t, c.reserved.total.Load())
	require.Zero(t, c.inside.Load())
}
