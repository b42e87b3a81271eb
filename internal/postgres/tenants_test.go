package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/contracttest"
	"github.com/everpost/everpost/internal/webhook"
)

func actions(t *testing.T, s *stores, subject string) []string {
	t.Helper()
	return query[string](t, s, `select action from audit_log where subject = $1 order by id`, subject)
}

// breakAudit makes every further audit entry of the schema fail.
func breakAudit(t *testing.T, s *stores) {
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
	require.Equal(t, []string{"tenant.create", "tenant.replace"}, actions(t, s, "beta"))

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
			`{"changed": ["limits.burst", "limits.pending_deliveries"]}`,
		},
		{
			webhook.Tenant{Name: "Canary", Contact: "canary", Metadata: map[string]string{"canary": "canary"}},
			`{"changed": ["name", "contact", "metadata", "limits.burst", "limits.pending_deliveries"]}`,
		},
	} {
		c.to.ID = "beta"
		_, _, err := s.PutTenant(t.Context(), testActor(), c.to)
		require.NoError(t, err)
		require.JSONEq(t, c.want, query[string](t, s, `select detail::text from audit_log where subject = 'beta' order by id desc limit 1`)[0])
	}
}

// Fields are named in the audit log as the API names them.
func TestChangedFieldsHaveTheNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
	require.NoError(t, err)
	document, err := contracttest.Parse(text)
	require.NoError(t, err)
	for schema, fields := range map[string]reflect.Type{
		"EndpointShape": reflect.TypeFor[webhook.Endpoint](), "Tenant": reflect.TypeFor[webhook.Tenant](), "Limits": reflect.TypeFor[webhook.Limits](),
	} {
		known := document.At("components", "schemas", schema, "properties").(map[string]any)
		for field := range fields.Fields() {
			if field.Name != "Version" && field.Name != "Inherited" { // nothing changes them alone
				require.Contains(t, known, apiName(field.Name), field.Name)
			}
		}
	}
}

// A change of a tenant leaves what it does not name, and says what it did; one that
// changes nothing leaves no trace.
func TestUpdateTenant(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{
		ID: "beta", Name: "Beta", Contact: "ops", Metadata: map[string]string{"a": "b"}, Limits: webhook.Limits{Endpoints: 3},
	})
	require.NoError(t, err)
	last := func() string {
		return query[string](t, s, `select action || ' ' || detail::text from audit_log where subject = 'beta' order by id desc limit 1`)[0]
	}
	require.Equal(t, `tenant.create {}`, last())

	now, err := s.UpdateTenant(t.Context(), testActor(), "beta", func(t *webhook.Tenant) error {
		t.ID, t.Contact, t.Limits.Burst = "other", "", 7
		return nil
	})
	require.NoError(t, err)
	read, err := s.Tenant(t.Context(), "beta")
	require.NoError(t, err)
	require.Equal(t, read, now)
	require.Equal(t, []any{"Beta", "", map[string]string{"a": "b"}, webhook.Limits{Endpoints: 3, Burst: 7}},
		[]any{read.Name, read.Contact, read.Metadata, read.Limits})
	require.True(t, read.UpdatedAt.After(read.CreatedAt))
	require.Equal(t, `tenant.update {"changed": ["contact", "limits.burst"]}`, last())
	limits, err := s.TenantLimits(t.Context(), "beta")
	require.NoError(t, err)
	require.Equal(t, 7, limits.Burst, "in force at once")

	same, err := s.UpdateTenant(t.Context(), testActor(), "beta", func(*webhook.Tenant) error { return nil })
	require.NoError(t, err)
	require.Equal(t, read, same)
	mine := errors.New("not like this")
	_, err = s.UpdateTenant(t.Context(), testActor(), "beta", func(t *webhook.Tenant) error {
		t.Name = "never"
		return mine
	})
	require.Same(t, mine, err)
	_, err = s.UpdateTenant(t.Context(), testActor(), "nobody", func(*webhook.Tenant) error { return nil })
	requireCode(t, webhook.CodeNotFound, err)
	require.Equal(t, []string{"tenant.create", "tenant.update"}, actions(t, s, "beta"))

	_, _, err = s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "beta", Name: "Beta"})
	require.NoError(t, err)
	require.Equal(t, `tenant.replace {"changed": ["metadata", "limits.burst", "limits.endpoints"]}`, last())
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
func waitsForALock(t *testing.T, s *stores) bool {
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
