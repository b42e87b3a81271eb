package events

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

func removalOf(at *time.Time, why *string) webhook.PayloadRemoval {
	if at == nil || why == nil {
		return webhook.PayloadRemoval{}
	}
	return webhook.PayloadRemoval{At: at.UTC(), Reason: *why}
}

// ErasePayloads removes the payloads of events, and what their attempts have stored of requests and
// responses, all or none, with an audit entry for each event. The events, their deliveries and their
// idempotency keys stay. It returns an entry for each event that the request names, in its order, and the
// deliveries that it cancels.
//
// No process sends an erased payload any more: it is not erased while it may be in the memory of one.
// What was erased or removed before stays as it is.
//
// Errors: CodeNotFound (an event id), and CodeConflict: a delivery is open and Cancel is not set, or it is
// being sent.
func (s *Events) ErasePayloads(ctx context.Context, by webhook.Actor, tenantID string, e webhook.PayloadErasure) (
	erased []webhook.ErasedPayload, cancelled []webhook.CommandedDelivery, err error,
) {
	err = s.core.OfTenant(tenantID).InTx(ctx, "erase payloads", func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if erased, err = namedEvents(ctx, tx, tenantID, e); err != nil {
			return err
		}
		cancelled = nil
		var ids []webhook.EventID
		for _, of := range erased {
			if !of.EventID.IsZero() {
				ids = append(ids, of.EventID)
			}
		}
		slices.SortFunc(ids, func(a, b webhook.EventID) int { return bytes.Compare(a[:], b[:]) })
		ids = slices.Compact(ids)
		// In the order in which retention locks the tables of a day.
		if _, err := tx.Exec(ctx, `lock table deliveries in row share mode`); err != nil {
			return err
		}
		var all []webhook.DeliveryID
		counts := make(map[webhook.EventID]int, len(ids))
		for _, id := range ids {
			of, stopped, err := s.deliveries.LockForErasure(ctx, tx, tenantID, id, e.Cancel)
			if err != nil {
				return err
			}
			counts[id] = len(stopped)
			all, cancelled = append(all, of...), append(cancelled, stopped...)
		}
		fresh, err := erase(ctx, tx, ids, all)
		if err != nil {
			return err
		}
		for _, id := range fresh {
			detail := postgres.JSONBytes(map[string]string{"cancelled": strconv.Itoa(counts[id])})
			if err := audit.Write(ctx, tx, by, tenantID, audit.EventErasePayload, id.String(), detail); err != nil {
				return err
			}
		}
		return readRemovals(ctx, tx, tenantID, ids, erased)
	})
	if err != nil {
		return nil, nil, err
	}
	return erased, cancelled, nil
}

// namedEvents resolves what a request names.
func namedEvents(ctx context.Context, tx pgx.Tx, tenantID string, e webhook.PayloadErasure) ([]webhook.ErasedPayload, error) {
	all := make([]webhook.ErasedPayload, 0, len(e.IDs)+len(e.ExternalIDs))
	for _, id := range e.IDs {
		all = append(all, webhook.ErasedPayload{EventID: id})
	}
	if len(e.ExternalIDs) == 0 {
		return all, nil
	}
	rows, err := tx.Query(ctx, `select key, event_id from idempotency_keys where tenant_id = $1 and kind = $2 and key = any($3)`,
		tenantID, keyExternalID, e.ExternalIDs)
	if err != nil {
		return nil, err
	}
	var (
		key   string
		event [16]byte
	)
	found := map[string]webhook.EventID{}
	_, err = pgx.ForEachRow(rows, []any{&key, &event}, func() error {
		found[key] = event
		return nil
	})
	for _, external := range e.ExternalIDs {
		all = append(all, webhook.ErasedPayload{ExternalID: external, EventID: found[external]})
	}
	return all, err
}

// erase removes the payloads that are still there, and returns their events.
func erase(ctx context.Context, tx pgx.Tx, ids []webhook.EventID, of []webhook.DeliveryID) ([]webhook.EventID, error) {
	rows, err := tx.Query(ctx, `select everpost_erase_payloads($1, $2)`, deliveries.RawIDs(ids), deliveries.RawIDs(of))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.EventID, error) {
		var id [16]byte
		err := row.Scan(&id)
		return id, err
	})
}

// readRemovals completes the entries of an erasure. An external id whose event is gone counts as unknown.
func readRemovals(ctx context.Context, tx pgx.Tx, tenantID string, ids []webhook.EventID, erased []webhook.ErasedPayload) error {
	removed, err := removals(ctx, tx, tenantID, ids)
	if err != nil {
		return err
	}
	for i := range erased {
		of := &erased[i]
		removal, found := removed[of.EventID]
		if !found && of.ExternalID == "" {
			return webhook.NotFound("event")
		}
		if !found {
			of.EventID = webhook.EventID{}
		}
		of.Removed = removal
	}
	return nil
}

// RemovedPayloads returns those of a tenant's events whose payload was removed.
func (s *Events) RemovedPayloads(ctx context.Context, tenantID string, ids []webhook.EventID) (
	removed map[webhook.EventID]webhook.PayloadRemoval, err error,
) {
	err = s.core.OfTenant(tenantID).WithConn(ctx, "read removed payloads", func(ctx context.Context, conn postgres.Querier) error {
		var err error
		removed, err = removals(ctx, conn, tenantID, ids)
		return err
	})
	return removed, err
}

func removals(ctx context.Context, db postgres.Querier, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.PayloadRemoval, error) {
	rows, err := db.Query(ctx, `
		select e.id, e.payload_removed_at, e.payload_removed_reason from unnest($1::uuid[]) u (id) cross join lateral (
			select id, payload_removed_at, payload_removed_reason from events
			where id = u.id and tenant_id = $2 and payload_removed_at is not null limit 1) e`, deliveries.RawIDs(ids), tenantID)
	if err != nil {
		return nil, err
	}
	removed := map[webhook.EventID]webhook.PayloadRemoval{}
	var (
		id  [16]byte
		at  *time.Time
		why *string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &why}, func() error {
		removed[id] = removalOf(at, why)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read removed payloads of %s: %w", tenantID, err)
	}
	return removed, nil
}
