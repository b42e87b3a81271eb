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

	// isUncancelled selects open deliveries of a deleted endpoint that have no cancel command
	// yet. What is held without a command or a claim needs none: it is released, and its next attempt cancels it.
	isUncancelled = `d.state ` + postgres.IsOpen + ` and d.command <> ` + postgres.CommandCancel + ` and not (d.state = ` + postgres.Held + `
		and d.command = ` + postgres.NoCommand + ` and (d.owner is null or d.owner_until < now() - interval '2 minutes'))`
)

// CancelAfterDelete cancels the open deliveries of a deleted endpoint, for a few seconds. Maintain
// cancels the rest. An error here does not undo the deletion.
func (s *Deliveries) CancelAfterDelete(ctx context.Context, tenantID string, id webhook.EndpointID) {
	ctx, cancel := context.WithTimeout(ctx, cancelAtOnce)
	defer cancel()
	if err := cancelOpenDeliveries(ctx, s.core, tenantID, id); err != nil {
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
// deleted, and a held one by the first attempt after its release.
//
// Each batch is a transaction of its own that locks in the order of the keys, like
// flushRecords: one statement over all of them would make the steps of all other deliveries
// wait. A crash between two batches is safe: endpoints.deleted_at says that there may be more.
func cancelOpenDeliveries(ctx context.Context, core *postgres.Core, tenantID string, id webhook.EndpointID) error {
	for {
		ids, err := postgres.QueryAll(ctx, core.OfTenant(tenantID), "read open deliveries", pgx.RowTo[[16]byte], `
			select id from (
				select id from deliveries d where d.endpoint_id = $1 and d.tenant_id = $2 and `+isUncancelled+` limit $3) d
			order by id`, id, tenantID, cancelRead)
		if err != nil || len(ids) == 0 {
			return err
		}
		for from := 0; from < len(ids); from += cancelBatch {
			if err := cancelOpen(ctx, core, tenantID, ids[from:min(from+cancelBatch, len(ids))]); err != nil {
				return err
			}
		}
		if len(ids) < cancelRead {
			return nil
		}
	}
}

// cancelOpen cancels one batch.
func cancelOpen(ctx context.Context, core *postgres.Core, tenantID string, ids [][16]byte) error {
	return core.OfTenant(tenantID).InTx(ctx, "cancel deliveries of a deleted endpoint", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select from deliveries where id = any($1) and state `+postgres.IsOpen+` order by id for update`, ids); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			update deliveries d set command = $2, command_id = command_id + 1, command_reason = $3,
				commanded_at = now() - $4::bigint * interval '1 millisecond', command_signals = 0 -- due at once, behind what is due already
			where id = any($1) and `+isUncancelled, ids, int16(webhook.CommandCancel), webhook.ReasonEndpointDeleted, RelayAfter.Milliseconds())
		return err
	})
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
		if err := cancelOpenDeliveries(ctx, s.core, e.TenantID, e.ID); err != nil {
			return err
		}
	}
	return nil
}
