// Package tenants stores tenants with their limits and retry policies, and the ids of deleted tenants that
// may not be used again yet. Quotas keeps the limits in memory.
package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Tenants stores tenants and their limits.
type Tenants struct {
	core *postgres.Core

	quotas *Quotas
}

// New makes a Tenants.
func New(s *postgres.Core, quotas *Quotas) *Tenants { return &Tenants{core: s, quotas: quotas} }

const tenantColumns = `id, name, contact, metadata, limits, retention, retry_policy, created_at, updated_at`

// PutTenant creates the tenant or replaces its name, contact, metadata, limits, retention and
// retry policy. The times are the database's. The audit log names the fields that changed.
// CodeConflict: the id is a deleted tenant's whose events or deliveries are still kept.
func (s *Tenants) PutTenant(ctx context.Context, by webhook.Actor, t webhook.Tenant) (stored webhook.Tenant, created bool, err error) {
	return s.writeTenant(ctx, by, audit.TenantReplace, t.ID, func(webhook.Tenant) (webhook.Tenant, error) { return t, nil })
}

// UpdateTenant locks the tenant, lets change edit it and writes it back. It returns an error of
// change unaltered, and then writes nothing; a change that changes nothing writes nothing either.
// Changes of the id and the times are ignored. CodeNotFound: no such tenant.
func (s *Tenants) UpdateTenant(ctx context.Context, by webhook.Actor, id string, change func(*webhook.Tenant) error) (webhook.Tenant, error) {
	var before webhook.Tenant
	var changeErr error
	stored, _, err := s.writeTenant(ctx, by, audit.TenantUpdate, id, func(t webhook.Tenant) (webhook.Tenant, error) {
		if t.CreatedAt.IsZero() {
			return t, webhook.NotFound("tenant")
		}
		before = t
		t.Metadata = maps.Clone(t.Metadata)
		changeErr = change(&t)
		if changeErr != nil {
			return t, changeErr
		}
		if t.ID = before.ID; len(changedOfTenant(before, t)) == 0 {
			return t, postgres.ErrUnchanged
		}
		return t, nil
	})
	switch {
	case changeErr != nil:
		return webhook.Tenant{}, changeErr
	case errors.Is(err, postgres.ErrUnchanged):
		return before, nil
	}
	return stored, err
}

// writeTenant writes what edit makes of the stored tenant. If there is none, edit gets one without
// CreatedAt.
func (s *Tenants) writeTenant(ctx context.Context, by webhook.Actor, action, id string, edit func(webhook.Tenant) (webhook.Tenant, error),
) (stored webhook.Tenant, created bool, err error) {
	changed := postgres.Change{Kind: postgres.ChangeTenant, Tenant: id}
	defer func() { s.core.ChangedHere(changed) }()
	err = s.core.AsOperator().InTx(ctx, "put tenant "+id, func(ctx context.Context, tx pgx.Tx) error {
		before, err := tenantBefore(ctx, tx, id)
		if err != nil {
			return err
		}
		t, err := edit(before)
		if err != nil {
			return err
		}
		// xmax is 0 in a row that this statement inserted. A new retry policy counts as a change
		// of the endpoints: it applies to deliveries of later events.
		rows, err := tx.Query(ctx, `
			insert into tenants (id, name, contact, metadata, limits, retention, retry_policy) values ($1, $2, $3, $4, $5, $6, $7)
			on conflict (id) do update
			set name = excluded.name, contact = excluded.contact, metadata = excluded.metadata, limits = excluded.limits,
				retention = excluded.retention, retry_policy = excluded.retry_policy, updated_at = now(),
				endpoints_version = tenants.endpoints_version + (tenants.retry_policy is distinct from excluded.retry_policy)::int
			returning `+tenantColumns+`, xmax = 0`,
			t.ID, t.Name, t.Contact, postgres.NonNilMap(t.Metadata), t.Limits, t.Retention, PolicyColumn(t.RetryPolicy))
		if err != nil {
			return err
		}
		stored, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.Tenant, error) {
			return scanTenant(row, &created)
		})
		if err != nil {
			return err
		}
		if created {
			if err := refuseDeleted(ctx, tx, t.ID); err != nil {
				return err
			}
			return audit.Write(ctx, tx, by, t.ID, audit.TenantCreate, t.ID, nil)
		}
		changed.Policy = before.CreatedAt.IsZero() || !before.RetryPolicy.Equal(stored.RetryPolicy)
		if err := postgres.Notify(ctx, tx, changed); err != nil {
			return err
		}
		detail := postgres.JSONBytes(map[string][]string{"changed": changedOfTenant(before, stored)})
		return audit.Write(ctx, tx, by, t.ID, action, t.ID, detail)
	})
	if err != nil {
		return webhook.Tenant{}, false, err
	}
	return stored, created, nil
}

// tenantBefore reads and locks a tenant that is about to be written. It returns an empty one if
// there is none, or if another transaction is creating it.
func tenantBefore(ctx context.Context, tx pgx.Tx, id string) (webhook.Tenant, error) {
	rows, err := tx.Query(ctx, `select `+tenantColumns+` from tenants where id = $1 for no key update`, id)
	if err != nil {
		return webhook.Tenant{}, err
	}
	t, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.Tenant, error) { return scanTenant(row) })
	if postgres.IsNoRows(err) {
		return webhook.Tenant{ID: id}, nil
	}
	return t, err
}

// changedOfTenant names what differs, for the audit log, each limit and each retention by itself.
func changedOfTenant(before, after webhook.Tenant) []string {
	var parts []string
	for _, name := range audit.Changed(&before.Limits, &after.Limits) {
		parts = append(parts, "limits."+name)
	}
	for _, name := range audit.Changed(&before.Retention, &after.Retention) {
		parts = append(parts, "retention."+name)
	}
	before.CreatedAt, before.UpdatedAt, before.Limits, before.Retention = after.CreatedAt, after.UpdatedAt, after.Limits, after.Retention
	return append(audit.Changed(&before, &after), parts...)
}

// Tenant reads one tenant; CodeNotFound when there is none.
func (s *Tenants) Tenant(ctx context.Context, id string) (webhook.Tenant, error) {
	var t webhook.Tenant
	err := s.core.OfTenant(id).WithConn(ctx, "read tenant "+id, func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `select `+tenantColumns+` from tenants where id = $1`, id)
		if err != nil {
			return err
		}
		t, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.Tenant, error) { return scanTenant(row) })
		if postgres.IsNoRows(err) {
			return webhook.NotFound("tenant")
		}
		return err
	})
	return t, err
}

// BeginExport writes an export of the tenant to the audit log and returns the tenant; CodeNotFound when there is
// none.
func (s *Tenants) BeginExport(ctx context.Context, by webhook.Actor, id string) (webhook.Tenant, error) {
	t, err := s.Tenant(ctx, id)
	if err != nil {
		return t, err
	}
	return t, s.core.OfTenant(id).InTx(ctx, "begin an export of tenant "+id, func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, by, id, audit.TenantExport, id, nil)
	})
}

// ListTenants lists tenants whose id begins with the prefix, in the byte order of their ids. after is the last id of the previous
// page, "" for the first page.
func (s *Tenants) ListTenants(ctx context.Context, prefix string, limit int, after string) ([]webhook.Tenant, error) {
	var list []webhook.Tenant
	err := s.core.AsOperator().WithConn(ctx, "list tenants", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `select `+tenantColumns+` from tenants
			where id > $1 and id >= $2 and id < $3 order by id limit $4`, after, prefix, prefix+"{", limit) // no id has a byte above z
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.Tenant, error) { return scanTenant(row) })
		return err
	})
	return list, err
}

// DeleteTenant deletes the tenant with its keys and the rows of its deleted endpoints.
// CodeConflict while it has endpoints. Its events and deliveries stay until retention removes
// them; until then no tenant with the same id can be created: see PruneDeletedTenants.
func (s *Tenants) DeleteTenant(ctx context.Context, by webhook.Actor, id string) error {
	defer s.core.ChangedHere(postgres.Change{Kind: postgres.ChangeTenant, Tenant: id})
	return s.core.AsOperator().InTx(ctx, "delete tenant "+id, func(ctx context.Context, tx pgx.Tx) error {
		// The lock excludes CreateEndpoint, which locks the tenant's row first, too. Endpoints
		// are searched in a statement of their own: it sees what was committed while this one
		// waited for the lock.
		if err := lockTenant(ctx, tx, id); err != nil {
			return err
		}
		var live bool
		err := tx.QueryRow(ctx, `select exists (select from endpoints where tenant_id = $1 and deleted_at is null and not internal)`, id).Scan(&live)
		if err != nil {
			return err
		}
		if live {
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the tenant still has endpoints: delete them first"}
		}
		var chats bool
		err = tx.QueryRow(ctx, `
			select exists (select from notification_channels c join endpoints e on e.id = c.endpoint_id where c.owner = '' and e.tenant_id = $1)`,
			id).Scan(&chats)
		if err != nil {
			return err
		}
		if chats {
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the installation posts its notifications from this tenant: remove their chats first"}
		}
		if _, err := tx.Exec(ctx, `delete from tenants where id = $1`, id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into deleted_tenants (id) values ($1) on conflict (id) do update set deleted_at = now()`, id); err != nil {
			return err
		}
		if err := postgres.Notify(ctx, tx, postgres.Change{Kind: postgres.ChangeTenant, Tenant: id}); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, id, audit.TenantDelete, id, nil)
	})
}

func lockTenant(ctx context.Context, tx pgx.Tx, id string) error {
	err := tx.QueryRow(ctx, `select id from tenants where id = $1 for update`, id).Scan(&id)
	if postgres.IsNoRows(err) {
		return webhook.NotFound("tenant")
	}
	return err
}

// scanTenant reads tenantColumns, and further columns into further.
func scanTenant(row pgx.CollectableRow, further ...any) (webhook.Tenant, error) {
	var (
		t      webhook.Tenant
		policy *retry.Policy
	)
	err := row.Scan(append([]any{&t.ID, &t.Name, &t.Contact, &t.Metadata, &t.Limits, &t.Retention, &policy, &t.CreatedAt, &t.UpdatedAt}, further...)...)
	if err != nil {
		return webhook.Tenant{}, fmt.Errorf("read row of tenants: %w", err)
	}
	t.RetryPolicy = PolicyOf(policy)
	t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
	return t, nil
}
