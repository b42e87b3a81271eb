package stores_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// reference is a column that says whose a row is.
type reference struct{ Table, Column string }

// where selects the rows, t, that have one of the values $1.
func (r reference) where() string {
	return postgres.Quote(r.Table) + ` t where ` + postgres.Quote(r.Column) + `::text = any($1)`
}

// references are the columns of all tables that name a tenant, or something of one. A new table is among them.
func references(t *testing.T, s *storetest.Stores) []reference {
	t.Helper()
	var all []reference
	for _, name := range storetest.Query[string](t, s, `
		select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and not a.attisdropped
			and (a.attname in ('tenant_id', 'endpoint_id', 'event_id', 'delivery_id', 'replay_id') or c.relname = 'tenants' and a.attname = 'id')
		order by 1`) {
		table, column, _ := strings.Cut(name, ".")
		all = append(all, reference{table, column})
	}
	return all
}

// fill stores something of a tenant in every table.
func fill(t *testing.T, b *storetest.Bundle, tenant string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, b.PutNamed(t, tenant))
	e := storetest.TestEndpoint(tenant)
	e.State = webhook.EndpointActive
	e, err := b.CreateEndpoint(ctx, storetest.TestActor(), e, storetest.CanarySecret)
	require.NoError(t, err)
	key := storetest.TestKey(tenant)
	require.NoError(t, b.CreateKey(ctx, storetest.TestActor(), key))
	var deliveries []webhook.Start
	for n := range 3 {
		in := storetest.NewEvent("order.paid")
		in.TenantID, in.ExternalID = tenant, fmt.Sprint("order-", n)
		accepted, err := b.Accept(ctx, in)
		require.NoError(t, err)
		deliveries = append(deliveries, accepted.Deliveries...)
	}
	b.EndIn(t, deliveries[0], webhook.StateDeadLettered)
	b.EndIn(t, deliveries[1], webhook.StateDelivered)
	replay, err := b.CreateReplay(ctx, storetest.TestActor(), webhook.Replay{
		TenantID: tenant, Source: webhook.ReplayDeadLetters, Asked: 60, Filter: webhook.ReplayFilter{EndpointID: e.ID},
	})
	require.NoError(t, err)
	b.Exec(t, `insert into replay_releases (replay_id, delivery_id, run, number, released_at, check_at) values ($1, $2, 2, 2, now(), now())`,
		replay.ID, deliveries[0].DeliveryID)
	b.Exec(t, `insert into endpoint_trouble (endpoint_id, since) values ($1, now()) on conflict do nothing`, e.ID)
	b.Exec(t, `insert into endpoint_health (endpoint_id, worker, seen_at, seen) values ($1, 'w', now(), '{}')`, e.ID)
	b.Exec(t, `insert into circuit_closings (endpoint_id) values ($1)`, e.ID)
	b.Exec(t, `insert into releases (endpoint_id, tenant_id) values ($1, $2) on conflict do nothing`, e.ID, tenant)
	for _, table := range []string{"statistics_minutes", "statistics_hours"} {
		b.Exec(t, `insert into `+table+` (tenant_id, endpoint_id, at) values ($1, $2, now()), ($1, $3, now())`, tenant, e.ID, webhook.EndpointID{})
	}
	b.Exec(t, `insert into console_links (sha256, id, tenant_id, key_id, key_sha256, access, expires_at) values (sha256($1), $2, $3, $2, sha256($1), 1, now())`,
		[]byte(tenant), [16]byte(key.ID), tenant)
	b.Exec(t, `insert into console_sessions (sha256, tenant_id, key_id, key_sha256, access, expires_at) values (sha256($1), $3, $2, sha256($1), 1, now())`,
		[]byte(tenant), [16]byte(key.ID), tenant)
	storetest.FillNotifications(t, b.Stores, tenant, e.ID)
	b.Exec(t, `insert into request_keys (id, tenant_id, body_sha256, attempt) values (sha256($1), $2, '', gen_random_uuid())`, []byte(tenant), tenant)
}

// idsOf are the values with which rows name a tenant.
func idsOf(t *testing.T, b *storetest.Bundle, tenant string) map[string][]string {
	t.Helper()
	of := func(sql string) []string { return storetest.Query[string](t, b.Stores, sql, tenant) }
	return map[string][]string{
		"id": {tenant}, "tenant_id": {tenant},
		"endpoint_id": of(`select id::text from endpoints where tenant_id = $1`),
		"event_id":    of(`select id::text from events where tenant_id = $1`),
		"delivery_id": of(`select id::text from deliveries where tenant_id = $1 union select delivery_id::text from outbox where tenant_id = $1`),
		"replay_id":   of(`select id::text from replays where tenant_id = $1`),
	}
}

func counted(t *testing.T, b *storetest.Bundle, r reference, values []string) int {
	t.Helper()
	return storetest.Query[int](t, b.Stores, `select count(*)::int from `+r.where(), values)[0]
}

// content is every row of a tenant, in all tables.
func content(t *testing.T, b *storetest.Bundle, tenant string) map[reference][]string {
	t.Helper()
	rows, ids := map[reference][]string{}, idsOf(t, b, tenant)
	for _, r := range references(t, b.Stores) {
		rows[r] = storetest.Query[string](t, b.Stores, `select to_jsonb(t)::text from `+r.where()+` order by 1`, ids[r.Column])
	}
	return rows
}

func eraseAll(t *testing.T, b *storetest.Bundle, tenant string) (rows int64) {
	t.Helper()
	for {
		n, err := b.EraseTenant(t.Context(), tenant)
		require.NoError(t, err)
		if rows += n; n == 0 {
			return rows
		}
	}
}

// Nothing is left of a deleted tenant in any table, and everything of another one.
func TestDeletingEverythingOfATenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.FinishMany(t, webhook.StateDeadLettered) // more than a batch
	fill(t, b, "acme")
	fill(t, b, "other")
	ids, others := idsOf(t, b, "acme"), content(t, b, "other")
	for _, r := range references(t, b.Stores) {
		require.Positive(t, counted(t, b, r, ids[r.Column]), "fill stores nothing in %s by its %s", r.Table, r.Column)
		require.NotEmpty(t, others[r], r)
	}
	_, err := b.EraseTenant(t.Context(), "acme")
	require.ErrorContains(t, err, "not everything of this tenant is to be removed", "it exists")

	by := storetest.TestActor()
	d, err := b.BeginDeletion(t.Context(), by, "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.TenantDeletion{Since: d.Since}, d)
	_, err = b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	again, err := b.BeginDeletion(t.Context(), by, "acme")
	require.NoError(t, err)
	require.Equal(t, d, again)
	pending, err := b.Deletions(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []string{"acme"}, pending)

	rows := eraseAll(t, b, "acme")
	require.Greater(t, rows, int64(postgres.DeleteBatch))
	d, err = b.Deletion(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, rows, d.Rows)
	require.Equal(t, "statistics_hours", d.Table)
	kept := 0
	for _, r := range references(t, b.Stores) {
		if r.Table == "audit_log" {
			kept = counted(t, b, r, ids[r.Column])
			continue
		}
		require.Zero(t, counted(t, b, r, ids[r.Column]), r)
	}
	require.Greater(t, kept, 1, "the audit log outlives the tenant")

	b.Exec(t, `update deleted_tenants set deleted_at = now() - interval '29 days 1 minute'`)
	require.EqualValues(t, kept-1, eraseAll(t, b, "acme"))
	require.Equal(t, []string{"tenant.delete"}, storetest.Query[string](t, b.Stores,
		`select action from audit_log where tenant_id = 'acme' and key_id = $1`, by.KeyID))
	require.Equal(t, others, content(t, b, "other"))

	require.NoError(t, b.CompleteDeletion(t.Context(), "acme"))
	for _, err := range []error{
		second(b.Deletion(t.Context(), "acme")), second(b.BeginDeletion(t.Context(), by, "acme")), second(b.BeginDeletion(t.Context(), by, "nobody")),
	} {
		storetest.RequireCode(t, webhook.CodeNotFound, err)
	}
}

func second[T any](_ T, err error) error { return err }

// What is stored late goes with the next run of retention, for as long as the id cannot be used again.
func TestLateRowsOfADeletedTenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.BeginDeletion(t.Context(), storetest.TestActor(), "acme")
	require.NoError(t, err)
	eraseAll(t, b, "acme")
	require.NoError(t, b.CompleteDeletion(t.Context(), "acme"))
	b.EndIn(t, start, webhook.StateCancelled)
	require.Equal(t, 1, b.Count(t, "deliveries"))
	b.DeletedLongAgo(t)
	b.RequirePruned(t, 0)
	require.Zero(t, b.Count(t, "deliveries"))
	require.Zero(t, b.Count(t, "attempts"))
	err = b.PutNamed(t, "acme")
	storetest.RequireCode(t, webhook.CodeConflict, err)
	require.ErrorContains(t, err, "free 31 days after the removal")
	b.Exec(t, `update deleted_tenants set completed_at = now() - interval '32 days'`)
	b.RequirePruned(t, 1)
	require.NoError(t, b.PutNamed(t, "acme"))
}

// The rows that an ordinary deletion has left can be removed, too.
func TestDeletingEverythingOfADeletedTenant(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	b.DeleteAcme(t)
	_, err := b.EraseTenant(t.Context(), "acme")
	require.ErrorContains(t, err, "not everything of this tenant is to be removed")
	_, err = b.BeginDeletion(t.Context(), storetest.TestActor(), "acme")
	require.NoError(t, err)
	require.Positive(t, eraseAll(t, b, "acme"))
	require.Zero(t, b.Count(t, "deliveries"))
	require.Zero(t, b.Count(t, "events"))
}
