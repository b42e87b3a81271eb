package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/webhook"
)

// PauseEndpoint lets the endpoint's deliveries be held when they are due, until it is
// resumed. One that is paused stays as it is.
//
// Errors: CodeNotFound; CodeConflict, it is disabled.
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

// opened is an endpoint whose state was changed with its headers and credentials, as far
// as they can be opened: what was done is done without.
func (s *Endpoints) opened(ctx context.Context, e webhook.Endpoint) webhook.Endpoint {
	row, err := s.endpointRow(ctx, e.TenantID, e.ID)
	if err != nil {
		return e
	}
	now := s.openSome(ctx, []endpointRow{row})[0]
	e.Headers, e.Auth, e.Certificate = now.Headers, now.Auth, now.Certificate
	return e
}

// ResumeEndpoint makes a paused or disabled endpoint active again, and in the same
// transaction begins a replay of what is held for it, at the rate (deliveries per
// minute) and from there on faster or slower as it goes. One that is active stays as it
// is: then a replay begins when something is held all the same and none that is running
// will release it; else its id is zero. What it will release is not counted, because other
// changes of the tenant's endpoints wait for this one. CodeNotFound.
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

// resumeAgain begins a replay of what is held for an endpoint although it is active, if
// there is something.
func (s *Endpoints) resumeAgain(ctx context.Context, by webhook.Actor, r *webhook.Replay) error {
	return s.core.OfTenant(r.TenantID).InTx(ctx, "resume an active endpoint", func(ctx context.Context, tx pgx.Tx) error {
		held, err := deliveries.HasUncovered(ctx, tx, r.TenantID, r.Filter.EndpointID)
		if err != nil || !held {
			return err
		}
		return replays.Insert(ctx, tx, by, r, false)
	})
}
