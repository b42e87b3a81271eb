package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// probing is a request that a person asked for.
func probing(req Request) Request {
	req = another(req)
	req.Forced = true
	return req
}

// A delivery that a person asked for is the probe, although the circuit is open; one at a time.
func TestRequestedProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{Random: func() float64 { return 0 }}), guarded()
		trip(t, ctl, req)
		elapse(time.Second)
		decision := ctl.Acquire(canceled(), another(req))
		permit := decision.Permit
		require.Nil(t, permit)
		require.Equal(t, webhook.ReasonCircuitOpen, decision.Reason, "no other request is")

		probe := admit(t, ctl, probing(req))
		h := ctl.Health(req.Endpoint)
		require.Equal(t, webhook.CircuitHalfOpen, h.Circuit)
		require.False(t, h.ProbeOver.Before(time.Now()))
		require.False(t, h.ProbeOver.After(time.Now().Add(15*time.Second)))
		elapse(5 * time.Second)
		require.Equal(t, time.Now().Add(10*time.Second), ctl.Health(req.Endpoint).ProbeOver, "it hangs: when its timeout has passed")
		decision = ctl.Acquire(canceled(), probing(req))
		permit = decision.Permit
		require.Nil(t, permit, "one is under way")
		require.Equal(t, webhook.ReasonCircuitOpen, decision.Reason)
		probe.Done(refused(time.Millisecond))
		h = ctl.Health(req.Endpoint)
		require.Equal(t, webhook.CircuitOpen, h.Circuit)
		require.Zero(t, h.ProbeOver)
		require.Equal(t, time.Now().Add(time.Minute), h.NextProbe, "as after any other probe")
		require.Equal(t, "20 of 20 requests failed, the last with http_503", h.Why)

		admit(t, ctl, probing(req)).Cancel() // nothing was learnt: the next one may ask at once
		require.Equal(t, webhook.CircuitHalfOpen, ctl.Health(req.Endpoint).Circuit)
		admit(t, ctl, probing(req)).Done(delivered(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
		elapse(time.Minute)
		results(t, ctl, req, 1, 0, refused(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit, "what the probe's breaker has seen is forgotten")
	})
}

// A person closes a circuit: the next request is the probe, and when that fails the cooldown is that
// of a first opening.
func TestCloseCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []webhook.CircuitState
		changed := func(c webhook.CircuitChange) { changes = append(changes, c.To) }
		ctl, req := New(Config{Random: func() float64 { return 0 }, OnCircuitChange: changed}), guarded()
		require.False(t, ctl.CloseCircuit(req.Endpoint, time.Now()), "nothing is known of it")
		other := guarded()
		admit(t, ctl, other).Done(delivered(time.Millisecond))
		require.False(t, ctl.CloseCircuit(other.Endpoint, time.Now()), "it is closed")
		trip(t, ctl, req)
		for range 3 { // after failed probes the cooldown is eight times as long
			elapse(time.Until(ctl.Health(req.Endpoint).NextProbe) + time.Second)
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
		}
		require.Greater(t, time.Until(ctl.Health(req.Endpoint).NextProbe), 3*time.Minute)
		require.Equal(t, []webhook.EndpointID{req.Endpoint}, ctl.OpenCircuits())

		said := time.Now()
		require.True(t, ctl.CloseCircuit(req.Endpoint, said))
		require.Equal(t, webhook.CircuitHalfOpen, ctl.Health(req.Endpoint).Circuit)
		require.Equal(t, webhook.CircuitHalfOpen, changes[len(changes)-1])
		require.Empty(t, ctl.OpenCircuits())
		require.False(t, ctl.CloseCircuit(req.Endpoint, said.Add(1)), "it is half open")
		probe := admit(t, ctl, another(req))
		second := ctl.Acquire(canceled(), another(req)).Permit
		require.Nil(t, second, "one at a time")
		probe.Done(refused(time.Millisecond))
		h := ctl.Health(req.Endpoint)
		require.Equal(t, webhook.CircuitOpen, h.Circuit)
		require.Equal(t, time.Now().Add(30*time.Second), h.NextProbe, "the cooldown begins again")

		require.False(t, ctl.CloseCircuit(req.Endpoint, said.Add(1)), "that has been carried out, or was in vain")
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		require.True(t, ctl.CloseCircuit(req.Endpoint, said.Add(2)))
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)

		elapse(2 * time.Minute) // the ramp-up is over, and it was not closed for long
		trip(t, ctl, req)
		require.Equal(t, time.Now().Add(30*time.Second), ctl.Health(req.Endpoint).NextProbe, "a relapse begins again, too")
	})
}
