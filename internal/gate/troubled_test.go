package gate

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
	timeout := Result{Latency: time.Second, Number: 1, Reason: "timeout", Trouble: true}
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
				g, en := New(Config{}), entry()
				for _, kind := range results {
					admit(t, g, another(en)).Done(kinds[kind])
				}
				require.Equal(t, failing, g.Troubled(en.Endpoint, time.Second))
				require.False(t, g.Troubled(webhook.NewEndpointID(), time.Second), "others are not")
				admit(t, g, another(en)).Cancel()
				require.Equal(t, failing, g.Troubled(en.Endpoint, time.Second), "nothing was sent")
				elapse(20 * time.Minute)
				require.Equal(t, failing, g.Troubled(en.Endpoint, time.Second), "nothing is known since")
			})
		})
	}
}

// Of an endpoint that is not remembered nothing is known, and asking does not make one.
func TestForgottenIsNotTroubled(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := clock.gate(func(c *Config) { c.MaxEndpoints = shards })
	first := entry()
	for range 2 {
		_, pass := g.Enter(canceled(), another(first))
		pass.Done(refused(0))
	}
	require.True(t, g.Troubled(first.Endpoint, time.Second))
	clock.advance(time.Hour)
	for range 10 {
		other := entry()
		other.Endpoint[15] = first.Endpoint[15] // of the same shard, which is full
		_, pass := g.Enter(canceled(), other)
		pass.Done(delivered(0))
	}
	require.False(t, g.Troubled(first.Endpoint, time.Second))
	before := g.Totals()
	require.False(t, g.Troubled(webhook.NewEndpointID(), time.Second))
	require.Equal(t, before, g.Totals())
}

// Who must wait anyway may wait elsewhere, if it is not for longer.
func TestTroubledByWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // for a rate
		g, en := New(Config{}), entry()
		en.Limits.Rate = 2
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		require.True(t, g.Slow(en.Endpoint))
		require.False(t, g.Troubled(en.Endpoint, time.Second))
		require.True(t, g.Troubled(en.Endpoint, 400*time.Millisecond))
	})
	synctest.Test(t, func(t *testing.T) { // for an answer
		g, en := New(Config{}), entry()
		results(t, g, en, 10, time.Second, delivered(2*time.Second))
		require.True(t, g.Troubled(en.Endpoint, time.Hour))
	})
}
