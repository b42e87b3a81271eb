package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// EndpointSwitch pauses endpoints and lets them go on.
type EndpointSwitch interface {
	// PauseEndpoint: CodeConflict for one that is disabled.
	PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error)
	// ResumeEndpoint begins a replay of what is held, at the rate (deliveries per
	// minute); its id is zero when the endpoint was active.
	ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int) (webhook.Endpoint, webhook.Replay, error)
}

// resumeRate is how many held deliveries are released in a minute at first, unless the
// caller says, or the endpoint used to get more.
const resumeRate = 600

// usualRate is how many deliveries the endpoint got in a minute before, as far as that
// is known.
func (s *Server) usualRate(id webhook.EndpointID) int {
	if s.UsualRate == nil {
		return 0
	}
	return min(s.UsualRate(id), webhook.MaxReplayRate)
}

// resumedView is an endpoint that goes on, and the replay that releases what it held.
type resumedView struct {
	endpointView

	ReplayID *webhook.ReplayID `json:"replay_id"`
}

func (s *Server) pauseEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := c.nothing(); err != nil {
		return err
	}
	e, err := s.EndpointSwitch.PauseEndpoint(c.Request().Context(), c.actor(), c.tenant, id)
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
		err := readObject(text, func(d *door, name string) {
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
	e, replay, err := s.EndpointSwitch.ResumeEndpoint(ctx, c.actor(), c.tenant, id, rate)
	if err != nil {
		return err
	}
	if !replay.ID.IsZero() {
		s.Dispatcher.WakeReplay(context.WithoutCancel(ctx), replay)
	}
	return c.json(http.StatusOK, resumedView{showEndpoint(e), nullable(replay.ID)})
}
