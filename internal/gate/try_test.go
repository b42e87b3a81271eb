package gate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Who does not wait gets in where nobody waits and the receiver is well; else nothing
// becomes of it.
func TestTryEnter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(t *testing.T, g *Gate, en Entry)
		enters bool
	}{
		"nothing is known": {func(*testing.T, *Gate, Entry) {}, true},
		"well": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			admit(t, g, another(en)).Done(delivered(time.Millisecond))
		}, true},
		"the last failed": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			admit(t, g, another(en)).Done(refused(time.Millisecond))
		}, false},
		"recovered": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			admit(t, g, another(en)).Done(refused(time.Millisecond))
			admit(t, g, another(en)).Done(delivered(time.Millisecond))
		}, true},
		"slow": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			pass := admit(t, g, another(en))
			elapse(3 * time.Second)
			pass.Done(delivered(3 * time.Second))
		}, false},
		"one place is left": {func(t *testing.T, g *Gate, en Entry) { t.Helper(); admit(t, g, another(en)) }, true},
		"no place is left": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			admit(t, g, another(en))
			admit(t, g, another(en))
		}, false},
		"somebody has a turn": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			first, second := admit(t, g, another(en)), admit(t, g, another(en))
			admission, pass := g.Enter(canceled(), another(en))
			require.Nil(t, pass)
			require.Equal(t, Deferred, admission.Verdict)
			waiting, _ := g.Enter(t.Context(), another(en))
			require.Equal(t, Deferred, waiting.Verdict)
			first.Done(delivered(time.Millisecond))
			second.Done(delivered(time.Millisecond))
		}, false},
		"asked to wait": {func(t *testing.T, g *Gate, en Entry) {
			t.Helper()
			admit(t, g, another(en)).Done(Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true, PaceFor: time.Minute})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), entry()
				en.Limits = Limits{MaxInFlight: 2, Rate: 1000}
				test.before(t, g, en)
				before := g.Totals()
				pass := g.TryEnter(en)
				require.Equal(t, test.enters, pass != nil)
				if test.enters {
					require.Equal(t, before.InFlight+1, g.Totals().InFlight)
					pass.Cancel()
				}
				require.Equal(t, before.InFlight, g.Totals().InFlight)
				require.Equal(t, before.Reserved, g.Totals().Reserved)
				require.Equal(t, before.Waiting, g.Totals().Waiting)
			})
		})
	}
}

// A rate that is used up is not overdrawn.
func TestTryEnterKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		en.Limits = Limits{MaxInFlight: 100, Rate: 10}
		sent := 0
		for begun := time.Now(); time.Since(begun) < 10*time.Second; elapse(10 * time.Millisecond) {
			if pass := g.TryEnter(another(en)); pass != nil {
				pass.Done(delivered(time.Millisecond))
				sent++
			}
		}
		require.InDelta(t, 100, sent, 2)
	})
}

// The places of a host count, too.
func TestTryEnterAtAHost(t *testing.T) {
	t.Parallel()
	g := New(Config{MaxInFlightPerHost: 1})
	first, second := entry(), entry()
	first.Host, second.Host = "one.example:443", "one.example:443"
	pass := g.TryEnter(first)
	require.NotNil(t, pass)
	require.Nil(t, g.TryEnter(second))
	pass.Done(delivered(time.Millisecond))
	pass = g.TryEnter(second)
	require.NotNil(t, pass)
	pass.Cancel()
}
