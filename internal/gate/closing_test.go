package gate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// probing is an entry that a person has asked for.
func probing(en Entry) Entry {
	en = another(en)
	en.Probe = true
	return en
}

// Who is asked for by a person goes although the circuit is open, and decides; one at a time.
func TestAskedForIsTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{Random: func() float64 { return 0 }}), guarded()
		trip(t, g, en)
		elapse(time.Second)
		admission, pass := g.Enter(canceled(), another(en))
		require.Nil(t, pass)
		require.Equal(t, ReasonCircuitOpen, admission.Reason, "nobody else does")

		probe := admit(t, g, probing(en))
		h := g.Health(en.Endpoint)
		require.Equal(t, CircuitHalfOpen, h.Circuit)
		require.False(t, h.ProbeOver.Before(time.Now()))
		require.False(t, h.ProbeOver.After(time.Now().Add(15*time.Second)))
		elapse(5 * time.Second)
		require.Equal(t, time.Now().Add(10*time.Second), g.Health(en.Endpoint).ProbeOver, "it hangs: when its timeout has passed")
		admission, pass = g.Enter(canceled(), probing(en))
		require.Nil(t, pass, "one is under way")
		require.Equal(t, ReasonCircuitOpen, admission.Reason)
		probe.Done(refused(time.Millisecond))
		h = g.Health(en.Endpoint)
		require.Equal(t, CircuitOpen, h.Circuit)
		require.Zero(t, h.ProbeOver)
		require.Equal(t, time.Now().Add(time.Minute+openMargin), h.NextProbe, "as after any other probe")
		require.Equal(t, "20 of 20 requests failed, the last with http_503", h.Why)

		admit(t, g, probing(en)).Cancel() // nothing was learnt: the next one may ask at once
		require.Equal(t, CircuitHalfOpen, g.Health(en.Endpoint).Circuit)
		admit(t, g, probing(en)).Done(delivered(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)
		elapse(time.Minute)
		results(t, g, en, 1, 0, refused(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit, "what the probe's breaker has seen is forgotten")
	})
}

// A person closes a circuit: whoever comes next is the probe, and when that fails all is as it
// was when the circuit opened first.
func TestCloseCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []Circuit
		g, en := New(Config{Random: func() float64 { return 0 }, Changed: func(c Change) { changes = append(changes, c.To) }}), guarded()
		require.False(t, g.CloseCircuit(en.Endpoint, time.Now()), "nothing is known of it")
		other := guarded()
		admit(t, g, other).Done(delivered(time.Millisecond))
		require.False(t, g.CloseCircuit(other.Endpoint, time.Now()), "it is closed")
		trip(t, g, en)
		for range 3 { // after failed probes it rests for eight times as long
			elapse(time.Until(g.Health(en.Endpoint).NextProbe) + time.Second)
			admit(t, g, another(en)).Done(refused(time.Millisecond))
		}
		require.Greater(t, time.Until(g.Health(en.Endpoint).NextProbe), 3*time.Minute)
		require.Equal(t, []webhook.EndpointID{en.Endpoint}, g.OpenCircuits())

		said := time.Now()
		require.True(t, g.CloseCircuit(en.Endpoint, said))
		require.Equal(t, CircuitHalfOpen, g.Health(en.Endpoint).Circuit)
		require.Equal(t, CircuitHalfOpen, changes[len(changes)-1])
		require.Empty(t, g.OpenCircuits())
		require.False(t, g.CloseCircuit(en.Endpoint, said.Add(1)), "it is half open")
		probe := admit(t, g, another(en))
		_, second := g.Enter(canceled(), another(en))
		require.Nil(t, second, "one at a time")
		probe.Done(refused(time.Millisecond))
		h := g.Health(en.Endpoint)
		require.Equal(t, CircuitOpen, h.Circuit)
		require.Equal(t, time.Now().Add(30*time.Second+openMargin), h.NextProbe, "the cooldown begins anew")

		require.False(t, g.CloseCircuit(en.Endpoint, said.Add(1)), "that has been carried out, or was in vain")
		require.Equal(t, CircuitOpen, g.Health(en.Endpoint).Circuit)
		require.True(t, g.CloseCircuit(en.Endpoint, said.Add(2)))
		admit(t, g, another(en)).Done(delivered(time.Millisecond))
		require.Equal(t, CircuitClosed, g.Health(en.Endpoint).Circuit)

		elapse(2 * time.Minute) // up the slope, and less than would count as calm
		trip(t, g, en)
		require.Equal(t, time.Now().Add(30*time.Second+openMargin), g.Health(en.Endpoint).NextProbe, "a relapse begins anew, too")
	})
}
