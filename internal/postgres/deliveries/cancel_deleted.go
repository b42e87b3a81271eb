package deliveries

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	cancelAtOnce = 3 * time.Second // of the request that deletes an endpoint; Maintain does the rest
	cancelRead   = 100_000         // ids in memory
	cancelBatch  = 1000            // rows locked together, for about 20 ms
	// releaseEvery is the time between two batches that the relay is to start, so that it
	// can start others in between.
	releaseEvery = time.Second

	// isUncancelled selects open deliveries of a deleted endpoint that have no cancel command
	// yet. A held one with an outbox row is being released, and needs none.
	isUncancelled = `d.state ` + postgres.IsOpen + ` and d.command <> ` + postgres.CommandCancel + ` and not (d.state = ` + postgres.Held + `
		and exists (select from outbox o where o.delivery_id = d.id))`
)

// CancelAfterDelete cancels the open deliveries of a deleted endpoint, for a few seconds. Maintain
// cancels the rest. An error here does not undo the deletion.
func (s *Deliveries) CancelAfterDelete(ctx context.Context, tenantID string, id webhook.EndpointID) {
	ctx, cancel := context.WithTimeout(ctx, cancelAtOnce)
	defer cancel()
	if err := s.cancelOpenDeliveries(ctx, tenantID, id); err != nil {
		s.core.Log.WarnContext(ctx, "deliveries of a deleted endpoint are cancelled later", slog.String("endpoint", id.String()), slog.Any("error", err))
		select {
		case s.uncancelled <- struct{}{}:
		default:
		}
	}
}

// HasUncancelled is sent to when CancelRemaining has something to finish.
func (s *Deliveries) HasUncancelled() <-chan struct{} { return s.uncancelled }

// cancelOpenDeliveries writes a cancel command for every open delivery of a deleted endpoint that
// has a row. A delivery without a row is cancelled by its first attempt, which finds the endpoint
// deleted. A held one is released instead, and cancelled by its next attempt: released deliveries
// share workflows, and a command would need a workflow for each.
//
// Each batch is a transaction of its own that locks in the order of the keys, like
// flushRecords: one statement over all of them would make the steps of all other deliveries
// wait. A crash between two batches is safe: endpoints.deleted_at says that there may be more.
func (s *Deliveries) cancelOpenDeliveries(ctx context.Context, tenantID string, id webhook.EndpointID) error {
	start, batches := time.Now(), 0 // batches with released deliveries
	for {
		ids, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read open deliveries", pgx.RowTo[[16]byte], `
			select id from (
				select id from deliveries d where d.endpoint_id = $1 and d.tenant_id = $2 and `+isUncancelled+` limit $3) d
			order by id`, id, tenantID, cancelRead)
		if err != nil || len(ids) == 0 {
			return err
		}
		for from := 0; from < len(ids); from += cancelBatch {
			released, err := s.cancelOpen(ctx, tenantID, ids[from:min(from+cancelBatch, len(ids))],
				max(0, time.Duration(batches)*releaseEvery-time.Since(start)))
			if err != nil {
				return err
			}
			if released {
				batches++
			}
		}
		if len(ids) < cancelRead {
			return nil
		}
	}
}

// cancelOpen cancels or releases one batch. The relay starts the released ones once after has passed.
func (s *Deliveries) cancelOpen(ctx context.Context, tenantID string, ids [][16]byte, after time.Duration) (released bool, err error) {
	err = s.core.OfTenant(tenantID).InTx(ctx, "cancel deliveries of a deleted endpoint", func(ctx context.Context, tx pgx.Tx) error {
		// All at once, because two statements would lock in an order of their own.
		if _, err := tx.Exec(ctx, `select from deliveries where id = any($1) and state `+postgres.IsOpen+` order by id for update`, ids); err != nil {
			return err
		}
		held, err := LockDeliveries(ctx, tx, ids, IsHeld)
		if err != nil {
			return err
		}
		if _, err := Release(ctx, tx, s.core.Now(), held, after); err != nil {
			return err
		}
		released = len(held) > 0
		_, err = tx.Exec(ctx, `
			update deliveries d set command = $2, command_id = command_id + 1, command_reason = $3,
				commanded_at = now() - $4::bigint * interval '1 millisecond', command_signals = 0 -- due at once, behind what is due already
			where id = any($1) and `+isUncancelled, ids, int16(webhook.CommandCancel), webhook.ReasonEndpointDeleted, RelayAfter.Milliseconds())
		return err
	})
	return released, err
}

// CancelRemaining finishes what an interrupted deletion of an endpoint left undone.
// Longer than a month after it nothing can be open: attempts find the endpoint gone.
func (s *Deliveries) CancelRemaining(ctx context.Context) error {
	type deleted struct {
		ID       [16]byte
		TenantID string
	}
	left, err := postgres.QueryAll(ctx, s.core.AsWorker(), "look for deleted endpoints", pgx.RowToStructByPos[deleted], `
		select id, tenant_id from endpoints e where deleted_at > now() - interval '31 days'
			and exists (select from deliveries d where d.endpoint_id = e.id and d.tenant_id = e.tenant_id and `+isUncancelled+`)
		order by deleted_at limit 1000`)
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
