package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// EndpointSwitch pauses and resumes endpoints.
type EndpointSwitch interface {
	// PauseEndpoint returns CodeConflict for a disabled endpoint.
	PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error)
	// ResumeEndpoint starts a replay of the held deliveries at the rate (deliveries per
	// minute). The replay's id is zero if the endpoint was active.
	ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int) (webhook.Endpoint, webhook.Replay, error)
}

// resumeRate is the minimum of the default rate at which held deliveries are released, per minute.
const resumeRate = 600

// usualRate returns the rate of deliveries to the endpoint before it was paused, if known.
func (s *Server) usualRate(id webhook.EndpointID) int {
	if s.config.UsualRate == nil {
		return 0
	}
	return min(s.config.UsualRate(id), webhook.MaxReplayRate)
}

func (s *Server) pauseEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := c.noBody(); err != nil {
		return err
	}
	e, err := s.config.EndpointSwitch.PauseEndpoint(c.Request().Context(), c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showEndpoint(e))
}

func (s *Server) resumeEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	rate := max(resumeRate, s.usualRate(id))
	if text != nil {
		err := readObject(text, func(d *jsonDecoder, name string) {
			if name != "rate_per_minute" {
				d.unknown()
				return
			}
			set(d, &rate, rate, readReplayRate)
		})
		if err != nil {
			return err
		}
	}
	ctx := c.Request().Context()
	e, replay, err := s.config.EndpointSwitch.ResumeEndpoint(ctx, c.actor(), c.tenant, id, rate)
	if err != nil {
		return err
	}
	if !replay.ID.IsZero() {
		s.config.Starter.WakeReplay(context.WithoutCancel(ctx), replay)
	}
	return c.json(http.StatusOK, client.ResumedEndpoint{Endpoint: showEndpoint(e), ReplayID: nullableText(replay.ID)})
}
