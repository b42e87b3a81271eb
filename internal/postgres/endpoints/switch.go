package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// PauseEndpoint pauses an endpoint: its deliveries are held when they are due, until it is resumed. It does nothing
// if the endpoint is paused. The reason, which may be empty, becomes part of the endpoint's.
//
// Errors: CodeNotFound; CodeConflict, the endpoint is disabled.
func (s *Endpoints) PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, reason string,
) (webhook.Endpoint, error) {
	e, err := s.UpdateSealed(ctx, s.core.OfTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
		switch e.State {
		case webhook.EndpointActive:
			e.State, e.StateReason = webhook.EndpointPaused, byHand("paused", reason)
		case webhook.EndpointDisabled:
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the endpoint is disabled"}
		case webhook.EndpointPaused:
		}
		return nil
	}, 0)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.opened(ctx, e), nil
}

// byHand is the reason of a state that a person has set.
func byHand(did, reason string) string {
	if reason == "" {
		return did + " by hand"
	}
	return did + " by hand (" + reason + ")"
}

// opened returns an endpoint, whose state was changed, with its headers and credentials, if they can be
// decrypted. The change does not depend on that.
func (s *Endpoints) opened(ctx context.Context, e webhook.Endpoint) webhook.Endpoint {
	row, err := s.endpointRow(ctx, e.TenantID, e.ID)
	if err != nil {
		return e
	}
	now := s.openSome(ctx, []endpointRow{row})[0]
	e.Headers, e.Auth, e.Certificate = now.Headers, now.Auth, now.Certificate
	return e
}

// ResumeEndpoint makes a paused or disabled endpoint active, and in the same transaction begins the release of its held deliveries at the rate, 0
// for Everpost's own pace. If the endpoint is active already, it lets a release go on that was stopped, and begins one if deliveries are held and
// none is under way. It returns the release after that. CodeNotFound.
func (s *Endpoints) ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int, reason string,
) (e webhook.Endpoint, r webhook.Release, err error) {
	resumed := false
	e, err = s.UpdateSealed(ctx, s.core.OfTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
		resumed = e.State != webhook.EndpointActive
		if resumed {
			e.State, e.StateReason = webhook.EndpointActive, ""
			if reason != "" {
				e.StateReason = byHand("resumed", reason)
			}
		}
		return nil
	}, rate)
	if err != nil {
		return webhook.Endpoint{}, r, err
	}
	if resumed {
		r, err = s.releases.ReleaseOf(ctx, tenantID, id)
	} else {
		change := webhook.ReleaseChange{State: new(webhook.ReleaseRunning)}
		if rate > 0 {
			change.Rate = &rate
		}
		r, err = s.releases.ChangeRelease(ctx, by, tenantID, id, change)
	}
	if err != nil {
		return webhook.Endpoint{}, r, err
	}
	return s.opened(ctx, e), r, nil
}
