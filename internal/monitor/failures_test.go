package monitor

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Two processes see one endpoint refuse everything.
func TestProcessesDisableTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, other := b.running(t), b.running(t)
	var both sync.WaitGroup
	both.Go(func() { b.answers(one, 60, 400) })
	both.Go(func() { b.answers(other, 39, 400) })
	both.Wait()
	require.Eventually(t, func() bool {
		var streak int
		return b.own.Pool().QueryRow(t.Context(), `select permanent_streak from endpoint_trouble`).Scan(&streak) == nil && streak == 99
	}, soon, time.Millisecond)
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	b.answers(one, 1, 400)
	require.Eventually(t, func() bool { return b.now(t).State == webhook.EndpointDisabled }, soon, time.Millisecond)
	require.Equal(t, "100 requests in a row were refused permanently, the last with 400 Bad Request", b.now(t).StateReason)
	require.Len(t, b.stored(t, webhook.EventEndpointDisabled), 1)
	const counted = "everpost_endpoints_disabled_total 1"
	require.Eventually(t, func() bool { return one.metric(t, counted) != other.metric(t, counted) }, soon, time.Millisecond, "by one of both")
	require.Eventually(t, func() bool { return len(b.stored(t, webhook.EventDeadLettered)) == 100 }, soon, time.Millisecond)
}

// A mass failure costs a few transactions, and none once the endpoint is disabled.
func TestMassFailureIsGathered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	b.answers(m, 5000, 400)
	require.Len(t, m.failures.counter.take(), 1, "one row to be stored")
	b.answers(m, 5000, 400)
	m.failures.flush(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
	require.Equal(t, "5000 requests in a row were refused permanently, the last with 400 Bad Request", b.now(t).StateReason)
	b.answers(m, 10, 400)
	require.Empty(t, m.failures.ofActive(t.Context(), m.failures.counter.take()))
	require.Zero(t, b.rows(t))
}

func (b *bundle) rows(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.own.Pool().QueryRow(t.Context(), `select count(*) from endpoint_trouble`).Scan(&n))
	return n
}

// A success counts in any process, also in one that has not read yet that there are
// failures.
func TestSuccessInAnotherProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, other := b.process(t), b.process(t)
	b.answers(one, 99, 400)
	one.failures.flush(t.Context())
	require.Equal(t, 1, b.rows(t))
	b.answers(other, 1, 200)
	require.Empty(t, other.failures.counter.take(), "it knows of no failures")
	other.failures.refresh(t.Context())
	other.failures.flush(t.Context())
	require.Zero(t, b.rows(t))

	b.answers(one, 99, 400)
	one.failures.flush(t.Context())
	other.failures.refresh(t.Context())
	require.Empty(t, other.failures.counter.take(), "its success was before that")
	b.answers(other, 1, 200)
	require.Len(t, other.failures.counter.take(), 1, "it knows at once")
	b.answers(one, 1, 400)
	one.failures.flush(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
}

// A success counts that comes while earlier failures are being stored, also when more
// failures follow it.
func TestSuccessWhileFailuresAreStored(t *testing.T) {
	t.Parallel()
	for after := range 2 {
		b := setup(t)
		m := b.process(t)
		b.answers(m, 99, 400)
		seen := m.failures.counter.take()
		b.answers(m, 1, 200)
		b.answers(m, after, 400)
		failing, err := m.store.EndpointHealth.CountFailures(t.Context(), seen)
		require.NoError(t, err)
		m.failures.counter.stored(seen, failing)
		m.failures.flush(t.Context())
		require.Equal(t, after, b.rows(t))
		b.answers(m, 99-after, 400)
		m.failures.flush(t.Context())
		require.Equal(t, webhook.EndpointActive, b.now(t).State)
		b.answers(m, 1, 400)
		m.failures.flush(t.Context())
		require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
	}
}

// Without failures nothing is stored.
func TestSuccessesCostNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	b.answers(m, 1000, 200)
	require.Empty(t, m.failures.counter.take())
	require.Empty(t, m.events.queue.first())
}

// What could not be stored is stored later, in its order.
func TestFailuresAreKeptWhilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	b.answers(m, 99, 400)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	m.failures.flush(gone)
	require.Zero(t, b.rows(t))
	b.answers(m, 1, 200)
	b.answers(m, 2, 400)
	m.failures.flush(gone)
	m.failures.flush(t.Context())
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	b.answers(m, 98, 400)
	m.failures.flush(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
}

// What each end of a delivery counts for.
func TestWhatCountsAsFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status                     int
		state                      webhook.State
		reason                     retry.Reason
		permanent, exhausted, gone bool
	}{
		"delivered":                 {200, webhook.StateDelivered, "", false, false, false},
		"refused":                   {400, webhook.StateDeadLettered, "http_400", true, false, false},
		"redirected":                {302, webhook.StateDeadLettered, "http_302", true, false, false},
		"gone":                      {410, webhook.StateDeadLettered, "http_410", true, false, true},
		"to be tried again":         {503, webhook.StateRetrying, "", false, false, false},
		"too many attempts":         {503, webhook.StateDeadLettered, retry.ReasonMaxAttempts, false, true, false},
		"too late":                  {503, webhook.StateDeadLettered, retry.ReasonGiveUpTime, false, true, false},
		"ambiguous too often":       {404, webhook.StateDeadLettered, retry.ReasonAmbiguousLimit, true, false, false},
		"asked to wait until later": {503, webhook.StateDeadLettered, retry.ReasonRetryAfterPastGiveUp, false, true, false},
		"held for too long":         {503, webhook.StateDeadLettered, retry.ReasonHeldExpired, false, false, false},
		"deferred for too long":     {503, webhook.StateDeadLettered, retry.ReasonDeferredExpired, false, false, false},
		"ended by us meanwhile":     {503, webhook.StateDeadLettered, retry.ReasonInternal, false, false, false},
		"cancelled meanwhile":       {503, webhook.StateCancelled, "cancelled", false, false, false},
		"refused, after a delivery": {400, webhook.StateDelivered, "", false, false, false},
	} {
		a, p := answerOf(c.status)
		p.State, p.Reason = c.state, string(c.reason)
		got := failuresOf(webhook.Ref{}, a, p)
		require.Equal(t, []bool{c.permanent, c.exhausted, c.gone}, []bool{got.Permanent == 1, got.Exhausted == 1, !got.Gone.IsZero()}, name)
		p.Attempts++
		got = failuresOf(webhook.Ref{}, a, p)
		require.Zero(t, got.Permanent+got.Exhausted, "%s: another attempt ended it", name)
	}
	// A policy that tries 410 again does not disable.
	policy := retry.Default()
	policy.RetryStatuses = []int{http.StatusGone}
	a, p := answerOf(410)
	a.Outcome = retry.Classify(retry.Answer{Status: 410}, policy)
	p.Reason = string(retry.ReasonMaxAttempts)
	got := failuresOf(webhook.Ref{}, a, p)
	require.True(t, got.Gone.IsZero())
	require.Equal(t, 1, got.Exhausted)
}

func TestDeliveriesThatEndWithoutAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.process(t)
	for _, c := range []struct {
		state    webhook.State
		reason   string
		attempts int
		failures int
		events   int
	}{
		{webhook.StateDeadLettered, string(retry.ReasonGiveUpTime), 3, 1, 1},
		{webhook.StateDeadLettered, string(retry.ReasonGiveUpTime), 0, 0, 1},
		{webhook.StateDeadLettered, webhook.ReasonTerminated, 3, 0, 1},
		{webhook.StateDeadLettered, webhook.ReasonHeldExpired, 3, 0, 1},
		{webhook.StateDeadLettered, webhook.ReasonDeferredExpired, 3, 0, 1},
		{webhook.StateCancelled, webhook.ReasonEndpointDeleted, 3, 0, 0},
	} {
		p := webhook.Progress{Run: 1, State: c.state, Reason: c.reason, Attempts: c.attempts, RunAttempts: c.attempts}
		m.Ended(b.ref("order.paid"), p, time.Now())
		require.Len(t, m.failures.counter.take(), c.failures, c.reason)
		require.Len(t, m.events.queue.first(), c.events, c.reason)
		m.events.queue.remove(c.events)
		m.Ended(b.ref(webhook.EventEndpointPaused), p, time.Now())
		require.Len(t, m.failures.counter.take(), c.failures, "operational events count for their endpoint")
		require.Empty(t, m.events.queue.first(), "and cause no other events")
	}
}

// Ten deliveries that used up their attempts or their time disable the endpoint, whatever used them up. Those that
// Everpost held or deferred until their time was over do not count.
func TestTenDeliveriesUsedUp(t *testing.T) {
	t.Parallel()
	for reason, disables := range map[retry.Reason]bool{
		retry.ReasonMaxAttempts: true, retry.ReasonGiveUpTime: true, retry.ReasonRetryAfterPastGiveUp: true,
		retry.ReasonHeldExpired: false, retry.ReasonDeferredExpired: false, retry.ReasonInternal: false,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.process(t)
			usedUp := func(n int) {
				for range n {
					a, p := answerOf(http.StatusServiceUnavailable)
					p.State, p.Reason = webhook.StateDeadLettered, string(reason)
					m.Attempted(b.ref("order.paid"), a, p)
				}
				m.failures.flush(t.Context())
			}
			usedUp(9)
			require.Equal(t, webhook.EndpointActive, b.now(t).State)
			usedUp(1)
			require.Equal(t, disables, b.now(t).State == webhook.EndpointDisabled)
			if disables {
				require.Equal(t, "10 deliveries were given up within 24 hours and none was delivered, the last failed with 503 Service Unavailable",
					b.now(t).StateReason)
			}
		})
	}
}
