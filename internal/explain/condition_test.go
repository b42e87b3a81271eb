package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Every combination of mechanisms has the condition of its deepest cause.
func TestConditionOfEveryMechanism(t *testing.T) {
	t.Parallel()
	everyMechanism(func(m mechanisms) {
		s := m.situation()
		h := webhook.Health{Endpoint: *s.Endpoint, Observed: *s.Observed, Known: true}
		if !m.held {
			h.Observed.DeferReason = m.reason
		}
		got := ConditionOf(&h, noon())
		require.Contains(t, ConditionCodes(), got.Code)
		switch {
		case m.endpoint == webhook.EndpointDisabled:
			require.Equal(t, ShortCondition{Code: ConditionDisabled, Cause: "too many requests failed"}, got)
		case m.endpoint == webhook.EndpointPaused:
			require.Equal(t, ConditionPaused, got.Code)
		case m.circuit != webhook.CircuitClosed:
			require.Equal(t, ShortCondition{ConditionOpen, "503 Service Unavailable: overloaded or in maintenance", h.Observed.Since}, got)
		case m.paused:
			require.Equal(t, ConditionAtLimit, got.Code)
			require.Contains(t, got.Cause, "asked for a pause")
		case m.receiver == receiverFails:
			require.Equal(t, ShortCondition{ConditionFailing, "503 Service Unavailable: overloaded or in maintenance", h.Observed.FailingSince}, got)
		case m.receiver == receiverRecovers:
			require.Equal(t, ShortCondition{Code: ConditionHealthy, Since: h.Observed.Since}, got)
		case h.Observed.DeferReason == webhook.ReasonInFlight:
			require.Equal(t, ShortCondition{Code: ConditionAtLimit, Cause: "its limit is reached: 10 requests at a time"}, got)
		case h.Observed.DeferReason == webhook.ReasonRate:
			require.Equal(t, ShortCondition{Code: ConditionAtLimit, Cause: "its rate limit is reached: 5 requests per second"}, got)
		case h.Observed.DeferReason == webhook.ReasonHost:
			require.Equal(t, ConditionAtLimit, got.Code)
		default:
			require.Equal(t, ShortCondition{Code: ConditionHealthy}, got)
		}
	})
}

func TestConditionNamesTheCertificate(t *testing.T) {
	t.Parallel()
	e := shop()
	h := webhook.Health{Endpoint: e, Observed: webhook.Observation{
		FailureStreak: 4, LastFailure: "tls_invalid", FailingSince: noon(), LastFailedAt: noon(),
		LastError: "tls_invalid: the certificate expired at 2026-11-21T00:00:00Z",
	}}
	require.Equal(t, ShortCondition{ConditionFailing, "TLS failed: the certificate expired on 21 Nov 00:00 UTC", noon()}, ConditionOf(&h, noon()))
}

// The few words say what is wrong, and nothing of an endpoint with which nothing is.
func TestConditionsHaveACauseUnlessHealthy(t *testing.T) {
	t.Parallel()
	seen := map[ConditionCode]string{}
	for code, h := range map[ConditionCode]webhook.Health{
		ConditionHealthy:  {Observed: webhook.Observation{Recovering: true, Rate: 2}},
		ConditionSlow:     {Observed: webhook.Observation{Latency: 12 * time.Second}},
		ConditionAtLimit:  {Observed: webhook.Observation{DeferReason: webhook.ReasonRate}},
		ConditionFailing:  {Observed: webhook.Observation{FailureStreak: 4, LastFailure: "http_401", LastFailedAt: noon()}},
		ConditionOpen:     {Observed: webhook.Observation{Circuit: webhook.CircuitOpen, LastFailure: "timeout_headers", LastFailedAt: noon()}},
		ConditionPaused:   {Endpoint: webhook.Endpoint{State: webhook.EndpointPaused, StateReason: "paused by hand"}},
		ConditionDisabled: {Endpoint: webhook.Endpoint{State: webhook.EndpointDisabled, StateReason: DisabledGone}},
	} {
		h.Endpoint.RateLimit, h.Known = 20, true
		got := ConditionOf(&h, noon())
		require.Equal(t, code, got.Code)
		seen[code] = got.Cause
	}
	require.Equal(t, map[ConditionCode]string{
		ConditionHealthy:  "",
		ConditionSlow:     "answers take 12 s",
		ConditionAtLimit:  "its rate limit is reached: 20 requests per second",
		ConditionFailing:  "401 Unauthorized: it refuses the credentials",
		ConditionOpen:     "no answer in time: connected, and none began",
		ConditionPaused:   "paused by hand",
		ConditionDisabled: "410 Gone: it accepts no more events",
	}, seen)
	for _, code := range ConditionCodes() {
		require.Contains(t, seen, code)
	}
}
