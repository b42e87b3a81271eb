package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// FaultyEndpoints are the active endpoints for which something is held because of a fault
// of our own: at most limit, those after the given one, in the order of their ids.
func (s *Held) FaultyEndpoints(ctx context.Context, after webhook.EndpointID, limit int) ([]webhook.EndpointID, error) {
	return queryAll(ctx, s.asWorker(), "look for endpoints with a fault of our own", func(row pgx.CollectableRow) (webhook.EndpointID, error) {
		var id [16]byte
		err := row.Scan(&id)
		return id, err
	}, `
		with recursive held (id) as ( -- from endpoint to endpoint through the index of what is held
			(select endpoint_id from deliveries where state = 2 and endpoint_id > $1 order by endpoint_id limit 1)
			union all
			select (select endpoint_id from deliveries where state = 2 and endpoint_id > held.id order by endpoint_id limit 1)
			from held where held.id is not null)
		select e.id from held join endpoints e on e.id = held.id
		where e.state = 0 and e.deleted_at is null
		  and exists (select from deliveries d where d.endpoint_id = e.id and d.state = 2 and d.reason = $2 and d.due_at is null)
		limit $3`, after, webhook.ReasonInternal, limit)
}

// ReleaseFaulty is ReleaseBacklog for what is held because of a fault of our own.
func (s *Held) ReleaseFaulty(ctx context.Context, endpoint webhook.EndpointID, limit int) (starts []webhook.Start, commands []webhook.Commanded, err error) {
	err = s.asWorker().inTx(ctx, "release what a fault of our own has held", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+deliveryColumns+` from deliveries d
			where d.endpoint_id = $1 and d.reason = $2 and d.due_at is null and `+isHeld+`
			  and exists (select from endpoints e where e.id = $1 and e.state = 0 and e.deleted_at is null)
			order by d.id limit $3 for update of d skip locked`, endpoint, webhook.ReasonInternal, limit)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scanDelivery)
		if err != nil {
			return err
		}
		starts, commands, err = release(ctx, tx, s.now(), found, relayAfter, 0)
		return err
	})
	return starts, commands, err
}
