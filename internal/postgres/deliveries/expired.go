package deliveries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// expiredTurns is of how many tenants ReleaseExpired looks at held deliveries at a time.
const expiredTurns = 32

const (
	// expires is when a held delivery d is given up. There are indexes on it.
	expires = `coalesce(d.held_until, d.give_up_at)`
	// isExpired selects held deliveries d to be given up.
	isExpired = expires + ` < now() and ` + IsHeld
	// anyExpired are the oldest ones, up to $1, and tenantsExpired those of some tenants, one of each in turn.
	anyExpired = `select ` + Columns + ` from deliveries d where ` + isExpired + ` order by ` + expires + ` limit $1 for update of d skip locked`
	//nolint:unqueryvet // the columns are those of the inner query
	tenantsExpired = `
		select d.* from unnest($2::text[]) t (id) cross join lateral (
			select ` + Columns + ` from deliveries d where d.tenant_id = t.id and ` + isExpired + `
			order by ` + expires + ` limit $1 for update of d skip locked) d`
)

// ReleaseExpired releases up to limit held deliveries that have been held for as long as they may be. Their workflows then give them up. It releases none while
// starts are later than usual: new events come first.
//
// Half of them are the longest expired. If more than that have expired, the others are of the next 32 tenants with held deliveries after those of the
// call before, the same number of each: so many of one tenant delay another's only until the tenant's turn comes.
//
// It reads the index deliveries_expires from its beginning, some three blocks for each partition, and four for each delivery. If more have expired
// it reads deliveries_expires_by_tenant besides: twice that for each of these tenants.
func (s *Releases) ReleaseExpired(ctx context.Context, limit int) (starts []webhook.Start, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "release expired deliveries", func(ctx context.Context, tx pgx.Tx) error {
		starts = nil
		if late, err := OutboxIsLate(ctx, tx); err != nil || late {
			return err
		}
		most := max(1, limit/2) //nolint:mnd // half
		starts, err = s.releaseExpired(ctx, tx, anyExpired, most)
		if err != nil || len(starts) < most || limit == most {
			return err
		}
		tenants, err := s.nextHeld(ctx, tx)
		if err != nil || len(tenants) == 0 {
			return err
		}
		more, err := s.releaseExpired(ctx, tx, tenantsExpired, max(1, (limit-most)/len(tenants)), tenants)
		starts = append(starts, more...)
		return err
	})
	return starts, err
}

func (s *Releases) releaseExpired(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]webhook.Start, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, Scan)
	if err != nil {
		return nil, err
	}
	return release(ctx, tx, s.core.Now(), found, insertOutboxRows)
}

// nextHeld returns the next tenants with held deliveries, after those of the call before.
func (s *Releases) nextHeld(ctx context.Context, tx pgx.Tx) ([]string, error) {
	const next = `select d.tenant_id from deliveries d where d.state = ` + postgres.Held + ` and d.tenant_id > `
	rows, err := tx.Query(ctx, `
		with recursive tenant as (
			(`+next+`$1 order by d.tenant_id limit 1)
			union all
			select (`+next+`t.id order by d.tenant_id limit 1) from tenant t (id) where t.id is not null)
		select id from tenant t (id) where id is not null limit $2`, s.expired.get(), expiredTurns)
	if err != nil {
		return nil, err
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	after := ""
	if len(tenants) == expiredTurns {
		after = tenants[expiredTurns-1]
	}
	s.expired.set(after)
	return tenants, nil
}
