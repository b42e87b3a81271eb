package telemetry_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// scrape is what Prometheus gets.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body.String())
	return answer.Body.String()
}

// attempted counts an attempt that was the nth of a run.
func attempted(m *telemetry.Metrics, run, number, inRun int, decision retry.Decision, change func(*webhook.Attempt, *webhook.Progress)) {
	a := webhook.Attempt{Number: number, Run: run, Outcome: retry.Outcome{Decision: decision, Reason: "delivered"}}
	p := webhook.Progress{Run: run, RunAttempts: inRun, State: webhook.StateRetrying}
	if change != nil {
		change(&a, &p)
	}
	m.Attempted(webhook.Ref{}, &a, p)
}

// Attempts are numbered within their run: a replay begins again.
func TestMetricsOfRetries(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1.2.3")
	attempted(m, 1, 1, 1, retry.Retry, func(a *webhook.Attempt, _ *webhook.Progress) {
		a.Delay, a.Nominal, a.DelaySource = 8*time.Second, 10*time.Second, string(retry.SourceBackoff)
	})
	attempted(m, 1, 2, 2, retry.Retry, func(a *webhook.Attempt, _ *webhook.Progress) {
		a.Delay, a.Nominal, a.DelaySource = time.Minute, 10*time.Second, string(retry.SourceRetryAfter)
	})
	for number := 3; number <= 12; number++ {
		attempted(m, 1, number, number, retry.Retry, nil)
	}
	attempted(m, 1, 13, 13, retry.Permanent, func(a *webhook.Attempt, p *webhook.Progress) {
		p.State, p.Reason = webhook.StateDeadLettered, "http_400"
	})
	attempted(m, 2, 14, 1, retry.Retry, nil)
	attempted(m, 2, 15, 2, retry.Delivered, func(_ *webhook.Attempt, p *webhook.Progress) { p.State = webhook.StateDelivered })
	// The next run has begun before this one's last attempt was recorded.
	attempted(m, 1, 3, 1, retry.Delivered, func(_ *webhook.Attempt, p *webhook.Progress) { p.Run = 2 })
	m.Ended(webhook.Progress{State: webhook.StateDeadLettered, Reason: webhook.ReasonHeldExpired})
	m.Ended(webhook.Progress{State: webhook.StateDiscarded, Reason: "canary: a person's words"})
	m.Ended(webhook.Progress{State: webhook.StateCancelled, Reason: "canary: a person's words"})

	text := scrape(t, m)
	for _, line := range []string{
		`everpost_attempts_by_number_total{decision="retry",number="1"} 2`,
		`everpost_attempts_by_number_total{decision="retry",number="2"} 1`,
		`everpost_attempts_by_number_total{decision="delivered",number="2"} 1`,
		`everpost_attempts_by_number_total{decision="delivered",number="3"} 1`,
		`everpost_attempts_by_number_total{decision="retry",number="6-10"} 5`,
		`everpost_attempts_by_number_total{decision="retry",number="over-10"} 2`,
		`everpost_attempts_by_number_total{decision="permanent",number="over-10"} 1`,
		`everpost_first_attempts_total 2`,
		`everpost_retry_attempts_total 14`,
		`everpost_attempts_to_success_sum 5`,
		`everpost_replayed_deliveries_total 1`,
		`everpost_backoff_jitter_ratio_sum 0.8`,
		`everpost_backoff_jitter_ratio_count 1`,
		`everpost_dead_letters_total{reason="http_400"} 1`,
		`everpost_dead_letters_total{reason="held_expired"} 1`,
		`everpost_dead_letters_discarded_total 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "canary")
}

// Counters that alerts look at are there before anything has happened: an increase from nothing to 1
// would be none.
func TestSeriesExistFromTheStart(t *testing.T) {
	t.Parallel()
	text := scrape(t, telemetry.NewMetrics("1.2.3"))
	for _, line := range []string{
		`everpost_attempts_by_number_total{decision="delivered",number="over-10"} 0`,
		`everpost_api_bodies_refused_total{cause="process"} 0`,
		`everpost_api_auth_failures_total{cause="wrong_secret"} 0`,
		`everpost_group_commit_failures_total{writer="steps"} 0`,
		`everpost_circuit_changes_total{to="open"} 0`,
		`everpost_dead_letters_total{reason="max_attempts"} 0`,
		`everpost_api_requests_total{operation="postEvent",status="5xx"} 0`,
		`everpost_console_requests_total{operation="getTenantStats",status="5xx"} 0`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}
