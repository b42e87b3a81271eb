package audit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// auditedAt writes an entry as a process would whose clock is off by a skew.
func auditedAt(t *testing.T, s *storetest.Stores, at time.Time, skew time.Duration, key webhook.KeyID) webhook.AuditID {
	t.Helper()
	id := postgres.IDsFrom(at.Add(skew))
	random := uuid.New()
	copy(id[6:], random[6:])
	id[6] = 0x70
	_, err := s.Pool().Exec(t.Context(), `
		insert into audit_log (id, at, key_id, actor, request_id, tenant_id, action, subject)
		values ($1, $2, $3, '', '', 'span', 'a', '')`, id, at, [16]byte(key))
	require.NoError(t, err)
	return webhook.AuditID(id)
}

// A span of time holds what was done in it, whatever the clocks of processes say.
func TestAuditLogOfASpan(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var all []webhook.AuditID
	for i := range 10 {
		skew := time.Duration(i%3-1) * 50 * time.Minute
		all = append(all, auditedAt(t, s, begin.Add(time.Duration(i)*24*time.Hour), skew, webhook.NewKeyID()))
	}
	list := func(f webhook.AuditFilter, p webhook.Page) (ids []webhook.AuditID) {
		f.TenantID = "span"
		entries, err := s.ListAudit(t.Context(), f, p)
		require.NoError(t, err)
		for _, e := range entries {
			ids = append([]webhook.AuditID{e.ID}, ids...)
		}
		return ids
	}
	day := func(n int) time.Time { return begin.AddDate(0, 0, n) }
	require.Equal(t, all, list(webhook.AuditFilter{}, webhook.Page{Limit: 100}))
	for from := range 11 {
		for until := from; until < 11; until++ {
			got := list(webhook.AuditFilter{Since: day(from), Until: day(until)}, webhook.Page{Limit: 100})
			require.ElementsMatch(t, all[from:until], got, "%d to %d", from, until)
		}
	}
	require.Equal(t, all[3:6], list(webhook.AuditFilter{Since: day(3)}, webhook.Page{Limit: 100, After: all[6]}))
	require.Equal(t, all[3:5], list(webhook.AuditFilter{Since: day(3), Until: day(5)}, webhook.Page{Limit: 100, After: all[9]}))
	require.Empty(t, list(webhook.AuditFilter{Until: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}, webhook.Page{Limit: 1}))
}

// However long the log, a span of time and a key are found by an index.
func TestAuditLogIsFoundByIndex(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, err := s.Pool().Exec(t.Context(), `
		insert into audit_log (id, at, key_id, actor, request_id, tenant_id, action, subject)
		select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || substr(md5(n::text), 1, 16))::uuid, at,
			gen_random_uuid(), '', '', 'span', 'a', ''
		from (select n, $1::timestamptz + n * interval '1 minute' as at from generate_series(1, 20000) n) times`, begin)
	require.NoError(t, err)
	_, err = s.Pool().Exec(t.Context(), `analyze audit_log`)
	require.NoError(t, err)
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	explain := func(sql string, args ...any) string {
		rows, err := tx.Query(t.Context(), `explain (analyze, timing off, summary off, costs off) `+sql, args...)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(lines, "\n")
	}
	f := webhook.AuditFilter{Since: begin.Add(10 * time.Hour), Until: begin.Add(11 * time.Hour)}
	plan := explain(audit.AuditList, audit.AuditArgs(f, webhook.Page{Limit: 100})...)
	require.Contains(t, plan, "Index Cond: ((id >= ")
	require.NotContains(t, plan, "Seq Scan on audit_log")
	plan = explain(audit.AuditList, audit.AuditArgs(webhook.AuditFilter{KeyID: webhook.NewKeyID()}, webhook.Page{Limit: 100})...)
	require.Contains(t, plan, "audit_log_by_key")
}

// Old entries are removed, the oldest first. Entries younger than 29 days stay, whatever the setting.
func TestPruneAuditLog(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	const old = postgres.DeleteBatch + 10
	_, err := s.Pool().Exec(t.Context(), `
		insert into audit_log (id, at, actor, request_id, action, subject)
		select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid, at, '', '', 'old', ''
		from (select n, now() - interval '800 days' + n * interval '1 second' from generate_series(1, $1) n) o (n, at)`, old)
	require.NoError(t, err)
	year := 365 * 24 * time.Hour
	removed, err := s.PruneAuditLog(t.Context(), 3*year)
	require.NoError(t, err)
	require.Zero(t, removed)
	removed, err = s.PruneAuditLog(t.Context(), 2*year)
	require.NoError(t, err)
	require.EqualValues(t, old, removed)
	require.Equal(t, []string{"tenant.create"}, storetest.Query[string](t, s, `select action from audit_log`))

	// The deletion of a tenant stays for two years.
	for _, c := range []struct {
		age  string
		left []string
	}{{"729 days", []string{"tenant.delete"}}, {"732 days", []string{}}} {
		_, err = s.Pool().Exec(t.Context(), `
			insert into audit_log (id, at, actor, request_id, action, subject)
			select '00000000-0000-7000-8000-000000000002', now() - $1::interval, '', '', 'tenant.delete', ''
			on conflict (id) do update set at = excluded.at`, c.age)
		require.NoError(t, err)
		_, err = s.PruneAuditLog(t.Context(), 30*24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, c.left, storetest.Query[string](t, s, `select action from audit_log where action <> 'tenant.create'`), c.age)
	}

	_, err = s.Pool().Exec(t.Context(), `update audit_log set at = now() - interval '28 days', id = '00000000-0000-7000-8000-000000000001'`)
	require.NoError(t, err)
	_, err = s.PruneAuditLog(t.Context(), 0)
	require.ErrorContains(t, err, "the audit log is kept for 29 days at least")
	_, err = s.PruneAuditLog(t.Context(), 29*24*time.Hour+time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"tenant.create"}, storetest.Query[string](t, s, `select action from audit_log`))
}
