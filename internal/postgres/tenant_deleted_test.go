package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/migrations"
)

// deleteAcme deletes the tenant with its endpoint.
func (b *deliveryBundle) deleteAcme(t *testing.T) {
	t.Helper()
	require.NoError(t, b.DeleteEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID))
	require.NoError(t, b.DeleteTenant(t.Context(), testActor(), "acme"))
}

// deletedLongAgo makes it as if all deletions were longer ago than any transaction takes.
func (b *deliveryBundle) deletedLongAgo(t *testing.T) {
	t.Helper()
	_, err := b.login.Exec(t.Context(), `update deleted_tenants set deleted_at = now() - interval '1 hour'`)
	require.NoError(t, err)
}

func (b *deliveryBundle) prunes(t *testing.T, want int64) {
	t.Helper()
	freed, err := b.PruneDeletedTenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, freed)
}

func (b *deliveryBundle) put(t *testing.T, id string) error {
	t.Helper()
	_, _, err := b.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: id, Name: "Another"})
	return err
}

func requireDeletedID(t *testing.T, err error) {
	t.Helper()
	requireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, "a tenant with this id was deleted")
}

// Whoever gets the id of a deleted tenant would get what is left of it: so nobody does.
func TestTheIDOfADeletedTenantIsRefusedUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	finished := b.accept(t)
	step := stepOf(finished, 1, webhook.StateDelivered)
	step.Attempt = attemptOf(1, 1, 200)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	e := newEvent("order.paid")
	e.ExternalID = "order-17"
	_, err = b.Accept(t.Context(), e)
	require.NoError(t, err)
	b.deleteAcme(t)
	b.deletedLongAgo(t)
	b.prunes(t, 0)
	requireDeletedID(t, b.put(t, "acme"))
	require.Equal(t, []string{"tenant.create", "tenant.delete"}, actions(t, b.stores, "acme"), "what was refused did nothing")
	for _, neighbour := range []string{"acm", "acme2", "Acme"} {
		require.NoError(t, b.put(t, neighbour), "another id")
		e := newEvent("order.paid")
		e.TenantID, e.EndpointIDs = neighbour, nil
		_, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
	}

	// As if something was left in one table only.
	tables := []string{"deliveries", "outbox", "idempotency_keys", "events"}
	for _, table := range tables {
		tag, err := b.login.Exec(t.Context(), `update `+table+` set tenant_id = $1 where tenant_id = 'acme'`, "in-"+table)
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), table)
		_, err = b.login.Exec(t.Context(), `insert into deleted_tenants values ($1, now() - interval '1 hour')`, "in-"+table)
		require.NoError(t, err)
	}
	b.prunes(t, 1)
	require.NoError(t, b.put(t, "acme"))
	require.NoError(t, b.put(t, "acme"), "and it may be replaced")
	for _, table := range tables {
		requireDeletedID(t, b.put(t, "in-"+table))
		_, err := b.login.Exec(t.Context(), `delete from `+table+` where tenant_id = $1`, "in-"+table)
		require.NoError(t, err)
		b.prunes(t, 1)
		require.NoError(t, b.put(t, "in-"+table))
	}
}

// An event whose flush saw the tenant is stored after the deletion: an id is not free at once.
func TestAnIDIsNotFreeAtOnce(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	b.deleteAcme(t)
	b.prunes(t, 0)
	requireDeletedID(t, b.put(t, "acme"))
	b.deletedLongAgo(t)
	b.prunes(t, 1)
	require.NoError(t, b.put(t, "acme"))
	require.NoError(t, b.DeleteTenant(t.Context(), testActor(), "acme"))
	requireDeletedID(t, b.put(t, "acme"))
}

// A process of an older release puts such an id all the same: it can be deleted again.
func TestATenantWithATombstoneIsDeleted(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.login.Exec(t.Context(), `insert into deleted_tenants (id, deleted_at) values ('acme', '2020-01-01')`)
	require.NoError(t, err)
	b.deleteAcme(t)
	b.prunes(t, 0)
	requireDeletedID(t, b.put(t, "acme"))
}

// Retention is what removes it all, and with it the tombstone.
func TestRetentionFreesTheIDOfADeletedTenant(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	start := b.accept(t)
	b.deleteAcme(t)
	b.deletedLongAgo(t)
	b.prunes(t, 0)
	_, err := b.RecordStep(t.Context(), stepOf(start, 1, webhook.StateDelivered))
	require.NoError(t, err)
	_, err = b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
	require.NoError(t, err)
	b.prunes(t, 1)
	_, created, err := b.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	require.True(t, created)
}

// More than one batch, of which some go.
func TestManyDeletedTenants(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	_, err := s.login.Exec(t.Context(), `
		insert into deleted_tenants select 'gone-' || n, now() - interval '1 hour' from generate_series(1, $1) n`, 2*tombstoneBatch+10)
	require.NoError(t, err)
	_, err = s.login.Exec(t.Context(), `
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at)
		select id, 2, '', '', gen_random_uuid(), now() from deleted_tenants where id like '%7'`)
	require.NoError(t, err)
	left := query[string](t, s, `select tenant_id from idempotency_keys order by tenant_id collate "C"`)
	require.NotEmpty(t, left)
	freed, err := s.PruneDeletedTenants(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*tombstoneBatch+10-len(left), freed)
	require.Equal(t, left, query[string](t, s, `select id from deleted_tenants order by id collate "C"`))
}

// A tenant that is put while it is being deleted is not made anew.
func TestPuttingATenantThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	put := make(chan error, 1)
	err := s.asOperator().inTx(t.Context(), "delete", func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, lockTenant(ctx, tx, "acme"))
		go func() {
			_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "acme"})
			put <- err
		}()
		require.Eventually(t, func() bool { return waitsForALock(t, s) }, eventually, poll)
		_, err := tx.Exec(ctx, `delete from tenants`)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `insert into deleted_tenants (id) values ('acme')`)
		return err
	})
	require.NoError(t, err)
	requireCode(t, webhook.CodeConflict, <-put)
	require.Empty(t, query[string](t, s, `select id from tenants`))
}

// What was deleted before there were tombstones gets its own from the audit log.
func TestTenantsThatWereDeletedBefore(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	for _, id := range []string{"gone", "again"} {
		_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: id})
		require.NoError(t, err)
		require.NoError(t, s.DeleteTenant(t.Context(), testActor(), id))
	}
	up, err := migrations.FS.ReadFile("00012_deleted_tenants.sql")
	require.NoError(t, err)
	_, err = s.login.Exec(t.Context(), `drop table deleted_tenants; insert into tenants (id, name) values ('again', '');`+string(up))
	require.NoError(t, err)
	require.Equal(t, []string{"gone"}, query[string](t, s, `select id from deleted_tenants`))
}
