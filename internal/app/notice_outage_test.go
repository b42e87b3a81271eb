package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func containsLine(t *testing.T, h http.Handler, line string) bool {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	text, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return strings.Contains(string(text), "\n"+line+"\n")
}

// send sends through the gate, as an attempt of a number does, and tells the watch.
func (b *watched) send(t *testing.T, w *watch, number, status int) {
	t.Helper()
	ref := b.ref("order.paid")
	pass := b.enter(t, w)
	a, p := answerOf(status)
	a.Number, p.Attempts = number, number
	if a.Outcome.Decision == retry.Retry {
		p.State, p.Reason = webhook.StateRetrying, ""
	}
	pass.Done(admission.ResultOf(a.Outcome, number, time.Millisecond))
	w.Attempted(ref, a, p)
}

// probe sends as soon as the gate lets somebody through; the watch hears of it from the gate only.
func (b *watched) probe(t *testing.T, w *watch, status int) {
	t.Helper()
	a, _ := answerOf(status)
	b.enter(t, w).Done(admission.ResultOf(a.Outcome, 1, time.Millisecond))
}

// enter waits until the gate lets somebody through.
func (b *watched) enter(t *testing.T, w *watch) (pass *admission.Permit) {
	t.Helper()
	entry := admission.Request{Endpoint: b.endpoint.ID, Delivery: b.ref("x").DeliveryID, Limits: admission.LimitsOf(&b.endpoint)}
	require.Eventually(t, func() bool {
		pass = w.gate.Acquire(t.Context(), entry).Permit
		return pass != nil
	}, soon, time.Millisecond)
	return pass
}

// setBreaker gives the endpoint a circuit that opens soon and rests shortly.
func (b *watched) setBreaker(t *testing.T, autoReplay bool) {
	t.Helper()
	e, err := b.own.UpdateEndpoint(t.Context(), webhook.Actor{}, "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.CircuitBreaker = webhook.CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 5, FailureRatio: 0.5, Cooldown: 50 * time.Millisecond}
		e.AutoReplay = autoReplay
		return nil
	})
	require.NoError(t, err)
	b.endpoint = e
}

// A circuit that opens and closes by a probe is told of, once each, not its probes.
func TestCircuitsAreTold(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, false)
	w := b.process(t)
	for range 5 {
		b.send(t, w, 1, 503)
	}
	b.probe(t, w, 503)
	b.probe(t, w, 200)
	require.Zero(t, w.notifyAll(t.Context()))
	require.Zero(t, w.replayAll(t.Context()))
	opened := b.told(t, webhook.NoticeCircuitOpened)
	require.Len(t, opened, 1)
	require.Equal(t, "the endpoint is given a rest: 5 of 5 requests failed, the last with http_503", opened[0]["summary"])
	endpoint, _ := opened[0]["endpoint"].(map[string]any)
	require.Equal(t, "https://example.com/hook", endpoint["url"])
	require.Len(t, b.told(t, webhook.NoticeRecovered), 1)
	var replays int
	require.NoError(t, b.own.Pool().QueryRow(t.Context(), `select count(*) from replays`).Scan(&replays))
	require.Zero(t, replays, "nobody asked for one")
}

// A change of the endpoint closes its circuit and says nothing of the receiver: it has
// recovered when something is delivered.
func TestAChangeIsNoRecovery(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, false)
	w := b.process(t)
	for range 5 {
		b.send(t, w, 1, 503)
	}
	require.Equal(t, admission.CircuitOpen, w.gate.Health(b.endpoint.ID).Circuit)
	w.reset(b.endpoint.ID)
	require.Equal(t, admission.CircuitClosed, w.gate.Health(b.endpoint.ID).Circuit)
	require.Zero(t, w.notifyAll(t.Context()))
	require.Empty(t, b.told(t, webhook.NoticeRecovered))
	for range 5 { // it opens anew: the outage goes on
		b.send(t, w, 1, 503)
	}
	w.reset(b.endpoint.ID)
	for range 2 { // the second is nothing new
		b.send(t, w, 1, 200)
	}
	require.Zero(t, w.notifyAll(t.Context()))
	require.Len(t, b.told(t, webhook.NoticeCircuitOpened), 2)
	require.Len(t, b.told(t, webhook.NoticeRecovered), 1)
	require.Zero(t, w.outage.reset.Load())
	require.Empty(t, w.outage.open)
}

// What is never sent to again after a change is not remembered for ever.
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
	o.prune(now.Add(deliveredWithin), all)
	require.Len(t, o.open, 2)
	o.prune(now.Add(deliveredWithin+1), all)
	require.Zero(t, o.reset.Load())
	require.Contains(t, o.open, open)
	require.Len(t, o.open, 1)
	_, over := o.delivered(changed)
	require.False(t, over)
	since, over := o.closed(open, now)
	require.True(t, over)
	require.Equal(t, now, since)
}

// A circuit that opens from closed, and that no change has closed, was forgotten by the
// gate: what was before belongs to another outage.
func TestAnOutageOfAForgottenEndpointIsOver(t *testing.T) {
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

// What the gate has forgotten does not take the place of others.
func TestForgottenEndpointsHaveNoOutage(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, false)
	w := b.process(t)
	for range 5 {
		b.send(t, w, 1, 503)
	}
	forgotten := webhook.NewEndpointID()
	w.circuitChanged(admission.CircuitChange{Endpoint: forgotten, From: admission.CircuitClosed, To: admission.CircuitOpen, At: time.Now()})
	w.refreshTrouble(t.Context())
	require.Len(t, w.outage.open, 2, "the gate may be about to tell of it")
	w.circuitChanged(admission.CircuitChange{Endpoint: forgotten, From: admission.CircuitClosed, To: admission.CircuitOpen, At: time.Now()})
	w.refreshTrouble(t.Context())
	require.Len(t, w.outage.open, 2, "it has opened since")
	w.refreshTrouble(t.Context())
	require.Len(t, w.outage.open, 1)
	require.Contains(t, w.outage.open, b.endpoint.ID)
}

// An endpoint that is sent operational events only causes none itself.
func TestOperationalEndpointsCauseNothing(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.make(t, "ops", "everpost.*")
	w := b.process(t)
	w.circuitChanged(admission.CircuitChange{Endpoint: b.ops.ID, From: admission.CircuitClosed, To: admission.CircuitOpen, At: time.Now()})
	w.circuitChanged(admission.CircuitChange{Endpoint: b.ops.ID, From: admission.CircuitHalfOpen, To: admission.CircuitClosed, At: time.Now()})
	w.circuitChanged(admission.CircuitChange{Endpoint: webhook.NewEndpointID(), From: admission.CircuitClosed, To: admission.CircuitOpen, At: time.Now()})
	require.Zero(t, w.notifyAll(t.Context()))
	require.Empty(t, b.told(t, webhook.NoticeCircuitOpened))
	require.Empty(t, b.told(t, webhook.NoticeRecovered))
	require.True(t, metric(t, w, "everpost_notices_dropped_total 0"))
}

// When an outage is over its dead letters are replayed, those of before are not.
func TestRecoveryReplays(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.setBreaker(t, true)
	w := b.process(t)
	_, err := b.own.Pool().Exec(t.Context(), `update deliveries set created_at = created_at - interval '1 hour' where id = $1`, b.deadLetter(t))
	require.NoError(t, err)
	for range 5 {
		b.send(t, w, 1, 503)
	}
	b.deadLetter(t)
	b.deadLetter(t)
	b.probe(t, w, 200)
	require.Zero(t, w.replayAll(t.Context()))
	replays := b.replays(t)
	require.Len(t, replays, 1)
	require.Equal(t, webhook.ReplayDeadLetters, replays[0].Source)
	require.Equal(t, b.endpoint.ID, replays[0].Filter.EndpointID)
	require.EqualValues(t, 2, *replays[0].Total)
	require.WithinDuration(t, time.Now().Add(-outageMargin), replays[0].Filter.Since, outageMargin/3)
}

// Only more than a hundred retries, and more than five for each first attempt, are a storm.
func TestInStorm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, retries int
		want           bool
	}{{0, 0, false}, {0, 100, false}, {0, 101, true}, {20, 100, false}, {20, 101, true}, {21, 105, false}, {21, 106, true}, {1000, 5000, false}} {
		require.Equal(t, c.want, inStorm(admission.Recent{First: c.first, Retries: c.retries}), c)
	}
}

// A storm is warned of once an hour, in whichever process.
func TestRetryStormsAreTold(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	one, other := b.process(t), b.process(t)
	for _, w := range []*watch{one, other} {
		for range 110 {
			w.storms.looked = map[webhook.EndpointID]time.Time{} // as if 10 s had gone by
			b.send(t, w, 2, 404)
		}
		require.True(t, metric(t, w, "everpost_retry_storms_total 1"))
	}
	at := time.Now()
	require.Zero(t, one.notifyAll(t.Context()))
	require.Zero(t, other.notifyAll(t.Context()))
	told := b.told(t, webhook.NoticeRetryStorm)
	if at.Truncate(time.Hour).Equal(at.Add(-time.Minute).Truncate(time.Hour)) { // not around a full hour
		require.Len(t, told, 1)
	}
	require.Equal(t, "within 15 minutes the endpoint was sent 0 first attempts, and 101 retries", told[0]["summary"])
}

func TestStormsAreLookedForNowAndThen(t *testing.T) {
	t.Parallel()
	s, id, now := newStorms(), webhook.NewEndpointID(), time.Now()
	require.True(t, s.due(id, now))
	require.False(t, s.due(id, now.Add(stormLook-1)))
	require.True(t, s.due(id, now.Add(stormLook)))
	require.True(t, s.warn(id, now))
	require.False(t, s.warn(id, now.Add(stormPause-1)))
	require.True(t, s.warn(id, now.Add(stormPause)))
	for range 3 * maxStorms {
		s.due(webhook.NewEndpointID(), now)
		now = now.Add(time.Millisecond)
	}
	require.LessOrEqual(t, len(s.looked), maxStorms)
}
