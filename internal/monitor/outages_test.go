package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// setBreaker gives the endpoint a circuit that opens after few failures, for a short time.
func (b *bundle) setBreaker(t *testing.T, autoReplay bool) {
	t.Helper()
	e, err := b.own.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{}, "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.CircuitBreaker = webhook.CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 5, FailureRatio: 0.5, Cooldown: 50 * time.Millisecond}
		e.AutoReplay = autoReplay
		return nil
	})
	require.NoError(t, err)
	b.endpoint = e
}

// The opening of a circuit and its closing by a probe are announced, once each; probes are not.
func TestCircuitsAreAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, false)
	m := b.process(t)
	for range 5 {
		b.send(t, m, 1, 503)
	}
	b.probe(t, m, 503)
	b.probe(t, m, 200)
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Zero(t, m.replays.startAll(t.Context()))
	opened := b.stored(t, webhook.EventCircuitOpened)
	require.Len(t, opened, 1)
	require.Equal(t, "The circuit of the endpoint is open: 5 of 5 requests failed, the last with 503 Service Unavailable.", opened[0]["summary"])
	endpoint, _ := opened[0]["endpoint"].(map[string]any)
	require.Equal(t, "https://example.com/hook", endpoint["url"])
	require.Len(t, b.stored(t, webhook.EventEndpointRecovered), 1)
	var replays int
	require.NoError(t, b.own.Pool().QueryRow(t.Context(), `select count(*) from replays`).Scan(&replays))
	require.Zero(t, replays, "the endpoint does not ask for one")
}

// A change of the endpoint closes its circuit, which does not mean that the receiver has
// recovered: only a delivery does.
func TestChangeIsNoRecovery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, false)
	m := b.process(t)
	for range 5 {
		b.send(t, m, 1, 503)
	}
	require.Equal(t, webhook.CircuitOpen, m.circuit(b.endpoint.ID))
	m.EndpointChanged(b.endpoint.ID, m.controller.Reset)
	require.Equal(t, webhook.CircuitClosed, m.circuit(b.endpoint.ID))
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Empty(t, b.stored(t, webhook.EventEndpointRecovered))
	for range 5 { // it opens again: the outage goes on
		b.send(t, m, 1, 503)
	}
	m.EndpointChanged(b.endpoint.ID, m.controller.Reset)
	for range 2 { // the second is nothing new
		b.send(t, m, 1, 200)
	}
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Len(t, b.stored(t, webhook.EventCircuitOpened), 2)
	require.Len(t, b.stored(t, webhook.EventEndpointRecovered), 1)
	require.Empty(t, m.outages.open)
}

// The outage of an endpoint that is not used after a change is forgotten.
func TestOutagesAreForgotten(t *testing.T) {
	t.Parallel()
	o, now := newOutages(), time.Now()
	changed, open := webhook.NewEndpointID(), webhook.NewEndpointID()
	o.opened(changed, now)
	o.opened(open, now)
	o.resetting(changed, func() {
		_, over := o.closed(changed, now)
		require.False(t, over)
	})
	all := func(webhook.EndpointID) bool { return true }
	o.prune(now.Add(recoveryTimeout), all)
	require.Len(t, o.open, 2)
	o.prune(now.Add(recoveryTimeout+1), all)
	require.Contains(t, o.open, open)
	require.Len(t, o.open, 1)
	_, over := o.delivered(changed)
	require.False(t, over)
	since, over := o.closed(open, now)
	require.True(t, over)
	require.Equal(t, now, since)
}

// A circuit that opens again, and that no change has closed, was forgotten by the admission:
// a new outage begins.
func TestOutageOfForgottenEndpointIsOver(t *testing.T) {
	t.Parallel()
	o, id, now := newOutages(), webhook.NewEndpointID(), time.Now()
	o.opened(id, now.Add(-72*time.Hour))
	o.opened(id, now)
	since, over := o.closed(id, now)
	require.True(t, over)
	require.Equal(t, now, since)

	o.opened(id, now)
	o.resetting(id, func() { o.closed(id, now) })
	o.opened(id, now.Add(time.Minute))
	since, over = o.closed(id, now.Add(time.Hour))
	require.True(t, over)
	require.Equal(t, now, since, "after a change it goes on")
}

// Outages of endpoints that the admission has forgotten are forgotten.
func TestForgottenEndpointsHaveNoOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, false)
	m := b.process(t)
	for range 5 {
		b.send(t, m, 1, 503)
	}
	forgotten := webhook.NewEndpointID()
	m.CircuitChanged(webhook.CircuitChange{EndpointID: forgotten, From: webhook.CircuitClosed, To: webhook.CircuitOpen, At: time.Now()})
	m.pruneOutages()
	require.Len(t, m.outages.open, 2, "the admission may be about to report it")
	m.CircuitChanged(webhook.CircuitChange{EndpointID: forgotten, From: webhook.CircuitClosed, To: webhook.CircuitOpen, At: time.Now()})
	m.pruneOutages()
	require.Len(t, m.outages.open, 2, "it has opened since")
	m.pruneOutages()
	require.Len(t, m.outages.open, 1)
	require.Contains(t, m.outages.open, b.endpoint.ID)
}
