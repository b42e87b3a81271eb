package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// An endpoint is in trouble while the last two requests failed, whoever's fault that was; one
// that delivers ends it, and time alone does not.
func TestTroubledByFailures(t *testing.T) {
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
				require.Equal(t, failing, troubled(ctl, req.Endpoint))
				require.False(t, troubled(ctl, webhook.NewEndpointID()), "others are not")
				admit(t, ctl, another(req)).Cancel()
				require.Equal(t, failing, troubled(ctl, req.Endpoint), "nothing was sent")
				elapse(20 * time.Minute)
				require.Equal(t, failing, troubled(ctl, req.Endpoint), "nothing is known since")
			})
		})
	}
}

// Of an endpoint that is not remembered nothing is known, and asking does not make one.
func TestForgottenIsNotTroubled(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.gate(func(c *Config) { c.MaxEndpoints = shards })
	first := newRequest()
	for range 2 {
		permit := ctl.Acquire(canceled(), another(first)).Permit
		permit.Done(refused(0))
	}
	require.True(t, troubled(ctl, first.Endpoint))
	clock.advance(time.Hour)
	for range 10 {
		other := newRequest()
		other.Endpoint[15] = first.Endpoint[15] // of the same shard, which is full
		permit := ctl.Acquire(canceled(), other).Permit
		permit.Done(delivered(0))
	}
	require.False(t, troubled(ctl, first.Endpoint))
	before := ctl.Totals()
	require.False(t, troubled(ctl, webhook.NewEndpointID()))
	require.Equal(t, before, ctl.Totals())
}

func troubled(ctl *Controller, id webhook.EndpointID) bool {
	return ctl.Forecast(id).Unhealthy
}

// Who takes long is in trouble, who only makes others wait is not.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits.Rate = 2
		for _, want := range []time.Duration{0, 500 * time.Millisecond} {
			f := ctl.Forecast(req.Endpoint)
			require.InDelta(t, want, f.Wait, float64(10*time.Millisecond))
			require.False(t, f.Unhealthy)
			require.LessOrEqual(t, f.Rate, 2.0)
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
		require.True(t, troubled(ctl, req.Endpoint))
	})
}
