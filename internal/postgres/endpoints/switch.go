package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/webhook"
)

// PauseEndpoint pauses an endpoint: its deliveries are held when they are due, until it is resumed. It does nothing
// if the endpoint is paused.
//
// Errors: CodeNotFound; CodeConflict, the endpoint is disabled.
func (s *Endpoints) PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error) {
	e, err := s.UpdateSealed(ctx, s.core.OfTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
		switch e.State {
		case webhook.EndpointActive:
			e.State, e.StateReason = webhook.EndpointPaused, "paused by hand"
		case webhook.EndpointDisabled:
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the endpoint is disabled"}
		case webhook.EndpointPaused:
		}
		return nil
	}, nil)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.opened(ctx, e), nil
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

// ResumeEndpoint makes a paused or disabled endpoint active, and in the same transaction creates a replay of its
// held deliveries, which begins at the rate (deliveries per minute) and adapts it. If the endpoint is active
// already, it creates a replay only if there are held deliveries that no running replay will release; else the
// replay's id is zero. The replay's total is not counted, because other changes of the tenant's endpoints wait
// meanwhile. CodeNotFound.
func (s *Endpoints) ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int,
) (webhook.Endpoint, webhook.Replay, error) {
	r := webhook.Replay{
		TenantID: tenantID, Source: webhook.ReplayHeld, Filter: webhook.ReplayFilter{EndpointID: id}, Asked: rate, Ramp: true,
	}
	e, err := s.UpdateSealed(ctx, s.core.OfTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
		e.State, e.StateReason = webhook.EndpointActive, ""
		return nil
	}, func(ctx context.Context, tx pgx.Tx) error { return replays.Insert(ctx, tx, by, &r, false) })
	if err == nil && r.ID.IsZero() {
		err = s.resumeAgain(ctx, by, &r)
	}
	if err != nil {
		return webhook.Endpoint{}, webhook.Replay{}, err
	}
	return s.opened(ctx, e), r, nil
}

// resumeAgain creates a replay of the held deliveries of an active endpoint, if there are any.
func (s *Endpoints) resumeAgain(ctx context.Context, by webhook.Actor, r *webhook.Replay) error {
	return s.core.OfTenant(r.TenantID).InTx(ctx, "resume an active endpoint", func(ctx context.Context, tx pgx.Tx) error {
		held, err := deliveries.HasUncovered(ctx, tx, r.TenantID, r.Filter.EndpointID)
		if err != nil || !held {
			return err
		}
		return replays.Insert(ctx, tx, by, r, false)
	})
}
