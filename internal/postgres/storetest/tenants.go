package storetest

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// TestKey is an API key of a tenant.
func TestKey(tenantID string) webhook.Key {
	k := webhook.Key{
		ID: webhook.NewKeyID(), TenantID: tenantID, Scope: webhook.ScopeAdmin, Name: "ci",
		CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	if tenantID == "" {
		k.Scope = webhook.ScopeOperator
	}
	k.SHA256 = sha256.Sum256([]byte(k.ID.String()))
	return k
}

// Actions are the actions in the audit log.
func Actions(t *testing.T, s *Stores, subject string) []string {
	t.Helper()
	return Query[string](t, s, `select action from audit_log where subject = $1 order by id`, subject)
}

// Audits are the entries of the audit log.
func Audits(t *testing.T, s *Stores, action string) int {
	t.Helper()
	return Query[int](t, s, `select count(*)::int from audit_log where action = $1`, action)[0]
}

// BreakAudit makes every further audit entry of the schema fail.
func BreakAudit(t *testing.T, s *Stores) {
	t.Helper()
	_, err := s.Pool().Exec(t.Context(), `alter table audit_log add constraint broken check (false) not valid`)
	require.NoError(t, err)
}

// WaitsForALock reports whether a session waits for a row of this schema's tenants.
func WaitsForALock(t *testing.T, s *Stores) bool {
	t.Helper()
	return Query[bool](t, s, `
		select exists (select from pg_locks w join `+LocksHere+` h on h.pid = w.pid
			where not w.granted and h.relation = 'tenants'::regclass)`)[0]
}

// PartitionsOf are the partitions of a table.
func PartitionsOf(t *testing.T, s *Stores, table string) []string {
	t.Helper()
	return Query[string](t, s, `
		select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass($1) order by 1`, table)
}

// Listen has a store hear changes.
func Listen(t *testing.T, s *Stores) {
	t.Helper()
	s.Listen(t.Context())
	require.Eventually(t, s.Listening, Eventually, Poll)
}

// DeleteAcme deletes the tenant with its endpoint.
func (b *Bundle) DeleteAcme(t *testing.T) {
	t.Helper()
	require.NoError(t, b.DeleteEndpoint(t.Context(), TestActor(), "acme", b.Subscriber.ID))
	require.NoError(t, b.DeleteTenant(t.Context(), TestActor(), "acme"))
}

// DeletedLongAgo makes it as if all deletions were longer ago than any transaction takes.
func (b *Bundle) DeletedLongAgo(t *testing.T) {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `update deleted_tenants set deleted_at = now() - interval '1 hour'`)
	require.NoError(t, err)
}

// RequirePruned requires how many ids of deleted tenants are freed.
func (b *Bundle) RequirePruned(t *testing.T, want int64) {
	t.Helper()
	freed, err := b.PruneDeletedTenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, freed)
}

// PutNamed creates a tenant.
func (b *Bundle) PutNamed(t *testing.T, id string) error {
	t.Helper()
	_, _, err := b.PutTenant(t.Context(), TestActor(), webhook.Tenant{ID: id, Name: "Another"})
	return err
}

// SetLimits gives a tenant limits.
func (b *Bundle) SetLimits(t *testing.T, tenant string, limits webhook.Limits) {
	t.Helper()
	_, _, err := b.PutTenant(t.Context(), TestActor(), webhook.Tenant{ID: tenant, Limits: limits})
	require.NoError(t, err)
}

// WaitForLocks lets flushes wait for locks until PostgreSQL finds the deadlock, if it
// is one. Otherwise they give up sooner, and a slow machine looks the same.
func (s *Stores) WaitForLocks(t *testing.T) {
	t.Helper()
	config := s.EventsPool.Config()
	for _, name := range []string{"lock_timeout", "statement_timeout"} {
		config.ConnConfig.RuntimeParams[name] = postgres.Milliseconds(15 * time.Second)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	s.EventsPool.Close()
	s.EventsPool = pool
}
