package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	cancelAtOnce = 3 * time.Second // of the request that deletes an endpoint; Maintain does the rest
	cancelRead   = 100_000         // ids in memory
	cancelBatch  = 1000            // rows locked together, for about 20 ms
)

// cancelAfterDelete begins to cancel what the deleted endpoint leaves open, and
// leaves to Maintain what does not get done: the deletion itself stands.
func (s *Store) cancelAfterDelete(ctx context.Context, tenantID string, id webhook.EndpointID) {
	ctx, cancel := context.WithTimeout(ctx, cancelAtOnce)
	defer cancel()
	if err := s.cancelOpenDeliveries(ctx, tenantID, id); err != nil {
		s.log.WarnContext(ctx, "deliveries of a deleted endpoint are cancelled later", slog.String("endpoint", id.String()), slog.Any("error", err))
		select {
		case s.leftOpen <- struct{}{}:
		default:
		}
	}
}

// cancelOpenDeliveries asks every open delivery of a deleted endpoint to be
// cancelled. Those without a record find the endpoint gone with their first attempt.
//
// Each batch is a transaction of its own that locks in the order of the keys, like
// flushRecords: one statement over all of them would make the records of everybody
// wait. Dying in between is safe: endpoints.deleted_at says that there may be more.
func (s *Store) cancelOpenDeliveries(ctx context.Context, tenantID string, id webhook.EndpointID) error {
	for {
		ids, err := queryAll(ctx, s, "read open deliveries", pgx.RowTo[[16]byte], `
			select id from (
				select id from deliveries where endpoint_id = $1 and tenant_id = $2 and state < 3 and command <> $3 limit $4) d
			order by id`, id, tenantID, int16(webhook.CommandCancel), cancelRead)
		if err != nil || len(ids) == 0 {
			return err
		}
		for from := 0; from < len(ids); from += cancelBatch {
			if err := s.cancelOpen(ctx, ids[from:min(from+cancelBatch, len(ids))]); err != nil {
				return err
			}
		}
		if len(ids) < cancelRead {
			return nil
		}
	}
}

func (s *Store) cancelOpen(ctx context.Context, ids [][16]byte) error {
	return s.withConn(ctx, "cancel deliveries of a deleted endpoint", func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `
			with open as (select id from deliveries where id = any($1) and state < 3 order by id for update)
			update deliveries d set command = $2, command_id = command_id + 1, command_reason = $3, commanded_at = now() - interval '1 hour'
			from open where d.id = open.id`, ids, int16(webhook.CommandCancel), webhook.ReasonEndpointDeleted)
		return err
	})
}

// cancelLeftOpen finishes what an interrupted deletion of an endpoint left undone.
// Longer than a month after it nothing can be open: attempts find the endpoint gone.
func (s *Store) cancelLeftOpen(ctx context.Context) error {
	type deleted struct {
		ID       [16]byte
		TenantID string
	}
	left, err := queryAll(ctx, s, "look for deleted endpoints", pgx.RowToStructByPos[deleted], `
		select id, tenant_id from endpoints e where deleted_at > now() - interval '31 days'
			and exists (select from deliveries d where d.endpoint_id = e.id and d.tenant_id = e.tenant_id and d.state < 3 and d.command <> $1)
		order by deleted_at limit 1000`, int16(webhook.CommandCancel))
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := s.cancelOpenDeliveries(ctx, e.TenantID, e.ID); err != nil {
			return err
		}
	}
	return nil
}
