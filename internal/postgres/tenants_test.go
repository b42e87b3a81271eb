package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func actions(t *testing.T, s *Store, subject string) []string {
	t.Helper()
	return query[string](t, s, `select action from audit_log where subject = $1 order by id`, subject)
}

// breakAudit makes every further audit entry of the schema fail.
func breakAudit(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.login.Exec(t.Context(), `alter table audit_log add constraint broken check (false) not valid`)
	require.NoError(t, err)
}

func TestPutTenantCreatesThenReplaces(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	by := testActor()
	in := webhook.Tenant{ID: "beta", Name: "Beta", Contact: "ops@beta.example", Metadata: map[string]string{"plan": "gold"}}

	first, created, err := s.PutTenant(t.Context(), by, in)
	require.NoError(t, err)
	require.True(t, created)
	require.WithinDuration(t, time.Now(), first.CreatedAt, time.Minute)
	in.CreatedAt, in.UpdatedAt = first.CreatedAt, first.UpdatedAt
	require.Equal(t, in, first)
	require.Equal(t, time.UTC, first.CreatedAt.Location())

	second, created, err := s.PutTenant(t.Context(), by, webhook.Tenant{ID: "beta", Name: "Beta 2"})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	require.True(t, second.UpdatedAt.After(first.UpdatedAt))
	require.Empty(t, second.Metadata)

	read, err := s.Tenant(t.Context(), "beta")
	require.NoError(t, err)
	require.Equal(t, second, read)
	require.Equal(t, []string{"tenant.create", "tenant.update"}, actions(t, s, "beta"))

	rows, err := s.login.Query(t.Context(), `select key_id, request_id, tenant_id from audit_log where subject = 'beta' limit 1`)
	require.NoError(t, err)
	type who struct {
		KeyID               [16]byte
		RequestID, TenantID string
	}
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[who])
	require.NoError(t, err)
	require.Equal(t, who{by.KeyID, "req-1", "beta"}, got)
}

// The audit log says what of a tenant was changed, each limit by itself.
func TestTenantUpdatesAreNamed(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	for _, c := range []struct {
		to   webhook.Tenant
		want string
	}{
		{webhook.Tenant{Name: "Beta"}, `{}`}, // it is made
		{webhook.Tenant{Name: "Beta"}, `{"changed": []}`},
		{
			webhook.Tenant{Name: "Beta", Metadata: map[string]string{}, Limits: webhook.Limits{PendingDeliveries: 5, Burst: 1}},
			`{"changed": ["Limits.Burst", "Limits.PendingDeliveries"]}`,
		},
		{
			webhook.Tenant{Name: "Canary", Contact: "canary", Metadata: map[string]string{"canary": "canary"}},
			`{"changed": ["Name", "Contact", "Metadata", "Limits.Burst", "Limits.PendingDeliveries"]}`,
		},
	} {
		c.to.ID = "beta"
		_, _, err := s.PutTenant(t.Context(), testActor(), c.to)
		require.NoError(t, err)
		require.JSONEq(t, c.want, query[string](t, s, `select detail::text from audit_log where subject = 'beta' order by id desc limit 1`)[0])
	}
}

func TestListTenantsGoesByBytes(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	for _, id := range []string{"b", "B", "_", "a-1", "a_1", "a"} {
		_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: id})
		require.NoError(t, err)
	}
	var got []string
	for after := ""; ; {
		page, err := s.ListTenants(t.Context(), 2, after)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, tenant := range page {
			got = append(got, tenant.ID)
		}
		after = got[len(got)-1]
	}
	require.Equal(t, []string{"B", "_", "a", "a-1", "a_1", "acme", "b"}, got)
}

func TestDeleteTenant(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	requireCode(t, webhook.CodeNotFound, s.DeleteTenant(t.Context(), testActor(), "nobody"))

	key := testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), key))
	_, err := s.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)
	e := createEndpoint(t, s, "acme")
	requireCode(t, webhook.CodeConflict, s.DeleteTenant(t.Context(), testActor(), "acme"))
	require.Equal(t, []string{"tenant.create"}, actions(t, s, "acme"))

	require.NoError(t, s.DeleteEndpoint(t.Context(), testActor(), "acme", e.ID))
	require.NoError(t, s.DeleteTenant(t.Context(), testActor(), "acme"))
	require.Equal(t, []string{"tenant.create", "tenant.delete"}, actions(t, s, "acme"))
	_, err = s.Tenant(t.Context(), "acme")
	requireCode(t, webhook.CodeNotFound, err)
	_, err = s.Authenticate(t.Context(), key.ID, key.SHA256)
	requireCode(t, webhook.CodeUnauthenticated, err)
	require.Equal(t, []int64{0}, query[int64](t, s, `select count(*) from endpoints`))
}

// An endpoint that is being created while its tenant is being deleted: whoever
// comes second sees what the first has done.
func TestDeleteTenantSeesAnEndpointThatWasCommittedWhileItWaited(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	e := createEndpoint(t, s, "acme")
	_, err := s.login.Exec(t.Context(), `update endpoints set deleted_at = now()`)
	require.NoError(t, err)

	deleted := make(chan error, 1)
	err = s.ofTenant("acme").inTx(t.Context(), "create", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update tenants set endpoints_version = endpoints_version + 1`)
		require.NoError(t, err)
		go func() { deleted <- s.DeleteTenant(t.Context(), testActor(), "acme") }()
		require.Eventually(t, func() bool { return waitsForALock(t, s) }, eventually, poll)
		_, err = tx.Exec(ctx, `update endpoints set deleted_at = null where id = $1`, [16]byte(e.ID))
		return err
	})
	require.NoError(t, err)
	requireCode(t, webhook.CodeConflict, <-deleted)
}

// waitsForALock reports whether a session waits for a row of this schema's tenants.
func waitsForALock(t *testing.T, s *Store) bool {
	t.Helper()
	return query[bool](t, s, `
		select exists (select from pg_locks w join pg_locks h on h.pid = w.pid
			where not w.granted and h.relation = 'tenants'::regclass)`)[0]
}

func TestAChangeAndItsAuditEntryAreOne(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	e, key := createEndpoint(t, s, "acme"), testKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), testActor(), key))
	breakAudit(t, s)
	entries := query[int64](t, s, `select count(*) from audit_log`)

	for name, change := range map[string]func() error{
		"put tenant": func() error {
			_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "new"})
			return err
		},
		"create key": func() error { return s.CreateKey(t.Context(), testActor(), testKey("acme")) },
		"revoke key": func() error { return s.RevokeKey(t.Context(), testActor(), "acme", key.ID) },
		"create": func() error {
			_, err := s.CreateEndpoint(t.Context(), testActor(), testEndpoint("acme"), "whsec_x")
			return err
		},
		"delete":        func() error { return s.DeleteEndpoint(t.Context(), testActor(), "acme", e.ID) },
		"read a secret": func() error { _, err := s.EndpointSecret(t.Context(), testActor(), "acme", e.ID); return err },
		"update": func() error {
			_, err := s.UpdateEndpoint(t.Context(), testActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL += "/2"; return nil })
			return err
		},
	} {
		require.Error(t, change(), name)
	}
	require.Equal(t, []int64{1}, query[int64](t, s, `select count(*) from tenants`))
	require.Equal(t, []int64{1}, query[int64](t, s, `select count(*) from api_keys where revoked_at is null`))
	require.Equal(t, []int64{1}, query[int64](t, s, `select endpoints_version from tenants`), "of the creation before")
	got, err := s.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, e, got)
	require.Equal(t, entries, query[int64](t, s, `select count(*) from audit_log`))
}

// The notification comes after the audit entry: when it fails, both are undone.
func TestAChangeThatFailsAfterItsAuditEntryLeavesNone(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	long := strings.Repeat("a", 9000) // longer than a notification may be; the API allows 64
	_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: long})
	require.NoError(t, err)
	e := testEndpoint(long)
	_, err = s.CreateEndpoint(t.Context(), testActor(), e, "whsec_x")
	require.ErrorContains(t, err, "notify")
	require.Empty(t, actions(t, s, e.ID.String()))
	require.Equal(t, []int64{0}, query[int64](t, s, `select count(*) from endpoints`))
	require.Zero(t, version(t, s, long))
}
