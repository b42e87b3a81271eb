package postgres_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// granted is what each role may do with each table: docs/security-database.md shows it.
// Columns stand in brackets where it is not all of them.
func granted() map[string]map[string]string {
	const (
		all        = "select insert update delete"
		noUpdate   = "select insert delete"
		noDelete   = "select insert update"
		readAdd    = "select insert"
		readRemove = "select delete"
	)
	return map[string]map[string]string{
		postgres.RoleAPI: {
			"tenants": "select update(endpoints_version)", "api_keys": "select insert update(revoked_at)", "endpoints": noDelete,
			"endpoint_secrets": all, "endpoint_trouble": readRemove, "endpoint_health": "select", "audit_log": readAdd,
			"events": readAdd, "deliveries": noDelete, "attempts": "select", "outbox": noDelete, "idempotency_keys": "select",
			"replays": noDelete, "releases": noDelete, "circuit_closings": noDelete, "everpost_schema_version": "select",
			"statistics_minutes": "select", "statistics_hours": "select", "request_keys": noDelete,
			"notification_settings": noDelete, "notification_channels": all, "notification_changes": "insert", "notification_mails": readAdd,
			"notification_confirmations": "select", "event_types": "select", "event_type_versions": "select",
		},
		postgres.RoleOperator: {
			"tenants": all, "api_keys": "select insert update(last_used_at,revoked_at)", "audit_log": readAdd,
			"endpoints": "select(deleted_at,id,internal,state,state_since,tenant_id)", "endpoint_health": "select(endpoint_id,seen_at)",
			"deleted_tenants": "select insert update(completed_at,deleted_at,everything)", "kek_uses": "select",
			"statistics_minutes": "select", "statistics_hours": "select",
			"console_links": noUpdate, "console_sessions": "select insert update(last_seen_at) delete",
			"processes": "select insert update(leaving,seen_until) delete", "lanes": "select", "request_keys": noDelete,
			"notification_settings": noDelete, "notification_channels": all, "notification_mails": readAdd, "notification_confirmations": "select",
			"event_types": all, "event_type_versions": all,
			"notification_keys": "select",
		},
		postgres.RoleIngest: {
			"tenants": "select(endpoints_version,id)", "events": "insert", "outbox": "insert", "event_heads": "select",
			"idempotency_keys": "select insert update(event_id,event_ids) delete", "statistics_minutes": noDelete, "statistics_writers": noDelete,
			"lines": noDelete,
		},
		postgres.RoleWorker: {
			"tenants": "select update(endpoints_version)", "endpoints": "select update", "endpoint_secrets": "select update(kek_id,wrapped_key) delete",
			"endpoint_trouble": all, "endpoint_health": all, "audit_log": "insert", "events": "select insert update(reason) delete",
			"deliveries": all, "attempts": noUpdate, "outbox": all, "idempotency_keys": readRemove, "replays": all, "releases": all, "replay_releases": all,
			"deleted_tenants": "select update(completed_at) delete", "kek_uses": "select", "circuit_closings": "select",
			"everpost_schema_version": "select", "events_default": "select", "deliveries_default": "select", "attempts_default": "select",
			"statistics_minutes": all, "statistics_hours": all, "statistics_writers": all,
			"statistics_minutes_default": "select", "statistics_hours_default": "select",
			"processes": "select insert update(leaving,seen_until) delete", "lanes": "select update(epoch,expires_at,owner)",
			"request_keys":          "select update delete",
			"notification_settings": "select update(digest_at)", "notification_channels": "select update(last_error,last_error_at,last_told_at,refusals,state)",
			"notification_changes": all, "notification_told": all, "notification_mails": all, "notification_confirmations": all,
			"event_types": "select", "event_type_versions": "select", "lines": "select update(used_on) delete",
			"notification_keys": "select insert update(kek_id,wrapped_key)",
		},
		"public": {},
	}
}

func TestRolesMayDoWhatTheyHaveToAndNoMore(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	require.NoError(t, s.EnsurePartitions(t.Context(), time.Now()))
	found := map[string]map[string]string{}
	for role := range granted() {
		found[role] = map[string]string{}
		rows, err := s.Pool().Query(t.Context(), `
			select c.relname, string_agg(p.name || case when has_table_privilege($1, c.oid, p.name) then '' else (
				select '(' || string_agg(a.attname, ',' order by a.attname) || ')' from pg_attribute a
				where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and has_column_privilege($1, c.oid, a.attnum, p.name)) end, ' ' order by p.at)
			from pg_class c, unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) with ordinality p (name, at)
			where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v')
			  and (has_table_privilege($1, c.oid, p.name)
				or p.name in ('select', 'insert', 'update', 'references') and has_any_column_privilege($1, c.oid, p.name))
			group by 1`, role)
		require.NoError(t, err)
		var table, may string
		_, err = pgx.ForEachRow(rows, []any{&table, &may}, func() error {
			found[role][table] = may
			return nil
		})
		require.NoError(t, err)
	}
	require.Equal(t, granted(), found)

	require.Empty(t, storetest.Query[string](t, s, `
		select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and not relispartition
		and not relrowsecurity and relname <> 'everpost_schema_version'`), "row-level security is on everywhere")
	require.Empty(t, storetest.Query[string](t, s, `
		select proname || ' ' || r from pg_proc, unnest(array['public', 'everpost_api', 'everpost_operator', 'everpost_ingest', 'everpost_worker']) r
		where pronamespace = current_schema()::regnamespace
		  and (r = any(case proname when 'everpost_erase_payloads' then '{everpost_api}'::text[]
		       when 'everpost_admit_replays' then '{everpost_api,everpost_worker}' when 'everpost_erase_days' then '{}'
		       when 'everpost_stamp_endpoint' then '{}' else '{everpost_worker}' end)) <> has_function_privilege(r, oid, 'execute')`))
	require.Empty(t, storetest.Query[string](t, s, `
		select rolname from pg_roles
		where (rolcanlogin or rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolinherit) and rolname = any($1)`,
		[]string{postgres.RoleAPI, postgres.RoleOperator, postgres.RoleIngest, postgres.RoleWorker}))
}

// as runs fn in a role, with a tenant named if it is not "", and undoes it.
func as(t *testing.T, s *storetest.Stores, role, tenant string, fn func(tx pgx.Tx)) {
	t.Helper()
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), postgres.SetLocally, postgres.SettingRole, role)
	require.NoError(t, err)
	if tenant != "" {
		_, err = tx.Exec(t.Context(), postgres.SetLocally, postgres.SettingTenant, tenant)
		require.NoError(t, err)
	}
	fn(tx)
}

// walled is a store with rows of two tenants in every table.
type walled struct {
	*storetest.Bundle

	endpoints  map[string]webhook.Endpoint
	deliveries map[string]webhook.Start
	keys       map[string]webhook.Key
	replays    map[string]webhook.Replay
}

func setupWall(t *testing.T) *walled {
	t.Helper()
	s, address := storetest.SetupStore(t)
	w := &walled{
		&storetest.Bundle{Stores: s, Address: address}, map[string]webhook.Endpoint{}, map[string]webhook.Start{},
		map[string]webhook.Key{}, map[string]webhook.Replay{},
	}
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "other", Name: "Other"})
	require.NoError(t, err)
	for _, tenant := range []string{"acme", "other"} {
		e := storetest.CreateEndpoint(t, s, tenant)
		w.endpoints[tenant] = e
		by := storetest.TestActor()
		by.Request = webhook.NewRequestKey(tenant, by.KeyID, "POST", "/keys", "once", nil)
		w.keys[tenant] = webhook.Key{ID: webhook.NewKeyID(), TenantID: tenant, Scope: webhook.ScopeAdmin, CreatedAt: time.Now()}
		require.NoError(t, s.CreateKey(t.Context(), by, w.keys[tenant]))
		for _, external := range []string{"one", "two"} { // one gets a row, the other stays in the outbox
			accepted, err := s.Accept(t.Context(), webhook.NewEvent{
				TenantID: tenant, Type: "order.paid", Payload: []byte(`1`), ExternalID: external, EndpointIDs: []webhook.EndpointID{e.ID},
			})
			require.NoError(t, err)
			w.deliveries[tenant] = accepted.Deliveries[0]
			if external == "two" {
				step := storetest.StepOf(accepted.Deliveries[0], 1, webhook.StateDeadLettered)
				step.Attempt = storetest.AttemptOf(1, 1, 503)
				_, err = s.RecordStep(t.Context(), step)
				require.NoError(t, err)
			}
		}
		w.replays[tenant], err = s.CreateReplay(t.Context(), storetest.TestActor(), webhook.Replay{
			TenantID: tenant, Source: webhook.ReplayDeadLetters, Filter: webhook.ReplayFilter{EndpointID: e.ID}, Asked: 10,
		})
		require.NoError(t, err)
		require.NoError(t, s.AddStatistics(t.Context(), statisticsOf(tenant, e.ID)))
		_, err = s.Pool().Exec(t.Context(), `insert into statistics_hours (tenant_id, endpoint_id, at) values ($1, $2, now())`, tenant, e.ID)
		require.NoError(t, err)
		require.NoError(t, s.WriteObservations(t.Context(), tenant, map[webhook.EndpointID]webhook.Observation{e.ID: {Circuit: "open"}}))
		_, err = s.Pool().Exec(t.Context(), `insert into endpoint_trouble (endpoint_id, since) values ($1, now())`, e.ID)
		require.NoError(t, err)
		_, err = s.Pool().Exec(t.Context(), `insert into releases (endpoint_id, tenant_id) values ($1, $2)`, e.ID, tenant)
		require.NoError(t, err)
		_, err = s.Pool().Exec(t.Context(), `insert into circuit_closings (endpoint_id) values ($1)`, e.ID)
		require.NoError(t, err)
		_, err = s.Pool().Exec(t.Context(), `insert into replay_releases select $1, $2, 1, 1, current_timestamp, now()`,
			w.replays[tenant].ID, w.deliveries[tenant].DeliveryID)
		require.NoError(t, err)
		_, err = s.Pool().Exec(t.Context(), `insert into lines select $1, $1, $2, 1, 1, current_date`, e.ID, tenant)
		require.NoError(t, err)
		storetest.FillNotifications(t, s, tenant, e.ID)
	}
	return w
}

// statisticsOf is a flush with a row of an endpoint and one of the installation.
func statisticsOf(tenant string, id webhook.EndpointID) webhook.StatisticsFlush {
	minute := time.Now().UTC().Truncate(time.Minute)
	counts := webhook.Counts{FirstAttempts: 1}
	return webhook.StatisticsFlush{Writer: [16]byte{tenant[0]}, Seq: 1, Rows: []webhook.StatisticsRow{
		{TenantID: tenant, EndpointID: id, Minute: minute, Counts: counts}, {Minute: minute, Counts: counts},
	}}
}

// belongs is whose a table's row is, as SQL.
func belongs() map[string]string {
	const ofEndpoint = `(select e.tenant_id from endpoints e where e.id = endpoint_id)`
	return map[string]string{
		"tenants": "id", "api_keys": "tenant_id", "endpoints": "tenant_id", "audit_log": "tenant_id", "events": "tenant_id", "deliveries": "tenant_id",
		"outbox": "tenant_id", "idempotency_keys": "tenant_id", "request_keys": "tenant_id", "lines": "tenant_id",
		"replays": "tenant_id", "releases": "tenant_id",
		"deleted_tenants": "id",
		"console_links":   "tenant_id", "console_sessions": "tenant_id",
		"endpoint_secrets": ofEndpoint, "endpoint_trouble": ofEndpoint, "endpoint_health": ofEndpoint, "circuit_closings": ofEndpoint,
		"attempts":           `(select d.tenant_id from deliveries d where d.id = delivery_id)`,
		"replay_releases":    `(select r.tenant_id from replays r where r.id = replay_id)`,
		"statistics_minutes": "tenant_id", "statistics_hours": "tenant_id", "statistics_writers": "null", "processes": "null", "lanes": "null",
		"notification_settings": "tenant_id", "notification_channels": "tenant_id", "notification_changes": "tenant_id", "notification_told": ofEndpoint,
		"notification_mails":         `(select c.tenant_id from notification_channels c where c.id = channel_id)`,
		"notification_confirmations": "owner", "notification_keys": "null",
		"event_types": ofEveryone, "event_type_versions": ofEveryone,
	}
}

const ofEveryone = "" // a table of the installation, which every tenant may read

// The statements here have no condition at all: the wall is what keeps tenants apart.
func TestTheAPISeesAndChangesTheTenantThatItNames(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	owners := belongs()
	require.Len(t, storetest.Query[string](t, w.Stores, `
		select relname from pg_class where relnamespace = current_schema()::regnamespace and relrowsecurity`), len(owners),
		"every table with policies is in this test")
	for table, may := range granted()[postgres.RoleAPI] {
		if table == "everpost_schema_version" || !strings.Contains(may, "select") || owners[table] == ofEveryone {
			continue
		}
		count := fmt.Sprintf(`select coalesce(sum((%s = 'acme')::int), 0), count(*) from %s`, owners[table], table)
		var acmes, all, seen, seenAll int
		require.NoError(t, w.Pool().QueryRow(t.Context(), count).Scan(&acmes, &all))
		require.Positive(t, acmes, table)
		require.Greater(t, all, acmes, table)
		for tenant, want := range map[string]int{"acme": acmes, "": 0, "nobody": 0} {
			as(t, w.Stores, postgres.RoleAPI, tenant, func(tx pgx.Tx) {
				require.NoError(t, tx.QueryRow(t.Context(), count).Scan(&seen, &seenAll))
				require.Equal(t, [2]int{want, want}, [2]int{seen, seenAll}, "%s as %q", table, tenant)
				for _, sql := range changesOf(table, may) {
					tag, err := tx.Exec(t.Context(), sql)
					require.NoError(t, err, sql)
					require.EqualValues(t, want, tag.RowsAffected(), "%s as %q", sql, tenant)
				}
			})
		}
	}
}

// The catalogue of event types belongs to no tenant: whoever reads for one sees all of it. TestRolesMayDoWhatTheyHaveToAndNoMore says that nobody
// else than an operator changes it.
func TestEveryoneReadsWhatBelongsToTheInstallation(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	_, err := w.Pool().Exec(t.Context(), `
		with made as (insert into event_types (name) values ('order.paid') returning name)
		insert into event_type_versions (type, version) select name, 1 from made`)
	require.NoError(t, err)
	for table, owner := range belongs() {
		if owner != ofEveryone {
			continue
		}
		for _, role := range []string{postgres.RoleAPI, postgres.RoleOperator, postgres.RoleWorker} {
			as(t, w.Stores, role, "acme", func(tx pgx.Tx) {
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
				require.Equal(t, 1, n, "%s as %s", table, role)
			})
		}
	}
}

// changesOf are an update and then a delete of all rows of a table, as far as a role may.
func changesOf(table, may string) (changes []string) {
	if strings.Contains(may, "update") {
		column := map[string]string{
			"tenants": "endpoints_version", "api_keys": "revoked_at", "endpoints": "url", "endpoint_secrets": "kek_id", "deliveries": "reason",
			"outbox": "relayed", "replays": "rate", "releases": "rate", "circuit_closings": "closed_at", "request_keys": "status",
			"notification_settings": "portal_url", "notification_channels": "place",
		}[table]
		changes = append(changes, fmt.Sprintf(`update %s set %s = %[2]s`, table, column))
	}
	if strings.Contains(may, "delete") {
		changes = append(changes, `delete from `+table)
	}
	return changes
}

func TestTheAPIWritesNoRowOfAnotherTenant(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	id := w.endpoints["other"].ID
	for name, sql := range map[string]string{
		"key":               `insert into api_keys (id, tenant_id, scope, sha256, created_at) values (gen_random_uuid(), 'other', 1, sha256(''), now())`,
		"an operator's key": `insert into api_keys (id, tenant_id, scope, sha256, created_at) values (gen_random_uuid(), null, 3, sha256(''), now())`,
		"audit entry":       `insert into audit_log (id, actor, request_id, tenant_id, action, subject) values (gen_random_uuid(), '', '', 'other', '', '')`,
		"event": `insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
			values (gen_random_uuid(), 'other', '', '', '', '{}', now())`,
		"delivery": `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
			values (gen_random_uuid(), gen_random_uuid(), '` + uuidText(id) + `', 'other', '', now(), 1, 1, 0, now())`,
		"start": `insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
			values (gen_random_uuid(), gen_random_uuid(), '` + uuidText(id) + `', 'other', '', 1, now(), current_timestamp, now())`,
		"release": `insert into releases (endpoint_id, tenant_id) values ('` + uuidText(id) + `', 'other')
			on conflict (endpoint_id) do update set rate = 1`,
		"replay": `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor)
			values (gen_random_uuid(), 'other', 1, now(), 1, 1, false, gen_random_uuid())`,
		"secret": `insert into endpoint_secrets (endpoint_id, version, kek_id, wrapped_key, nonce, ciphertext)
			values ('` + uuidText(id) + `', 9, '', '', '', '')`,
		"request":              `insert into request_keys (id, tenant_id, body_sha256, attempt) values ('1', 'other', '', gen_random_uuid())`,
		"endpoint, taken over": `update endpoints set tenant_id = 'other'`,
		"delivery, given away": `update deliveries set tenant_id = 'other'`,
	} {
		as(t, w.Stores, postgres.RoleAPI, "acme", func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), sql)
			requireRefused(t, err, name)
			require.ErrorContains(t, err, "row-level security", name)
		})
		as(t, w.Stores, postgres.RoleAPI, "other", func(tx pgx.Tx) { // and is right otherwise
			if _, err := tx.Exec(t.Context(), sql); name == "an operator's key" {
				requireRefused(t, err, name)
			} else {
				require.NoError(t, err, name)
			}
		})
	}
}

func uuidText(id webhook.EndpointID) string { return hex.EncodeToString(id[:]) }

func requireRefused(t *testing.T, err error, what string) {
	t.Helper()
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg, what)
	require.Equal(t, "42501", pg.Code, "%s: %s", what, pg.Message)
}

func TestRolesAreRefusedWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	for role, statements := range map[string][]string{
		postgres.RoleIngest: {
			`select payload from events`, `select id from events`, `update deliveries set state = 3`, `select id from deliveries`,
			`select delivery_id from outbox`,
			`delete from outbox`,
			`select sha256 from api_keys`, `select ciphertext from endpoint_secrets`, `update tenants set name = ''`, `select name from tenants`,
			`select everpost_drop_partitions('{events_20200101}')`,
		},
		postgres.RoleWorker: {
			`select sha256 from api_keys`, `insert into api_keys (id, scope, sha256, created_at) values (gen_random_uuid(), 3, sha256(''), now())`,
			`delete from audit_log`, `select detail from audit_log`, `update audit_log set actor = ''`, `insert into tenants (id, name) values ('new', '')`,
			`delete from tenants`, `update events set payload = ''`, `update attempts set status = 200`, `insert into endpoints select * from endpoints`,
			`update endpoint_secrets set ciphertext = ''`, `drop table events_default`, `select everpost_drop_partitions('{tenants}')`,
			`select everpost_drop_partitions('{events_default}')`, `select everpost_drop_partitions(null)`,
			`select everpost_make_partition('tenants', 'tenants_20200101', gen_random_uuid(), gen_random_uuid())`,
			`select everpost_make_partition('events', 'tenants', gen_random_uuid(), gen_random_uuid())`,
			`select everpost_prune_audit_log(now(), gen_random_uuid(), 1)`, `select everpost_prune_audit_log(null, gen_random_uuid(), 1)`,
			`insert into deleted_tenants (id) values ('acme')`, `drop table statistics_minutes_default`,
			`select everpost_drop_partitions('{statistics_minutes_default}')`,
			`select everpost_make_statistics_partition('events', 'events_20200101', now(), now())`,
			`select everpost_make_statistics_partition('statistics_minutes', 'statistics_hours_20200101', now(), now())`,
			`select sha256 from console_sessions`, `select sha256 from console_links`,
		},
		postgres.RoleOperator: {
			`select payload from events`, `select ciphertext from endpoint_secrets`, `select url from endpoints`,
			`select id from deliveries`, `delete from audit_log`,
			`update audit_log set actor = ''`, `delete from deleted_tenants`, `update deleted_tenants set id = ''`,
			`delete from statistics_minutes`, `insert into statistics_hours select * from statistics_hours`, `select seq from statistics_writers`,
			`select everpost_prune_audit_log('2020-01-01', gen_random_uuid(), 1)`,
		},
		postgres.RoleAPI: {
			`insert into tenants (id, name) values ('new', '')`, `delete from tenants`, `update tenants set limits = '{}'`,
			`delete from audit_log`, `update events set payload = ''`,
			`delete from deliveries`, `insert into attempts select * from attempts`, `insert into idempotency_keys select * from idempotency_keys`,
			`select id from events_default`, `select replay_id from replay_releases`, `select everpost_drop_partitions('{events_20200101}')`,
			`select id from deleted_tenants`, `select what from kek_uses`, `select everpost_prune_audit_log('2020-01-01', gen_random_uuid(), 1)`,
			`alter table events disable row level security`, `delete from statistics_hours`, `select seq from statistics_writers`,
			`insert into statistics_minutes select * from statistics_minutes`, `select at from statistics_minutes_default`,
			`select sha256 from console_sessions`, `select sha256 from console_links`,
		},
	} {
		for _, sql := range statements {
			as(t, w.Stores, role, "acme", func(tx pgx.Tx) {
				_, err := tx.Exec(t.Context(), sql)
				requireRefused(t, err, role+": "+sql)
			})
		}
	}
}

func TestTheNameEndsWithItsStatement(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	err := w.OfTenant("acme").Use(t.Context(), "look", func(ctx context.Context, conn *pgxpool.Conn) error {
		named := w.OfTenant("acme").On(conn)
		var n int
		require.NoError(t, named.QueryRow(ctx, `select count(*) from endpoints`).Scan(&n))
		require.Equal(t, 1, n)
		require.NoError(t, conn.QueryRow(ctx, `select count(*) from endpoints`).Scan(&n))
		require.Zero(t, n, "no tenant is named any more")

		require.ErrorIs(t, named.QueryRow(ctx, `select id from tenants where id = 'other'`).Scan(new(string)), pgx.ErrNoRows)
		require.ErrorContains(t, named.QueryRow(ctx, `select 1/0`).Scan(&n), "division by zero")
		rows, err := named.Query(ctx, `select wrong`)
		if rows != nil {
			rows.Close()
		}
		require.ErrorContains(t, err, "wrong")
		_, err = named.Exec(ctx, `select 1/0`)
		require.ErrorContains(t, err, "division by zero")
		require.NoError(t, named.QueryRow(ctx, `select 7`).Scan(&n), "the connection goes on")

		operator := w.AsOperator().On(conn)
		require.NoError(t, operator.QueryRow(ctx, `select count(*) from tenants`).Scan(&n))
		require.Equal(t, 2, n)
		var role string
		require.NoError(t, conn.QueryRow(ctx, `select current_user`).Scan(&role))
		require.Equal(t, postgres.RoleAPI, role)
		return nil
	})
	require.NoError(t, err)
}

// A tenant's name is a value, whatever is in it.
func TestANameIsAValue(t *testing.T) {
	t.Parallel()
	w := setupWall(t)
	for _, name := range []string{`'; set role everpost_worker; --`, `\'; select 1; --`, `a"b`, "ü€", `everpost.tenant`, `*`, `%`, ` `} {
		_, err := w.Tenant(t.Context(), name)
		storetest.RequireCode(t, webhook.CodeNotFound, err)
		storetest.RequireCode(t, webhook.CodeNotFound, w.nobody(t, name))
	}
	for _, name := range []string{"a\x00b", "\xff"} {
		_, err := w.Tenant(t.Context(), name)
		storetest.RequireCode(t, webhook.CodeInvalid, err)
		storetest.RequireCode(t, webhook.CodeInvalid, w.OfTenant(name).InTx(t.Context(), "change", func(context.Context, pgx.Tx) error { return nil }))
	}
	require.NoError(t, w.Ready(t.Context()))
}

// nobody reads as a tenant that does not exist.
func (w *walled) nobody(t *testing.T, name string) error {
	t.Helper()
	return w.OfTenant(name).InTx(t.Context(), "look", func(ctx context.Context, tx pgx.Tx) error {
		var said, role string
		require.NoError(t, tx.QueryRow(ctx, `select current_setting('everpost.tenant'), current_user`).Scan(&said, &role))
		require.Equal(t, [2]string{name, postgres.RoleAPI}, [2]string{said, role})
		err := tx.QueryRow(ctx, `select id from tenants`).Scan(&said)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("tenant")
		}
		return err
	})
}
