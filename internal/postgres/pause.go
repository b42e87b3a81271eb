package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// PauseEndpoint lets the endpoint's deliveries be held when they are due, until it is
// resumed. One that is paused stays as it is.
//
// Errors: CodeNotFound; CodeConflict, it is disabled.
func (s *Store) PauseEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error) {
	e, err := s.updateEndpoint(ctx, s.ofTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
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
func (s *Store) opened(ctx context.Context, e webhook.Endpoint) webhook.Endpoint {
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
// is: then the replay's id is zero. What it will release is not counted, because other
// changes of the tenant's endpoints wait for this one. CodeNotFound.
func (s *Store) ResumeEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, rate int,
) (webhook.Endpoint, webhook.Replay, error) {
	r := webhook.Replay{
		TenantID: tenantID, Source: webhook.ReplayHeld, Filter: webhook.ReplayFilter{EndpointID: id}, Asked: rate, Ramp: true,
	}
	e, err := s.updateEndpoint(ctx, s.ofTenant(tenantID), by, tenantID, id, func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
		e.State, e.StateReason = webhook.EndpointActive, ""
		return nil
	}, func(ctx context.Context, tx pgx.Tx) error { return insertReplay(ctx, tx, by, &r, false) })
	if err != nil {
		return webhook.Endpoint{}, webhook.Replay{}, err
	}
	return s.opened(ctx, e), r, nil
}

// ReleaseForgotten lets up to limit held deliveries try again whose endpoint has been
// active for a minute, and that no replay is releasing: a process that did not yet know
// that the endpoint was resumed held them, after the replay had passed. The relay starts
// or tells their workflows. What was rescheduled waits for its time, and a backlog until
// the gate has room for it. It looks only at endpoints that were changed within a day:
// held ones of others were released long ago.
func (s *Store) ReleaseForgotten(ctx context.Context, limit int) error {
	return s.asWorker().inTx(ctx, "release what is held for active endpoints", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			with active as (
				select e.id from endpoints e
				where e.state = 0 and e.deleted_at is null
				  and e.updated_at between now() - interval '1 day' and now() - interval '1 minute'
				  and not exists (select from replays r where r.endpoint_id = e.id and r.source = $2 and r.state < 2))
			select `+deliveryColumns+` from deliveries d
			where d.endpoint_id in (select id from active) and d.reason <> $3 and d.due_at is null and `+isHeld+`
			order by d.id limit $1 for update of d skip locked`, limit, int16(webhook.ReplayHeld), webhook.ReasonBacklog)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scanDelivery)
		if err != nil {
			return err
		}
		_, _, err = release(ctx, tx, found, time.Now(), longAgo)
		return err
	})
}
