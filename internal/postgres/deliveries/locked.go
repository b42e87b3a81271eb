package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// apartOf says how items are written whose delivery another transaction has locked, or its outbox row.
func apartOf[T any](s *postgres.Core, id func(T) webhook.DeliveryID) *groupcommit.Apart[T] {
	return &groupcommit.Apart[T]{
		Key:  func(item T) any { return id(item) },
		Turn: &s.StepTurn,
		Locked: func(ctx context.Context, items []T) ([]bool, error) {
			locked, err := findLocked(ctx, s, postgres.ValuesOf(items, func(item T) [16]byte { return id(item) }))
			return postgres.ValuesOf(items, func(item T) bool { return locked[id(item)] }), err
		},
	}
}

// findLocked returns those of the deliveries that another transaction has locked. It reads them by key, and waits for nothing. It does not see a
// row that another transaction is inserting.
func findLocked(ctx context.Context, s *postgres.Core, ids [][16]byte) (map[webhook.DeliveryID]bool, error) {
	rows, err := s.StepPool.Query(ctx, `
		with free as materialized (select id from deliveries where id = any($1) for no key update skip locked),
		free_rows as materialized (select delivery_id as id from outbox where delivery_id = any($1) for update skip locked)
		select id from deliveries where id = any($1) and id <> all(array(select id from free))
		union all select delivery_id from outbox where delivery_id = any($1) and delivery_id <> all(array(select id from free_rows))`, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanID)
	locked := make(map[webhook.DeliveryID]bool, len(found))
	for _, id := range found {
		locked[id] = true
	}
	return locked, err
}
