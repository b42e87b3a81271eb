package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// tombstoneFor is for how long at least the id of a deleted tenant cannot be used again:
	// longer than a flush that has read the tenant takes, and than any cache keeps it.
	tombstoneFor = 10 * time.Minute

	// lateFor is for how long the id of a tenant cannot be used again of which everything was removed, because
	// late rows may be stored: longer than any delivery stays open.
	lateFor = 31 * 24 * time.Hour

	tombstoneBatch = 200 // ids checked together, each in every day's index
)

// refuseDeleted returns CodeConflict for the id of a deleted tenant of which something is kept, or may be
// stored late. It runs after the new tenant's row is inserted, which makes a deletion of the id wait.
func refuseDeleted(ctx context.Context, tx pgx.Tx, id string) error {
	var everything bool
	err := tx.QueryRow(ctx, `select everything from deleted_tenants where id = $1`, id).Scan(&everything)
	switch {
	case postgres.IsNoRows(err):
		return nil
	case err != nil:
		return err
	}
	message := "a tenant with this id was deleted, and some of its events or deliveries are still kept: " +
		"take another id, or wait until retention has removed them"
	if everything {
		message = fmt.Sprintf("a tenant with this id was deleted with everything: take another id; this one is free %d days after the removal",
			lateFor/postgres.Day)
	}
	return &webhook.Error{Code: webhook.CodeConflict, Message: message}
}

// PruneDeletedTenants removes what was stored late of tenants of which everything was removed. It frees the ids of
// deleted tenants of which no row is left, and returns how many.
func (s *Tenants) PruneDeletedTenants(ctx context.Context) (freed int64, err error) {
	if err := s.eraseLate(ctx); err != nil {
		return 0, err
	}
	after := ""
	err = postgres.InBatches(ctx, func() (bool, error) {
		var last *string
		var gone int64
		err := s.core.AsWorker().WithConn(ctx, "free the ids of deleted tenants", func(ctx context.Context, conn postgres.Querier) error {
			return conn.QueryRow(ctx, pruneDeletedTenants, after, tombstoneFor.Milliseconds(), tombstoneBatch, lateFor.Milliseconds()).Scan(&last, &gone)
		})
		freed += gone
		if last != nil {
			after = *last
		}
		return last != nil, err
	})
	return freed, err
}

// Each subquery finds the first tenant id at or after the given one, by the index on tenants, and
// compares it. A search for a row of the tenant may scan a whole day that has none, because the
// planner assumes that every tenant has many.
const pruneDeletedTenants = `
	with old as (
		select id from deleted_tenants
		where id > $1 and deleted_at < now() - $2::bigint * interval '1 millisecond'
			and (not everything or completed_at < now() - $4::bigint * interval '1 millisecond')
		order by id limit $3),
	gone as (
		delete from deleted_tenants t using old o
		where t.id = o.id
		  and (select x.tenant_id from outbox x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from idempotency_keys x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from deliveries x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from events x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from statistics_minutes x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from statistics_hours x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		returning 1)
	select (select max(id) from old), (select count(*) from gone)`
