package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// EndpointHealth reports the health of endpoints.
type EndpointHealth interface {
	// Health returns an endpoint's health, aggregated over all sending processes, and its backlog.
	Health(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Health, error)
}

func showHealth(h webhook.Health, now time.Time) client.EndpointHealth {
	seen, b, explained := &h.Observed, &h.Backlog, explain.Endpoint(&h, now)
	view := client.EndpointHealth{
		EndpointID: h.Endpoint.ID.String(), Summary: explained.Summary, Stale: h.Stale, State: stateOf(h.Endpoint.State),
		StateReason: nullable(h.Endpoint.StateReason),
		Circuit: client.Circuit{
			State: client.CircuitState(seen.Circuit), Since: timestamp(seen.Since), NextProbeAt: timestamp(seen.NextProbe), Why: nullable(seen.Why),
		},
		NextProbeAt: timestamp(seen.NextProbe), RatePerSecond: rounded(h.Rate()), LatencyMS: milliseconds(seen.Latency),
		SuccessStreak: seen.SuccessStreak, FailureStreak: seen.FailureStreak, InFlight: seen.InFlight,
		Waiting: b.Waiting(), Retrying: b.Retrying, Deferred: b.Deferred, Scheduled: b.Scheduled, Held: b.Held, More: b.MoreWaiting || b.MoreHeld,
		NextAttemptAt: timestamp(b.NextAt), OldestWaiting: timestamp(b.Oldest),
		Explanation: *showExplanation(explained),
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

// healthHandler shows the health of endpoints.
type healthHandler struct {
	health EndpointHealth
	now    func() time.Time
}

func (h *healthHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	health, err := h.health.Health(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showHealth(health, h.now()))
}
