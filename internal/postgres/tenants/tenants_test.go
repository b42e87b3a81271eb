package tenants_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPutTenantCreatesThenReplaces(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	by := storetest.TestActor()
	in := webhook.Tenant{ID: "beta", Name: "Beta", Contact: "ops@beta.example", Metadata: map[string]string{"plan": "gold"},
		Retention: webhook.Retention{Payloads: time.Hour, Attempts: 2 * time.Hour, Deliveries: 24 * time.Hour}}

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
	require.Zero(t, second.Retention)

	read, err := s.Tenant(t.Context(), "beta")
	require.NoError(t, err)
	require.Equal(t, second, read)
	require.Equal(t, []string{"tenant.create", "tenant.replace"}, storetest.Actions(t, s, "beta"))

	rows, err := s.Pool().Query(t.Context(), `select key_id, request_id, tenant_id from audit_log where subject = 'beta' limit 1`)
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
	s, _ := storetest.SetupStore(t)
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
			webhook.Tenant{
				Name: "Canary", Contact: "canary", Metadata: map[string]string{"canary": "canary"},
				Retention: webhook.Retention{Payloads: time.Hour, Deliveries: 24 * time.Hour},
			},
			`{"changed": ["name", "contact", "metadata", "limits.burst", "limits.pending_deliveries", "retention.payloads", "retention.deliveries"]}`,
		},
	} {
		c.to.ID = "beta"
		_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), c.to)
		require.NoError(t, err)
		require.JSONEq(t, c.want, storetest.Query[string](t, s, `select detail::text from audit_log where subject = 'beta' order by id desc limit 1`)[0])
	}
}

// A change of a tenant leaves what it does not name, and says what it did; one that
// changes nothing leaves no trace.
func TestUpdateTenant(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{
		ID: "beta", Name: "Beta", Contact: "ops", Metadata: map[string]string{"a": "b"}, Limits: webhook.Limits{Endpoints: 3},
	})
	require.NoError(t, err)
	last := func() string {
		return storetest.Query[string](t, s, `select action || ' ' || detail::text from audit_log where subject = 'beta' order by id desc limit 1`)[0]
	}
	require.Equal(t, `tenant.create {}`, last())

	now, err := s.UpdateTenant(t.Context(), storetest.TestActor(), "beta", func(t *webhook.Tenant) error {
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

	same, err := s.UpdateTenant(t.Context(), storetest.TestActor(), "beta", func(*webhook.Tenant) error { return nil })
	require.NoError(t, err)
	require.Equal(t, read, same)
	mine := errors.New("not like this")
	_, err = s.UpdateTenant(t.Context(), storetest.TestActor(), "beta", func(t *webhook.Tenant) error {
		t.Name = "never"
		return mine
	})
	require.Same(t, mine, err)
	_, err = s.UpdateTenant(t.Context(), storetest.TestActor(), "nobody", func(*webhook.Tenant) error { return nil })
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	require.Equal(t, []string{"tenant.create", "tenant.update"}, storetest.Actions(t, s, "beta"))

	_, _, err = s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "beta", Name: "Beta"})
	require.NoError(t, err)
	require.Equal(t, `tenant.replace {"changed": ["metadata", "limits.burst", "limits.endpoints"]}`, last())
}

func TestListTenantsGoesByBytes(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	for _, id := range []string{"b", "B", "_", "a-1", "a_1", "a"} {
		_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: id})
		require.NoError(t, err)
	}
	var got []string
	for after := ""; ; {
		page, err := s.ListTenants(t.Context(), "", 2, after)
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
	found, err := s.ListTenants(t.Context(), "a", 10, "a")
	require.NoError(t, err)
	require.Len(t, found, 3)
}

func TestDeleteTenant(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	storetest.RequireCode(t, webhook.CodeNotFound, s.DeleteTenant(t.Context(), storetest.TestActor(), "nobody"))

	key := storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), key))
	_, err := s.Authenticate(t.Context(), key.ID, key.SHA256)
	require.NoError(t, err)
	e := storetest.CreateEndpoint(t, s, "acme")
	storetest.RequireCode(t, webhook.CodeConflict, s.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	require.Equal(t, []string{"tenant.create"}, storetest.Actions(t, s, "acme"))

	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	require.NoError(t, s.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	require.Equal(t, []string{"tenant.create", "tenant.delete"}, storetest.Actions(t, s, "acme"))
	_, err = s.Tenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = s.Authenticate(t.Context(), key.ID, key.SHA256)
	storetest.RequireCode(t, webhook.CodeUnauthenticated, err)
	require.Equal(t, []int64{0}, storetest.Query[int64](t, s, `select count(*) from endpoints`))
}

// An endpoint is created while its tenant is being deleted: the second transaction sees the result of the first.
func TestDeleteTenantSeesAnEndpointThatWasCommittedWhileItWaited(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	_, err := s.Pool().Exec(t.Context(), `update endpoints set deleted_at = now()`)
	require.NoError(t, err)

	deleted := make(chan error, 1)
	err = s.OfTenant("acme").InTx(t.Context(), "create", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update tenants set endpoints_version = endpoints_version + 1`)
		require.NoError(t, err)
		go func() { deleted <- s.DeleteTenant(t.Context(), storetest.TestActor(), "acme") }()
		require.Eventually(t, func() bool { return storetest.WaitsForALock(t, s) }, storetest.Eventually, storetest.Poll)
		_, err = tx.Exec(ctx, `update endpoints set deleted_at = null where id = $1`, [16]byte(e.ID))
		return err
	})
	require.NoError(t, err)
	storetest.RequireCode(t, webhook.CodeConflict, <-deleted)
}

func TestAChangeAndItsAuditEntryAreOne(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e, key := storetest.CreateEndpoint(t, s, "acme"), storetest.TestKey("acme")
	require.NoError(t, s.CreateKey(t.Context(), storetest.TestActor(), key))
	storetest.BreakAudit(t, s)
	entries := storetest.Query[int64](t, s, `select count(*) from audit_log`)

	for name, change := range map[string]func() error{
		"put tenant": func() error {
			_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "new"})
			return err
		},
		"create key": func() error { return s.CreateKey(t.Context(), storetest.TestActor(), storetest.TestKey("acme")) },
		"revoke key": func() error { return s.RevokeKey(t.Context(), storetest.TestActor(), "acme", key.ID) },
		"create": func() error {
			_, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), storetest.TestEndpoint("acme"), "whsec_x")
			return err
		},
		"delete":        func() error { return s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID) },
		"read a secret": func() error { _, err := s.EndpointSecret(t.Context(), storetest.TestActor(), "acme", e.ID); return err },
		"update": func() error {
			_, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL += "/2"; return nil })
			return err
		},
	} {
		require.Error(t, change(), name)
	}
	require.Equal(t, []int64{1}, storetest.Query[int64](t, s, `select count(*) from tenants`))
	require.Equal(t, []int64{1}, storetest.Query[int64](t, s, `select count(*) from api_keys where revoked_at is null`))
	require.Equal(t, []int64{1}, storetest.Query[int64](t, s, `select endpoints_version from tenants`), "of the creation before")
	got, err := s.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, e, got)
	require.Equal(t, entries, storetest.Query[int64](t, s, `select count(*) from audit_log`))
}

// The notification comes after the audit entry: when it fails, both are undone.
func TestAChangeThatFailsAfterItsAuditEntryLeavesNone(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	long := strings.Repeat("a", 9000) // longer than a notification may be; the API allows 64
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: long})
	require.NoError(t, err)
	e := storetest.TestEndpoint(long)
	_, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), e, "whsec_x")
	require.ErrorContains(t, err, "notify")
	require.Empty(t, storetest.Actions(t, s, e.ID.String()))
	require.Equal(t, []int64{0}, storetest.Query[int64](t, s, `select count(*) from endpoints`))
	require.Zero(t, storetest.Version(t, s, long))
}

func TestBeginExport(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	tenant, err := s.BeginExport(t.Context(), storetest.TestActor(), "acme")
	require.NoError(t, err)
	require.Equal(t, "Acme", tenant.Name)
	require.Equal(t, []string{"tenant.create", "tenant.export"}, storetest.Actions(t, s, "acme"))
	_, err = s.BeginExport(t.Context(), storetest.TestActor(), "nobody")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}
