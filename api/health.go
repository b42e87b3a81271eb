package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// EndpointHealth reports the health of endpoints.
type EndpointHealth interface {
	// Health returns an endpoint's health, aggregated over all sending processes, and its backlog.
	Health(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Health, error)
}

// healthView is the API's view of an endpoint's health.
type healthView struct {
	EndpointID    webhook.EndpointID    `json:"endpoint_id"`
	Summary       string                `json:"summary"`
	Stale         bool                  `json:"stale"`
	State         webhook.EndpointState `json:"state"`
	StateReason   *string               `json:"state_reason"`
	Circuit       circuitView           `json:"circuit"`
	NextProbeAt   timestamp             `json:"next_probe_at"`
	DeferredUntil timestamp             `json:"deferred_until"`
	DeferredFor   *string               `json:"deferred_for"`
	RatePerSecond float64               `json:"rate_per_second"`
	Timeout       *string               `json:"timeout"`
	LatencyMS     *int64                `json:"latency_ms"`
	SuccessRate   *float64              `json:"success_rate"`
	RetryRatio    *float64              `json:"retry_ratio"`
	SuccessStreak int                   `json:"success_streak"`
	FailureStreak int                   `json:"failure_streak"`
	InFlight      int                   `json:"in_flight"`
	Waiting       int                   `json:"waiting"`
	Retrying      int                   `json:"retrying"`
	Deferred      int                   `json:"deferred"`
	Scheduled     int                   `json:"scheduled"`
	Held          int                   `json:"held"`
	More          bool                  `json:"more"`
	NextAttemptAt timestamp             `json:"next_attempt_at"`
	OldestWaiting timestamp             `json:"oldest_waiting_at"`
	Explanation   *explanationView      `json:"explanation"`
}

type circuitView struct {
	State       webhook.CircuitState `json:"state"`
	Since       timestamp            `json:"since"`
	NextProbeAt timestamp            `json:"next_probe_at"`
	Why         *string              `json:"why"`
}

func showHealth(h webhook.Health, now time.Time) healthView {
	seen, b, explained := &h.Observed, &h.Backlog, explain.Endpoint(&h, now)
	view := healthView{
		EndpointID: h.Endpoint.ID, Summary: explained.Summary, Stale: h.Stale, State: h.Endpoint.State, StateReason: nullable(h.Endpoint.StateReason),
		Circuit:     circuitView{seen.Circuit, timestamp(seen.Since), timestamp(seen.NextProbe), nullable(seen.Why)},
		NextProbeAt: timestamp(seen.NextProbe), RatePerSecond: rounded(h.Rate()), LatencyMS: milliseconds(seen.Latency),
		SuccessStreak: seen.SuccessStreak, FailureStreak: seen.FailureStreak, InFlight: seen.InFlight,
		Waiting: b.Waiting(), Retrying: b.Retrying, Deferred: b.Deferred, Scheduled: b.Scheduled, Held: b.Held, More: b.MoreWaiting || b.MoreHeld,
		NextAttemptAt: timestamp(b.NextAt), OldestWaiting: timestamp(b.Oldest),
		Explanation: showExplanation(explained),
	}
	if seen.BlockedUntil.After(now) {
		view.DeferredUntil, view.DeferredFor = timestamp(seen.BlockedUntil), nullable(seen.BlockReason)
	}
	if timeout := h.Timeout(); timeout > 0 {
		view.Timeout = new(shortDuration(timeout))
	}
	if rate, known := seen.SuccessRate(); known {
		view.SuccessRate, view.RetryRatio = new(rounded(rate)), new(rounded(seen.RetryRatio()))
	}
	return view
}

// rounded rounds to four decimals; the values are not more precise.
func rounded(f float64) float64 { return math.Round(f*1e4) / 1e4 }

func (s *Server) getEndpointHealth(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	h, err := s.config.Health.Health(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showHealth(h, s.config.Now()))
}
