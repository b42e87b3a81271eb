package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// apartOf says how items are written that need a row which another transaction has locked: their delivery's, its outbox row, or the release of the
// endpoint that it is held for.
func apartOf[T any](s *postgres.Core, needs func(T) lockable) *groupcommit.Apart[T] {
	return &groupcommit.Apart[T]{
		Keys: func(item T) []any { return []any{needs(item).key()} },
		Turn: &s.StepTurn,
		Locked: func(ctx context.Context, items []T) ([][]any, error) {
			locked, err := findLocked(ctx, s, postgres.ValuesOf(items, func(item T) [16]byte { return needs(item).delivery }),
				postgres.ValuesOf(items, func(item T) [16]byte { return needs(item).release }))
			return postgres.ValuesOf(items, func(item T) (keys []any) {
				if locked[needs(item).delivery] || locked[needs(item).release] {
					keys = []any{needs(item).key()}
				}
				return keys
			}), err
		},
	}
}

// lockable are the ids of what an item writes.
type lockable struct {
	delivery webhook.DeliveryID
	release  webhook.EndpointID // zero: none, it is no hold
}

// key is what is remembered when a lock was met: the release, for which all holds of the endpoint wait, or the delivery.
func (l lockable) key() any {
	if l.release != (webhook.EndpointID{}) {
		return l.release
	}
	return l.delivery
}

// findLocked returns those of the deliveries and of the endpoints' releases that another transaction has locked. It reads them by key, and waits for
// nothing. It does not see a row that another transaction is inserting.
func findLocked(ctx context.Context, s *postgres.Core, ids, endpoints [][16]byte) (map[[16]byte]bool, error) {
	rows, err := s.StepPool.Query(ctx, `
		with free as materialized (select id from deliveries where id = any($1) for no key update skip locked),
		free_rows as materialized (select delivery_id as id from outbox where delivery_id = any($1) for update skip locked),
		free_releases as materialized (select endpoint_id as id from releases where endpoint_id = any($2) for no key update skip locked)
		select id from deliveries where id = any($1) and id <> all(array(select id from free))
		union all select delivery_id from outbox where delivery_id = any($1) and delivery_id <> all(array(select id from free_rows))
		union all select endpoint_id from releases where endpoint_id = any($2) and endpoint_id <> all(array(select id from free_releases))`, ids, endpoints)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	locked := make(map[[16]byte]bool, len(found))
	for _, id := range found {
		locked[id] = true
	}
	return locked, err
}
