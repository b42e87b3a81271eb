package api

import (
	"context"
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// Releases reads and changes the releases of held deliveries.
type Releases interface {
	// ReleaseOf returns CodeNotFound if there is no such endpoint.
	ReleaseOf(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Release, error)
	// ChangeRelease returns CodeConflict if the endpoint is not active.
	ChangeRelease(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, change webhook.ReleaseChange) (webhook.Release, error)
}

func showRelease(r webhook.Release) client.Release {
	return client.Release{
		EndpointID: r.EndpointID.String(), State: client.ReleaseState(r.State.String()), RatePerMinute: nullable(r.Rate),
		Total: r.Total, Released: r.Released, Remaining: r.Remaining(), StartedAt: timestamp(r.StartedAt),
	}
}

func readReleaseRate(d *jsonDecoder) int { return d.integer(1, webhook.MaxReleaseRate) }

func readReleaseState(d *jsonDecoder) (state webhook.ReleaseState) {
	name, ok := d.str()
	switch {
	case !ok:
	case name == webhook.ReleaseRunning.String():
		return webhook.ReleaseRunning
	case name == webhook.ReleaseStopped.String():
		return webhook.ReleaseStopped
	default:
		d.note(`must be "running" or "stopped"`)
	}
	return state
}

// releaseHandler shows and changes releases.
type releaseHandler struct{ releases Releases }

func (h *releaseHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	r, err := h.releases.ReleaseOf(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showRelease(r))
}

func (h *releaseHandler) update(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	var change webhook.ReleaseChange
	err = c.object(func(d *jsonDecoder, name string) {
		switch name {
		case "state":
			change.State = new(readReleaseState(d))
		case "rate_per_minute":
			change.Rate = new(0)
			set(d, change.Rate, 0, readReleaseRate)
		default:
			d.unknown()
		}
	})
	if err != nil {
		return err
	}
	if change == (webhook.ReleaseChange{}) {
		return webhook.Invalid("", "names nothing to change: state or rate_per_minute")
	}
	r, err := h.releases.ChangeRelease(c.Request().Context(), c.actor(), c.tenant, id, change)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showRelease(r))
}
