package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// An endpoint is unhealthy while the last two requests failed, for whatever reason; a success ends
// that, time alone does not.
func TestUnhealthyByFailures(t *testing.T) {
	t.Parallel()
	timeout := Result{Latency: time.Second, Number: 1, Reason: "timeout", BreakerFailure: true}
	permanent := Result{Latency: time.Millisecond, Number: 1, Reason: "http_400", Answered: true}
	kinds := map[rune]Result{'.': delivered(time.Millisecond), 'x': refused(time.Millisecond), 't': timeout, 'p': permanent}
	for results, failing := range map[string]bool{
		"": false, ".": false, "x": false, ".x": false, "x.": false, "x.x": false, ".x.x": false,
		"xx": true, "tt": true, "pp": true, "xt": true, "px": true, ".xx": true, "....tx": true, "xxxxx": true, "x.xx": true,
		"xx.": false, "xxxx.": false, "xx.x": false, "xx.xx": true,
	} {
		t.Run(results, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				for _, kind := range results {
					admit(t, ctl, another(req)).Done(kinds[kind])
				}
				require.Equal(t, failing, unhealthy(ctl, req.Endpoint))
				require.False(t, unhealthy(ctl, webhook.NewEndpointID()), "others are not")
				admit(t, ctl, another(req)).Cancel()
				require.Equal(t, failing, unhealthy(ctl, req.Endpoint), "nothing was sent")
				elapse(20 * time.Minute)
				require.Equal(t, failing, unhealthy(ctl, req.Endpoint), "nothing is known since")
			})
		})
	}
}

// An unknown endpoint has the zero forecast, and a query does not add it.
func TestForgottenIsNotUnhealthy(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxEndpoints = shards })
	first := newRequest()
	for range 2 {
		permit := ctl.Acquire(canceled(), another(first)).Permit
		permit.Done(refused(0))
	}
	require.True(t, unhealthy(ctl, first.Endpoint))
	clock.advance(time.Hour)
	for range 10 {
		other := newRequest()
		other.Endpoint[shardByte] = first.Endpoint[shardByte] // of the same shard, which is full
		permit := ctl.Acquire(canceled(), other).Permit
		permit.Done(delivered(0))
	}
	require.False(t, unhealthy(ctl, first.Endpoint))
	before := ctl.Totals()
	require.False(t, unhealthy(ctl, webhook.NewEndpointID()))
	require.Equal(t, before, ctl.Totals())
}

func unhealthy(ctl *Controller, id webhook.EndpointID) bool {
	return ctl.Forecast(id).Unhealthy
}

// An endpoint that answers slowly is unhealthy; one that only makes deliveries wait is not.
func TestForecast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 2
		for _, want := range []time.Duration{0, 500 * time.Millisecond} {
			f := ctl.Forecast(req.Endpoint)
			require.InDelta(t, want, f.Wait, float64(10*time.Millisecond))
			require.False(t, f.Unhealthy)
			decision := ctl.Acquire(canceled(), another(req))
			permit := decision.Permit
			if want == 0 {
				require.NotNil(t, permit)
				permit.Done(delivered(time.Millisecond))
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		results(t, ctl, req, 10, time.Second, delivered(2*time.Second))
		require.True(t, unhealthy(ctl, req.Endpoint))
	})
}
