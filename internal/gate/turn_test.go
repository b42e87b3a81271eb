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
				require.Equal(t, failing, troubled(g, en.Endpoint))
				require.False(t, troubled(g, webhook.NewEndpointID()), "others are not")
				admit(t, g, another(en)).Cancel()
				require.Equal(t, failing, troubled(g, en.Endpoint), "nothing was sent")
				elapse(20 * time.Minute)
				require.Equal(t, failing, troubled(g, en.Endpoint), "nothing is known since")
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
	require.True(t, troubled(g, first.Endpoint))
	clock.advance(time.Hour)
	for range 10 {
		other := entry()
		other.Endpoint[15] = first.Endpoint[15] // of the same shard, which is full
		_, pass := g.Enter(canceled(), other)
		pass.Done(delivered(0))
	}
	require.False(t, troubled(g, first.Endpoint))
	before := g.Totals()
	require.False(t, troubled(g, webhook.NewEndpointID()))
	require.Equal(t, before, g.Totals())
}

func troubled(g *Gate, id webhook.EndpointID) bool {
	_, _, is := g.Turn(id)
	return is
}

// Who takes long is in trouble, who only makes others wait is not.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits.Rate = 2
		for _, want := range []time.Duration{0, 500 * time.Millisecond} {
			wait, rate, troubled := g.Turn(en.Endpoint)
			require.InDelta(t, want, wait, float64(10*time.Millisecond))
			require.False(t, troubled)
			require.LessOrEqual(t, rate, 2.0)
			admission, pass := g.Enter(canceled(), another(en))
			if want == 0 {
				require.Equal(t, Admitted, admission.Verdict)
				pass.Done(delivered(time.Millisecond))
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		results(t, g, en, 10, time.Second, delivered(2*time.Second))
		require.True(t, troubled(g, en.Endpoint))
	})
}
