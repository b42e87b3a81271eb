package monitor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestDeadLettersAreAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.running(t)
	ref := b.ref("order.paid")
	a, p := answerOf(400)
	for range 3 { // the same end
		m.Attempted(ref, a, p)
	}
	a, p = answerOf(400)
	m.Attempted(b.ref(webhook.EventEndpointDisabled), a, p)
	a, p = answerOf(503)
	p.State = webhook.StateRetrying
	m.Attempted(b.ref("order.paid"), a, p)
	last := b.ref("order.last")
	a, p = answerOf(400)
	p.Attempts, a.Number = 7, 7
	m.Attempted(last, a, p)
	require.Eventually(t, func() bool { return len(b.stored(t, webhook.EventDeadLettered)) == 2 }, soon, time.Millisecond)
	stored := b.stored(t, webhook.EventDeadLettered)
	require.Equal(t, map[string]any{
		"id": ref.DeliveryID.String(), "event_id": ref.EventID.String(), "event_type": "order.paid", "endpoint_id": ref.EndpointID.String(),
		"reason": "http_400", "attempts": 1.0,
	}, stored[0]["delivery"])
	require.Equal(t, "acme", stored[0]["tenant_id"])
	require.Equal(t, "acme@example.com", stored[0]["tenant_contact"])
	require.Equal(t, "The delivery was given up after 7 attempts: 400 Bad Request.", stored[1]["summary"])
	require.Positive(t, m.intake.Waiting(), "the intake starts them")
	require.Eventually(t, func() bool {
		return m.metric(t, fmt.Sprintf(`everpost_operational_events_total{type=%q} 2`, webhook.EventDeadLettered))
	}, soon, time.Millisecond)
}

// The queue is bounded: events beyond it are counted, and their callers do not wait.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	b.answers(m, maxEvents+7, 400)
	require.Equal(t, maxEvents, m.events.queue.remove(0))
	require.True(t, m.metric(t, "everpost_operational_events_dropped_total 7"))
}

// Of several errors, one temporary one is enough to try again; what an error wraps does
// not count.
func TestTemporaryErrors(t *testing.T) {
	t.Parallel()
	of := func(code webhook.Code) error { return &webhook.Error{Code: code, Message: "no"} }
	for code := webhook.CodeInternal; code <= webhook.CodeUnavailable; code++ {
		want := code == webhook.CodeUnavailable || code == webhook.CodeConflict || code == webhook.CodeRateLimited
		require.Equal(t, want, temporary(of(code)), code)
		require.Equal(t, want, temporary(fmt.Errorf("store: %w", errors.Join(of(webhook.CodeInvalid), of(code)))), code)
		require.Equal(t, want, temporary(errors.Join(of(code), of(webhook.CodeInvalid))), code)
	}
	require.False(t, temporary(errors.Join(errors.New("a"), errors.New("b"))))
	require.True(t, temporary(&webhook.Error{Code: webhook.CodeUnavailable, Err: fmt.Errorf("%w: %w", errors.New("a"), of(webhook.CodeInvalid))}))
}

// Operational events are stored although the quota of their tenant is used up.
func TestEventsIgnoreFullQuotas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.make(t, "acme", "everpost.*")
	for range 2 {
		b.make(t, "ops", "everpost.*")
	}
	for _, id := range []string{"acme", "ops"} {
		limits := webhook.Limits{PendingDeliveries: 1, EndpointsPerEvent: 1}
		_, _, err := b.own.Tenants.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: id, Limits: limits})
		require.NoError(t, err)
	}
	m := b.process(t)
	b.answers(m, 5, 400)
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Len(t, b.stored(t, webhook.EventDeadLettered), 5)
	require.True(t, m.metric(t, "everpost_operational_events_dropped_total 0"))
}

// A process that ends stores what it has gathered.
func TestStopStoresWhatIsGathered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	m.Start(t.Context())
	b.answers(m, 99, 400)
	m.Stop(t.Context())
	require.Len(t, b.stored(t, webhook.EventDeadLettered), 99)
	require.Equal(t, 1, b.rows(t))
	next := b.running(t)
	b.answers(next, 1, 400)
	require.Eventually(t, func() bool { return b.now(t).State == webhook.EndpointDisabled }, soon, time.Millisecond, "the next process goes on counting")
}

// While PostgreSQL is away events wait. An event that it refuses does not affect others.
func TestEventsAreKeptWhilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	b.answers(m, 3, 400)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 3, m.events.writeAll(gone))
	m.announce(pendingEvent{event: webhook.OperationalEvent{Type: webhook.EventDeadLettered, TenantID: "acme", Key: "no\x00text", At: time.Now()}})
	b.answers(m, 1, 400)
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Len(t, b.stored(t, webhook.EventDeadLettered), 4)
	require.True(t, m.metric(t, "everpost_operational_events_dropped_total 1"))
}

// An endpoint that is sent only operational events causes none itself.
func TestOperationalEndpointsCauseNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.make(t, "ops", "everpost.*")
	m := b.process(t)
	m.CircuitChanged(webhook.CircuitChange{EndpointID: b.ops.ID, From: webhook.CircuitClosed, To: webhook.CircuitOpen, At: time.Now()})
	m.CircuitChanged(webhook.CircuitChange{EndpointID: b.ops.ID, From: webhook.CircuitHalfOpen, To: webhook.CircuitClosed, At: time.Now()})
	m.CircuitChanged(webhook.CircuitChange{EndpointID: webhook.NewEndpointID(), From: webhook.CircuitClosed, To: webhook.CircuitOpen, At: time.Now()})
	require.Zero(t, m.events.writeAll(t.Context()))
	require.Empty(t, b.stored(t, webhook.EventCircuitOpened))
	require.Empty(t, b.stored(t, webhook.EventEndpointRecovered))
	require.True(t, m.metric(t, "everpost_operational_events_dropped_total 0"))
}
