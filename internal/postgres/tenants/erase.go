package tenants

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// BeginDeletion deletes the tenant with its keys, sessions, endpoints and replays, and asks for the removal of
// everything else that is stored of it: see EraseTenant. From then on there is no such tenant, so that nothing
// more is accepted for it or sent. The audit log names who asked for it.
//
// It also takes a tenant whose rows DeleteTenant has left, and one that is being deleted. CodeNotFound: there is
// neither.
func (s *Tenants) BeginDeletion(ctx context.Context, by webhook.Actor, id string) (d webhook.TenantDeletion, err error) {
	var changes []postgres.Change
	defer func() {
		for _, c := range changes {
			s.core.ChangedHere(c)
		}
	}()
	err = s.core.AsOperator().InTx(ctx, "delete everything of tenant "+id, func(ctx context.Context, tx pgx.Tx) error {
		changes = []postgres.Change{{Kind: postgres.ChangeTenant, Tenant: id}}
		switch err := lockTenant(ctx, tx, id); {
		case webhook.CodeOf(err) == webhook.CodeNotFound:
			return s.takeDeleted(ctx, tx, by, id, &d)
		case err != nil:
			return err
		}
		rows, err := tx.Query(ctx, `select id from endpoints where tenant_id = $1 and deleted_at is null`, id)
		if err != nil {
			return err
		}
		live, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil {
			return err
		}
		for _, endpoint := range live { // workers know them
			changes = append(changes, postgres.Change{Kind: postgres.ChangeEndpoint, ID: webhook.EndpointID(endpoint).String(), Tenant: id})
		}
		if _, err := tx.Exec(ctx, `delete from tenants where id = $1`, id); err != nil {
			return err
		}
		if d, err = scanDeletion(tx.QueryRow(ctx, `
			insert into deleted_tenants (id, everything) values ($1, true)
			on conflict (id) do update set deleted_at = now(), everything = true, completed_at = null
			returning `+deletionColumns, id)); err != nil {
			return err
		}
		for _, c := range changes {
			if err := postgres.Notify(ctx, tx, c); err != nil {
				return err
			}
		}
		return auditDeletion(ctx, tx, by, id)
	})
	return d, err
}

// takeDeleted is BeginDeletion for a tenant that was deleted before.
func (s *Tenants) takeDeleted(ctx context.Context, tx pgx.Tx, by webhook.Actor, id string, d *webhook.TenantDeletion) (err error) {
	if *d, err = readDeletion(ctx, tx, id); err == nil {
		return nil
	} else if webhook.CodeOf(err) != webhook.CodeNotFound {
		return err
	}
	*d, err = scanDeletion(tx.QueryRow(ctx, `
		update deleted_tenants set everything = true where id = $1 and not everything returning `+deletionColumns, id))
	if err != nil {
		return err
	}
	return auditDeletion(ctx, tx, by, id)
}

func auditDeletion(ctx context.Context, tx pgx.Tx, by webhook.Actor, id string) error {
	return audit.Write(ctx, tx, by, id, audit.TenantDelete, id, postgres.JSONBytes(map[string]string{"everything": "true"}))
}

// Deletion is the progress of the deletion of a tenant; CodeNotFound if none is under way.
func (s *Tenants) Deletion(ctx context.Context, id string) (d webhook.TenantDeletion, err error) {
	err = s.core.AsOperator().WithConn(ctx, "read the deletion of tenant "+id, func(ctx context.Context, conn postgres.Querier) error {
		d, err = readDeletion(ctx, conn, id)
		return err
	})
	return d, err
}

// CheckDeletion returns CodeNotFound unless everything of a tenant is being deleted.
func (s *Tenants) CheckDeletion(ctx context.Context, id string) error {
	return s.core.AsWorker().WithConn(ctx, "read the deletion of tenant "+id, func(ctx context.Context, conn postgres.Querier) error {
		_, err := readDeletion(ctx, conn, id)
		return err
	})
}

const deletionColumns = `deleted_at, removed_table, removed_rows`

func readDeletion(ctx context.Context, db postgres.Querier, id string) (webhook.TenantDeletion, error) {
	return scanDeletion(db.QueryRow(ctx, `select `+deletionColumns+` from deleted_tenants where id = $1 and everything and completed_at is null`, id))
}

func scanDeletion(row pgx.Row) (d webhook.TenantDeletion, err error) {
	err = row.Scan(&d.Since, &d.Table, &d.Rows)
	if postgres.IsNoRows(err) {
		return d, webhook.NotFound("tenant")
	}
	d.Since = d.Since.UTC()
	return d, err
}

// Deletions are the ids of tenants whose deletion is under way.
func (s *Tenants) Deletions(ctx context.Context, limit int) ([]string, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), "read deletions of tenants", pgx.RowTo[string],
		`select id from deleted_tenants where everything and completed_at is null order by deleted_at limit $1`, limit)
}

// EraseTenant removes a batch of rows of a tenant that is being deleted, and returns how many; 0 when none is
// left.
func (s *Tenants) EraseTenant(ctx context.Context, id string) (rows int64, err error) {
	err = s.core.AsWorker().WithConn(ctx, "remove rows of tenant "+id, func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select everpost_erase_tenant($1, $2)`, id, postgres.DeleteBatch).Scan(&rows)
	})
	return rows, err
}

// CompleteDeletion records that nothing is left of a tenant.
func (s *Tenants) CompleteDeletion(ctx context.Context, id string) error {
	return s.core.AsWorker().WithConn(ctx, "complete the deletion of tenant "+id, func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `update deleted_tenants set completed_at = now() where id = $1 and everything and completed_at is null`, id)
		return err
	})
}

// eraseLate removes what was stored of tenants after their deletion: a shared workflow with deliveries of several
// tenants may record the end of one much later.
func (s *Tenants) eraseLate(ctx context.Context) error {
	ids, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read deleted tenants", pgx.RowTo[string],
		`select id from deleted_tenants where everything and completed_at is not null`)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := postgres.InBatches(ctx, func() (bool, error) {
			rows, err := s.EraseTenant(ctx, id)
			return rows > 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
