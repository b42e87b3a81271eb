package tenants_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/webhook"
)

func requireDeletedID(t *testing.T, err error) {
	t.Helper()
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, "a tenant with this id was deleted")
}

// The id of a deleted tenant cannot be used again while rows of it are left, because the new tenant would get them.
func TestTheIDOfADeletedTenantIsRefusedUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	finished := b.AcceptOne(t)
	step := storetest.StepOf(finished, 1, webhook.StateDelivered)
	step.Attempt = storetest.AttemptOf(1, 1, 200)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	e := storetest.NewEvent("order.paid")
	e.ExternalID = "order-17"
	_, err = b.Accept(t.Context(), e)
	require.NoError(t, err)
	for _, table := range []string{"statistics_minutes", "statistics_hours"} {
		b.Exec(t, `insert into `+table+` (tenant_id, endpoint_id, at) values ('acme', $1, now())`, b.Subscriber.ID)
	}
	b.DeleteAcme(t)
	b.DeletedLongAgo(t)
	b.RequirePruned(t, 0)
	requireDeletedID(t, b.PutNamed(t, "acme"))
	require.Equal(t, []string{"tenant.create", "tenant.delete"}, storetest.Actions(t, b.Stores, "acme"), "what was refused did nothing")
	for _, neighbour := range []string{"acm", "acme2", "Acme"} {
		require.NoError(t, b.PutNamed(t, neighbour), "another id")
		e := storetest.NewEvent("order.paid")
		e.TenantID, e.EndpointIDs = neighbour, nil
		_, err := b.Accept(t.Context(), e)
		require.NoError(t, err)
	}

	// As if something was left in one table only.
	tables := []string{"deliveries", "outbox", "idempotency_keys", "events", "statistics_minutes", "statistics_hours"}
	for _, table := range tables {
		tag, err := b.Pool().Exec(t.Context(), `update `+table+` set tenant_id = $1 where tenant_id = 'acme'`, "in-"+table)
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), table)
		_, err = b.Pool().Exec(t.Context(), `insert into deleted_tenants values ($1, now() - interval '1 hour')`, "in-"+table)
		require.NoError(t, err)
	}
	b.RequirePruned(t, 1)
	require.NoError(t, b.PutNamed(t, "acme"))
	require.NoError(t, b.PutNamed(t, "acme"), "and it may be replaced")
	for _, table := range tables {
		requireDeletedID(t, b.PutNamed(t, "in-"+table))
		_, err := b.Pool().Exec(t.Context(), `delete from `+table+` where tenant_id = $1`, "in-"+table)
		require.NoError(t, err)
		b.RequirePruned(t, 1)
		require.NoError(t, b.PutNamed(t, "in-"+table))
	}
}

// An event whose flush saw the tenant is stored after the deletion: an id is not free at once.
func TestAnIDIsNotFreeAtOnce(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.DeleteAcme(t)
	b.RequirePruned(t, 0)
	requireDeletedID(t, b.PutNamed(t, "acme"))
	b.DeletedLongAgo(t)
	b.RequirePruned(t, 1)
	require.NoError(t, b.PutNamed(t, "acme"))
	require.NoError(t, b.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	requireDeletedID(t, b.PutNamed(t, "acme"))
}

// A process of an older release puts such an id all the same: it can be deleted again.
func TestATenantWithATombstoneIsDeleted(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.Pool().Exec(t.Context(), `insert into deleted_tenants (id, deleted_at) values ('acme', '2020-01-01')`)
	require.NoError(t, err)
	b.DeleteAcme(t)
	b.RequirePruned(t, 0)
	requireDeletedID(t, b.PutNamed(t, "acme"))
}

// Retention is what removes it all, and with it the tombstone.
func TestRetentionFreesTheIDOfADeletedTenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	start := b.AcceptOne(t)
	b.DeleteAcme(t)
	b.DeletedLongAgo(t)
	b.RequirePruned(t, 0)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateDelivered))
	require.NoError(t, err)
	_, err = b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
	require.NoError(t, err)
	b.RequirePruned(t, 1)
	_, created, err := b.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme"})
	require.NoError(t, err)
	require.True(t, created)
}

// More than one batch, of which some go.
func TestManyDeletedTenants(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	_, err := s.Pool().Exec(t.Context(), `
		insert into deleted_tenants select 'gone-' || n, now() - interval '1 hour' from generate_series(1, $1) n`, 2*tenants.TombstoneBatch+10)
	require.NoError(t, err)
	_, err = s.Pool().Exec(t.Context(), `
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at)
		select id, 2, '', '', gen_random_uuid(), now() from deleted_tenants where id like '%7'`)
	require.NoError(t, err)
	left := storetest.Query[string](t, s, `select tenant_id from idempotency_keys order by tenant_id collate "C"`)
	require.NotEmpty(t, left)
	freed, err := s.PruneDeletedTenants(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*tenants.TombstoneBatch+10-len(left), freed)
	require.Equal(t, left, storetest.Query[string](t, s, `select id from deleted_tenants order by id collate "C"`))
}

// A tenant that is put while it is being deleted is not made again.
func TestPuttingATenantThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	put := make(chan error, 1)
	err := s.AsOperator().InTx(t.Context(), "delete", func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, tenants.LockTenant(ctx, tx, "acme"))
		go func() {
			_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "acme"})
			put <- err
		}()
		require.Eventually(t, func() bool { return storetest.WaitsForALock(t, s) }, storetest.Eventually, storetest.Poll)
		_, err := tx.Exec(ctx, `delete from tenants`)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `insert into deleted_tenants (id) values ('acme')`)
		return err
	})
	require.NoError(t, err)
	storetest.RequireCode(t, webhook.CodeConflict, <-put)
	require.Empty(t, storetest.Query[string](t, s, `select id from tenants`))
}
