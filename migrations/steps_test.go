package migrations_test

import (
	"database/sql"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/migrations"
)

// A database that each release has brought one step further, with rows in it, gets the schema of a fresh one.
func TestStepByStepMakesTheSchemaOfAFreshDatabase(t *testing.T) {
	t.Parallel()
	fresh, steps := postgrestest.NewEmpty(t), postgrestest.NewEmpty(t)
	db := open(t, fresh)
	require.NoError(t, migrations.Up(t.Context(), db, discard()))
	partitions(t, db)
	want := schemaOf(t, db, fresh)
	require.Greater(t, len(want), 500)

	db = open(t, steps)
	files := fstest.MapFS{}
	for i, name := range names(t) {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: text}
		require.NoError(t, migrations.UpFrom(t.Context(), files, db, discard()))
		if i == 0 {
			partitions(t, db)
			fill(t, db)
		}
	}
	require.Equal(t, want, schemaOf(t, db, steps))
}

// partitions makes those of one day, as a running process does.
func partitions(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `
		select everpost_make_partition(parent, parent || '_20260131', '019c1122-0000-7000-8000-000000000000', '019c1649-0000-7000-8000-000000000000')
		from unnest(array['events', 'deliveries', 'attempts']) parent;
		select everpost_make_statistics_partition(parent, parent || '_20260131', '2026-01-31', '2026-02-01')
		from unnest(array['statistics_minutes', 'statistics_hours']) parent`)
	require.NoError(t, err)
}

// fill stores rows in every table of 00001_schema.sql, and in the partitions.
func fill(t *testing.T, db *sql.DB) {
	t.Helper()
	const id = `'019c1200-0000-7000-8000-000000000001'`
	_, err := db.ExecContext(t.Context(), strings.ReplaceAll(`
		insert into tenants (id, name) values ('acme', 'Acme');
		insert into deleted_tenants (id) values ('gone');
		insert into api_keys (id, tenant_id, scope, sha256, created_at) values (@id, 'acme', 2, sha256('key'), now());
		insert into console_links (sha256, id, tenant_id, key_id, key_sha256, access, expires_at)
			values (sha256('link'), @id, 'acme', @id, sha256('key'), 1, now());
		insert into console_sessions (sha256, tenant_id, key_id, key_sha256, access, expires_at)
			values (sha256('session'), 'acme', @id, sha256('key'), 1, now());
		insert into audit_log (id, actor, request_id, tenant_id, action, subject) values (@id, 'it', '', 'acme', 'endpoint.create', '');
		insert into endpoints (id, tenant_id, url, event_types, timeout_ns, max_in_flight, rate_limit, circuit_breaker, auto_disable,
				auto_replay, signature, version)
			values (@id, 'acme', 'https://example.com', '{*}', 1, 1, 1, '{}', '{}', false, 'v1', 1);
		insert into endpoint_secrets (endpoint_id, version, kek_id, wrapped_key, nonce, ciphertext) values (@id, 1, 'kek', '', '', '');
		insert into endpoint_health (endpoint_id, worker, seen_at, seen) values (@id, 'it', now(), '{}');
		insert into endpoint_trouble (endpoint_id, since) values (@id, now());
		insert into circuit_closings (endpoint_id) values (@id);
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
			values (@id, 'acme', 'it', '{}', '', array[@id::uuid], now()), (gen_random_uuid(), 'acme', 'it', '{}', '', '{}', now());
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
			select id, @id, @id, 'acme', 'it', now(), 1, 1, state, now()
			from (values (@id::uuid, 0), (gen_random_uuid(), 1), (gen_random_uuid(), 2), (gen_random_uuid(), 3), (gen_random_uuid(), 4)) d (id, state);
		insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns,
				delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
			select id, 1, 1, now(), 1, 1, '', 200, 0, '', 0, '', 0, false, '{}', '{}', '' from deliveries;
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
			select @id, @id, @id, 'acme', 'it', 1, created_at, give_up_at, created_at from deliveries limit 1;
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at) values ('acme', 1, 'it', '', @id, now());
		insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor) values (@id, 'acme', 1, now(), 1, 1, true, @id);
		insert into replay_releases (replay_id, delivery_id, run, number, released_at, check_at) values (@id, @id, 1, 1, now(), now());
		insert into statistics_minutes (tenant_id, endpoint_id, at) values ('acme', @id, '2026-01-31 10:00Z'), ('acme', @id, '2020-01-01');
		insert into statistics_hours (tenant_id, endpoint_id, at) values ('acme', @id, '2026-01-31 10:00Z'), ('acme', @id, '2020-01-01');
		insert into statistics_writers (writer, seq) values (@id, 1);
		insert into processes (id, address, certificate, leaving, seen_until) values ('it', '', '', false, now())`, `@id`, id))
	require.NoError(t, err)
	rows, err := db.QueryContext(t.Context(), `
		select relname from pg_class where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind = 'r'`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var all []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		all = append(all, name)
	}
	require.NoError(t, rows.Err())
	for _, name := range all {
		var found bool
		require.NoError(t, db.QueryRowContext(t.Context(), `select exists (select from `+name+`)`).Scan(&found))
		require.True(t, found, "no row in %s", name)
	}
}

// schemaOf describes everything that a migration can make, one thing a line, without the name of the schema.
func schemaOf(t *testing.T, db *sql.DB, address string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		with its as (select oid from pg_namespace where nspname = current_schema()),
		relations as (select oid, relkind, relname, relpersistence, relrowsecurity, reloptions, relpartbound, relacl
			from pg_class where relnamespace = (select oid from its))
		select format('%s %s %s %s %s %s %s', relkind, relname, relpersistence, relrowsecurity, reloptions, pg_get_expr(relpartbound, oid), relacl)
			from relations
		union all select format('column %s.%s %s %s %s %s %s %s %s', relname, attname, format_type(atttypid, atttypmod), attnotnull, attstorage, attcollation,
				attstattarget, attacl, pg_get_expr(adbin, adrelid))
			from relations r join pg_attribute a on a.attrelid = r.oid left join pg_attrdef d on d.adrelid = attrelid and d.adnum = attnum
			where attnum > 0 and not attisdropped and relkind in ('r', 'p', 'v')
		union all select format('constraint %s %s %s', relname, conname, pg_get_constraintdef(c.oid))
			from pg_constraint c join relations r on r.oid = conrelid
		union all select format('index %s %s', pg_get_indexdef(indexrelid), indisvalid)
			from pg_index join relations on oid = indrelid
		union all select format('policy %s %s %s %s %s %s', tablename, policyname, roles, cmd, qual, with_check)
			from pg_policies where schemaname = current_schema()
		union all select format('view %s %s', relname, pg_get_viewdef(oid)) from relations where relkind = 'v'
		union all select format('function %s %s', pg_get_functiondef(oid), proacl)
			from pg_proc where pronamespace = (select oid from its)
		union all select format('trigger %s %s', relname, pg_get_triggerdef(t.oid))
			from pg_trigger t join relations r on r.oid = tgrelid where not tgisinternal
		union all select format('statistics %s', pg_get_statisticsobjdef(oid))
			from pg_statistic_ext where stxnamespace = (select oid from its)
		order by 1`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	u, err := url.Parse(address)
	require.NoError(t, err)
	schema := u.Query().Get("search_path")
	var all []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		all = append(all, strings.ReplaceAll(line, schema, "its"))
	}
	require.NoError(t, rows.Err())
	return all
}
