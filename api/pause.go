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
	// ResumeEndpoint begins the release of the held deliveries at the rate (deliveries per
	// minute), 0 for Everpost's own pace.
	ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int) (webhook.Endpoint, webhook.Release, error)
}

// switchHandler pauses and resumes endpoints.
type switchHandler struct{ endpoints EndpointSwitch }

func (h *switchHandler) pause(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := c.noBody(); err != nil {
		return err
	}
	e, err := h.endpoints.PauseEndpoint(c.Request().Context(), c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showEndpoint(e))
}

func (h *switchHandler) resume(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	rate := 0
	if text != nil {
		err := readObject(text, func(d *jsonDecoder, name string) {
			if name != "rate_per_minute" {
				d.unknown()
				return
			}
			set(d, &rate, 0, readReleaseRate)
		})
		if err != nil {
			return err
		}
	}
	e, release, err := h.endpoints.ResumeEndpoint(c.Request().Context(), c.actor(), c.tenant, id, rate)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.ResumedEndpoint{Endpoint: showEndpoint(e), Release: showRelease(release)})
}
