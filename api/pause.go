package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// EndpointSwitch pauses and resumes endpoints.
type EndpointSwitch interface {
	// PauseEndpoint returns CodeConflict for a disabled endpoint. The reason may be "".
	PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, reason string) (webhook.Endpoint, error)
	// ResumeEndpoint begins the release of the held deliveries at the rate (deliveries per
	// minute), 0 for Everpost's own pace.
	ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int, reason string) (
		webhook.Endpoint, webhook.Release, error)
}

// switchHandler pauses and resumes endpoints.
type switchHandler struct{ endpoints EndpointSwitch }

func (h *switchHandler) pause(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	reason, err := c.reason(withReason)
	if err != nil {
		return err
	}
	e, err := h.endpoints.PauseEndpoint(c.Request().Context(), c.actor(), c.tenant, id, reason)
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
	rate, reason := 0, ""
	text, err := c.body()
	if err != nil {
		return err
	}
	if text != nil {
		err := readObject(text, func(d *jsonDecoder, name string) {
			switch name {
			case "rate_per_minute":
				set(d, &rate, 0, readReleaseRate)
			case "reason":
				set(d, &reason, "", readReason)
			default:
				d.unknown()
			}
		})
		if err != nil {
			return err
		}
	}
	e, release, err := h.endpoints.ResumeEndpoint(c.Request().Context(), c.actor(), c.tenant, id, rate, reason)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.ResumedEndpoint{Endpoint: showEndpoint(e), Release: showRelease(release)})
}
