package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// Everything except a terminal gets JSON, including files and pipes.
func TestLoggerWritesJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	telemetry.NewLogger(&b, "warn").Info("not worth it")
	require.Empty(t, b.String())
	telemetry.NewLogger(&b, "warn").Warn("look here", "count", 3)
	requireLine(t, b.Bytes())

	file, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	telemetry.NewLogger(file, "warn").Warn("look here", "count", 3)
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	requireLine(t, text)
}

func requireLine(t *testing.T, text []byte) {
	t.Helper()
	var line map[string]any
	require.NoError(t, json.Unmarshal(text, &line))
	require.Equal(t, "look here", line["msg"])
	require.Equal(t, "WARN", line["level"])
	require.InDelta(t, 3, line["count"], 0)
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	for level, lines := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "": 3, "nonsense": 3} {
		var b bytes.Buffer
		log := telemetry.NewLogger(&b, level)
		log.Debug("x")
		log.Info("x")
		log.Warn("x")
		log.Error("x")
		require.Equal(t, lines, bytes.Count(b.Bytes(), []byte("\n")), level)
	}
}

// The metrics of an attempt of each kind.
func TestMetricsOfAttempts(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1.2.3")
	m.Gauge("everpost_test_gauge", "A value.", func() float64 { return 42 })
	m.Attempted(webhook.Ref{}, &webhook.Attempt{
		Number: 1, Run: 1, Latency: 30 * time.Millisecond, Delay: 10 * time.Second,
		Outcome: retry.Outcome{Decision: retry.Retry, Reason: retry.HTTPReason(503), Status: 503},
	}, webhook.Progress{State: webhook.StateRetrying})
	m.Attempted(webhook.Ref{}, &webhook.Attempt{
		Number: 2, Run: 1, Latency: 2 * time.Millisecond, Outcome: retry.Outcome{Decision: retry.Delivered, Reason: "delivered", Status: 200},
	}, webhook.Progress{State: webhook.StateDelivered})
	m.Attempted(webhook.Ref{}, &webhook.Attempt{
		Number: 1, Run: 1, Outcome: retry.Outcome{Decision: retry.Permanent, Reason: retry.HTTPReason(400), Status: 400},
	}, webhook.Progress{State: webhook.StateDeadLettered})
	m.InternalFault(errors.New("ours"))
	m.Accepted(&webhook.Event{})
	wrong := "/order is required"
	m.Accepted(&webhook.Event{SchemaError: &wrong})
	m.NotAccepted(&webhook.Error{Code: webhook.CodePayloadInvalid})
	m.NotAccepted(errors.New("ours"))

	text := scrape(t, m)
	for _, line := range []string{
		`everpost_attempts_total{decision="retry",reason="http_503"} 1`,
		`everpost_attempts_total{decision="delivered",reason="delivered"} 1`,
		`everpost_attempts_total{decision="permanent",reason="http_400"} 1`,
		`everpost_attempt_duration_seconds_bucket{decision="retry",le="0.025"} 0`,
		`everpost_attempt_duration_seconds_bucket{decision="retry",le="0.05"} 1`,
		`everpost_deliveries_total{state="delivered"} 1`,
		`everpost_deliveries_total{state="dead_lettered"} 1`,
		`everpost_first_attempts_total 2`,
		`everpost_retry_attempts_total 1`,
		`everpost_attempts_to_success_sum 2`,
		`everpost_attempts_to_success_count 1`,
		`everpost_backoff_duration_seconds_sum 10`,
		`everpost_backoff_duration_seconds_count 1`,
		`everpost_internal_faults_total 1`,
		`everpost_events_accepted_total 2`, `everpost_events_schema_warned_total 1`, `everpost_events_schema_refused_total 1`,
		`everpost_build_info{version="1.2.3"} 1`,
		`everpost_test_gauge 42`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, `state="retrying"`, "the delivery is open")
}

// The metrics of endpoints and operational events.
func TestMetricsOfEndpoints(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1.2.3")
	m.Deferred("rate")
	m.CircuitChanged("open")
	m.Disabled()
	m.RetryStorm()
	m.OperationalEventStored(webhook.EventRetryStorm)
	m.OperationalEventsDropped(3)
	text := scrape(t, m)
	for _, line := range []string{
		`everpost_admission_deferred_total{reason="rate"} 1`,
		`everpost_circuit_changes_total{to="open"} 1`,
		`everpost_endpoints_disabled_total 1`,
		`everpost_retry_storms_total 1`,
		`everpost_operational_events_total{type="everpost.endpoint.retry_storm"} 1`,
		`everpost_operational_events_dropped_total 3`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	require.Zero(t, telemetry.Age(time.Time{}))
	require.InDelta(t, 60, telemetry.Age(time.Now().Add(-time.Minute)), 30)
}
