package health

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	actionCloseCircuit = "endpoint.close_circuit"
	// closingLife is for how long a closing is passed to workers. They ask every second while they have open
	// circuits. A circuit that opens later has failed again.
	closingLife = 10 * time.Second
)

// Observations reads the observations of an endpoint by all workers but the named one.
func (s *EndpointHealth) Observations(ctx context.Context, tenantID string, id webhook.EndpointID, but string) ([]webhook.Observation, error) {
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read the health of endpoint "+id.String(), pgx.RowTo[webhook.Observation], `
		select seen from endpoint_health
		where endpoint_id = $1 and worker <> $2 and seen_at > now() - $3::bigint * interval '1 millisecond'
		order by worker`, id, but, observationLife.Milliseconds())
}

// ObservationsOf reads the observations of endpoints by all workers but the named one. Endpoints without
// any are left out.
func (s *EndpointHealth) ObservationsOf(ctx context.Context, tenantID string, ids []webhook.EndpointID, but string) (
	map[webhook.EndpointID][]webhook.Observation, error,
) {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	seen := map[webhook.EndpointID][]webhook.Observation{}
	err := s.core.OfTenant(tenantID).WithConn(ctx, "read the health of endpoints", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select endpoint_id, seen from endpoint_health
			where endpoint_id = any($1) and worker <> $2 and seen_at > now() - $3::bigint * interval '1 millisecond'
			order by worker`, raw, but, observationLife.Milliseconds())
		if err != nil {
			return err
		}
		var (
			id [16]byte
			o  webhook.Observation
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &o}, func() error {
			seen[id], o = append(seen[id], o), webhook.Observation{}
			return nil
		})
		return err
	})
	return seen, err
}

// CloseCircuit stores that an endpoint's circuit was closed by hand, with the audit entry. The
// workers read it by CircuitClosings. The same transaction gives the oldest delivery that waits for
// the endpoint a retry command, which makes it the probe; the command is zero when none waits.
// CodeNotFound.
//
// It does not check whether the circuit is open: only the workers know.
func (s *EndpointHealth) CloseCircuit(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (closed webhook.ClosedCircuit, err error) {
	if closed.Endpoint, err = s.endpoints.Endpoint(ctx, tenantID, id); err != nil {
		return closed, err
	}
	err = s.core.OfTenant(tenantID).InTx(ctx, "close the circuit of endpoint "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into circuit_closings (endpoint_id) values ($1)
			on conflict (endpoint_id) do update set closed_at = excluded.closed_at returning closed_at`, id).Scan(&closed.At)
		if err != nil {
			return err
		}
		detail := map[string]string{}
		if closed.Endpoint.State == webhook.EndpointActive { // else it would be held
			if closed.Delivery, closed.Command, err = retryOldest(ctx, tx, tenantID, id); err != nil {
				return err
			}
		}
		if closed.Command.ID != 0 {
			detail["delivery_id"] = closed.Delivery.DeliveryID.String()
		}
		return audit.Write(ctx, tx, by, tenantID, actionCloseCircuit, id.String(), postgres.JSONBytes(detail))
	})
	return closed, err
}

// retryOldest stores a retry command for the oldest delivery that waits for an endpoint: a deferred
// or retrying one, or one held as backlog. It leaves out deliveries scheduled by a command, those
// whose request is under way, and those with a command pending.
func retryOldest(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID) (webhook.Delivery, webhook.PendingCommand, error) {
	c := webhook.PendingCommand{Command: webhook.CommandRetry}
	rows, err := tx.Query(ctx, `
		select `+deliveries.Columns+` from deliveries d
		where d.endpoint_id = $1 and d.tenant_id = $2 and d.state `+postgres.IsOpen+` and d.command = `+postgres.NoCommand+`
		  and (d.owner is null or d.owner_until < now())
		  and (d.state = `+postgres.Retrying+` and d.due_at is not null or d.state = `+postgres.Pending+` and d.due_at is not null and d.reason <> ''
			or d.state = `+postgres.Held+` and d.reason = $3)
		order by d.id limit 1 for update of d skip locked`, id, tenantID, webhook.ReasonBacklog)
	if err != nil {
		return webhook.Delivery{}, c, err
	}
	probe, err := pgx.CollectExactlyOneRow(rows, deliveries.Scan)
	if postgres.IsNoRows(err) {
		return webhook.Delivery{}, webhook.PendingCommand{}, nil
	}
	if err != nil {
		return webhook.Delivery{}, c, err
	}
	c.ID, err = deliveries.StoreCommand(ctx, tx, probe.DeliveryID, c)
	return probe, c, err
}

// CircuitClosings returns when circuits of endpoints were closed by hand within closingLife.
func (s *EndpointHealth) CircuitClosings(ctx context.Context, of []webhook.EndpointID) (map[webhook.EndpointID]time.Time, error) {
	ids := make([][16]byte, len(of))
	for i, id := range of {
		ids[i] = id
	}
	closed := map[webhook.EndpointID]time.Time{}
	err := s.core.AsWorker().WithConn(ctx, "look for closed circuits", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select endpoint_id, closed_at from circuit_closings
			where endpoint_id = any($1) and closed_at > now() - $2::bigint * interval '1 millisecond'`, ids, closingLife.Milliseconds())
		if err != nil {
			return err
		}
		var (
			id [16]byte
			at time.Time
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
			closed[id] = at.UTC()
			return nil
		})
		return err
	})
	return closed, err
}
