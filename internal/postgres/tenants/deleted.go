package tenants

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// tombstoneFor is how long at least the id of a deleted tenant cannot be used again:
	// longer than a flush that has seen the tenant takes, and than any cache remembers it.
	tombstoneFor = 10 * time.Minute

	tombstoneBatch = 200 // looked at together, each in every day's index
)

// refuseDeleted refuses the id of a tenant that was deleted and that something is left of.
// It is asked when the new tenant's row is there: a deletion of this id waits from then on.
func refuseDeleted(ctx context.Context, tx pgx.Tx, id string) error {
	var deleted bool
	err := tx.QueryRow(ctx, `select exists (select from deleted_tenants where id = $1)`, id).Scan(&deleted)
	if err == nil && deleted {
		return &webhook.Error{
			Code: webhook.CodeConflict,
			Message: "a tenant with this id was deleted, and some of its events or deliveries are still kept: " +
				"take another id, or wait until retention has removed them",
		}
	}
	return err
}

// PruneDeletedTenants frees the ids of deleted tenants that nothing is left of, and says
// how many.
func (s *Tenants) PruneDeletedTenants(ctx context.Context) (freed int64, err error) {
	for after := ""; ; {
		begun := time.Now()
		var last *string
		var gone int64
		err := s.core.AsWorker().WithConn(ctx, "free the ids of deleted tenants", func(ctx context.Context, conn postgres.Querier) error {
			return conn.QueryRow(ctx, pruneDeletedTenants, after, tombstoneFor.Milliseconds(), tombstoneBatch).Scan(&last, &gone)
		})
		freed += gone
		if err != nil || last == nil {
			return freed, err
		}
		after = *last
		if err := postgres.Rest(ctx, begun); err != nil {
			return freed, err
		}
	}
}

// The first id from a tenant's on is asked for, and compared: the index by tenant alone has
// that order. Asked for a row of the tenant's, the planner may go through a whole day that
// has none, because it believes that any tenant has many.
const pruneDeletedTenants = `
	with old as (
		select id from deleted_tenants
		where id > $1 and deleted_at < now() - $2::bigint * interval '1 millisecond' order by id limit $3),
	gone as (
		delete from deleted_tenants t using old o
		where t.id = o.id
		  and (select x.tenant_id from outbox x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from idempotency_keys x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from deliveries x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		  and (select x.tenant_id from events x where x.tenant_id >= o.id order by x.tenant_id limit 1) is distinct from o.id
		returning 1)
	select (select max(id) from old), (select count(*) from gone)`
