package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Days of a Large: with today, the days ahead and the DEFAULT partition, deliveries have 36 partitions.
const pastDays = 31

// Large is a bundle in the shape of an installation that has run for a month. Its columns depend on each other,
// as they do in production: an endpoint is of one tenant, and most rows are of one endpoint. Partitions have statistics,
// their parents have none: autovacuum analyzes no partitioned table.
type Large struct {
	*Bundle

	Tenant   string             // has half of all, and its Subscriber four fifths of that
	Small    string             // a tenant with few rows, each on a page of its own
	Endpoint webhook.EndpointID // of Small
	Perday   int                // deliveries

	conn *pgx.Conn // without limits of time, and with the temporary tables of what is added
}

// Fill adds the rows: so many deliveries for each of the last 32 days, each with its event and one to three attempts.
func Fill(t *testing.T, b *Bundle, perDay int) *Large {
	t.Helper()
	l := FillPast(t, b, perDay)
	l.AddToday(t)
	l.Exec(t, fillOutbox)
	l.Vacuum(t)
	return l
}

// FillPast is Fill up to yesterday: the partitions of today and of the days to come are empty.
func FillPast(t *testing.T, b *Bundle, perDay int) *Large {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	l := &Large{Bundle: b, Tenant: "acme", Small: "small-3", Perday: perDay, conn: conn}
	today := today()
	for day := today.Add(-pastDays * postgres.Day); !day.After(today); day = day.Add(postgres.Day) {
		require.NoError(t, b.MakePartitions(t.Context(), day))
	}
	for _, table := range []string{"events", "deliveries", "attempts"} { // autovacuum would analyze today's at any moment
		_, err := conn.Exec(t.Context(), `alter table `+table+today.Format("_20060102")+` set (autovacuum_enabled = off)`)
		require.NoError(t, err)
	}
	_, err = conn.Exec(t.Context(), fillTenants, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	l.Exec(t, `update receivers set id = $1, tenant = 'acme' where n = 0`, b.Subscriber.ID)
	l.Exec(t, fillEndpoints)
	for day := today.Add(-pastDays * postgres.Day); day.Before(today); day = day.Add(postgres.Day) {
		l.addDay(t, day, postgres.Day)
	}
	l.Exec(t, fillStatistics)
	l.Vacuum(t)
	require.NoError(t, conn.QueryRow(t.Context(), `select id from receivers where tenant = $1 order by n limit 1`, l.Small).Scan((*[16]byte)(&l.Endpoint)))
	return l
}

func today() time.Time { return time.Now().UTC().Truncate(postgres.Day) }

// AddToday adds today's deliveries. Nothing is analyzed.
func (l *Large) AddToday(t *testing.T) {
	t.Helper()
	l.addDay(t, today(), time.Since(today()))
}

// AddRecorded adds outbox rows of up to so many of today's deliveries of the largest endpoint, which have their first step.
func (l *Large) AddRecorded(t *testing.T, n int) {
	t.Helper()
	l.Exec(t, `
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
		select delivery, event, endpoint, tenant, type, 1, at, at + interval '3 days', now() + interval '1 hour' from made where endpoint = $1 limit $2`,
		l.Subscriber.ID, n)
}

func (l *Large) addDay(t *testing.T, day time.Time, span time.Duration) {
	t.Helper()
	_, err := l.conn.Exec(t.Context(), `truncate made`)
	require.NoError(t, err)
	l.Exec(t, fillDay, day, span.Seconds(), l.Perday)
	for _, table := range []string{fillEvents, fillDeliveries, fillAttempts} {
		l.Exec(t, table)
	}
}

// Exec changes rows behind the store's back, however long that takes: the store's own connections end a statement after 10 s.
func (l *Large) Exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	tag, err := l.conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
	require.Positive(t, tag.RowsAffected(), sql)
}

// Relayed leaves nothing in the outbox that waits for the relay.
func (l *Large) Relayed(t *testing.T) {
	t.Helper()
	_, err := l.conn.Exec(t.Context(), `update outbox set relay_at = now() + interval '1 minute', relayed = 0 where relay_at < now() or relayed > 0`)
	require.NoError(t, err)
}

// Vacuum does what autovacuum does: it vacuums and analyzes the partitions and the other tables, but not the partitioned ones as a whole.
func (l *Large) Vacuum(t *testing.T) {
	t.Helper()
	for _, table := range append(Query[string](t, l.Stores, `
		select tablename from pg_tables where schemaname = current_schema() and tablename ~ '_([0-9]{8}|default)$' order by 1`),
		"tenants", "endpoints", "outbox", "idempotency_keys", "replays") {
		_, err := l.conn.Exec(t.Context(), `vacuum (analyze) `+postgres.Quote(table))
		require.NoError(t, err, table)
	}
}

// fillTenants makes the tenants and the ids of their endpoints: 0 to 8 are acme's, then three for each small one. Their numbers decide
// how much each gets.
const fillTenants = `
	insert into tenants (id, name) select 'small-' || n, 'Small' from generate_series(1, 60) n;
	create temp table receivers as
		select n, gen_random_uuid() as id, case when n < 9 then 'acme' else 'small-' || (1 + (n - 9) / 3) end as tenant from generate_series(0, 188) n;
	create temp table made (n int, at timestamptz, event uuid, delivery uuid, endpoint uuid, tenant text, type text, state int)`

// fillEndpoints copies the subscriber's row.
const fillEndpoints = `
	insert into endpoints (id, tenant_id, url, event_types, timeout_ns, max_in_flight, rate_limit, retry_policy, circuit_breaker, auto_disable, auto_replay,
		signature, version)
	select r.id, r.tenant, e.url, e.event_types, e.timeout_ns, e.max_in_flight, e.rate_limit, e.retry_policy, e.circuit_breaker, e.auto_disable,
		e.auto_replay, e.signature, 1
	from receivers r, endpoints e where r.n > 0 and e.id = (select id from receivers where n = 0)`

// fillDay makes the deliveries of a day, in the order of their time: 97 % of those of past days are delivered. Of the last two days some
// are retried or held, most of them of the largest endpoint.
const fillDay = `
	insert into made
	select s.n, at, (prefix || '7' || substr(random, 1, 3) || '8' || substr(random, 4, 15))::uuid,
		(prefix || '8' || substr(random, 15, 3) || '8' || substr(random, 17, 15))::uuid, e.id, e.tenant,
		'order.' || s.n % 5,
		case when day_age < 2 and s.n % 50 = 1 then 1 when day_age < 2 and (s.n % 20 = 3 or s.n % 60 = 4) then 2
			when s.n % 50 in (7, 8) then 4 when s.n % 300 in (5, 14) then 5 when s.n % 300 in (15, 24) then 6 else 3 end
	from (
		select n, at, day_age, lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') as prefix, md5(n || ' ' || at) as random,
			case when n % 2 = 0 then 9 + (n / 2) % 180 when n / 2 % 5 > 0 then 0 else 1 + n / 10 % 8 end as receiver
		from (select n, $1::timestamptz + n * $2::float8 / $3::int * interval '1 second' as at, current_date - $1::timestamptz::date as day_age
			from generate_series(0, $3::int - 1) n) s
	) s join receivers e on e.n = s.receiver order by s.n`

// fillEvents gives a third of the events tags: acme has more of those than a list looks at.
const fillEvents = `
	insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at, tags)
	select event, tenant, type, '{"order": 17, "items": [1, 2, 3], "note": "fifty bytes"}', '\x00', array[endpoint], at,
		case when n % 3 = 0 then array['third', 'n:' || n] end from made`

const fillDeliveries = `
	insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, attempts, run_attempts, due_at,
		give_up_at, completed_at, last_decision, last_reason, last_status, last_latency_us, last_at, last_retry_after_ns, last_error)
	select delivery, event, endpoint, tenant, type, at, 1, 2, state,
		case state when 2 then case when n % 2 = 0 then 'internal' else 'backlog' end when 4 then 'http_500' else '' end,
		case when state in (1, 4) then 3 else 1 end, case when state in (1, 4) then 3 else 1 end,
		case when state = 1 then now() + n % 3600 * interval '1 second' end,
		at + interval '3 days', case when state > 2 then at + interval '1 minute' end, case when state = 3 then 0 else 1 end,
		case when state = 3 then '' else 'http_500' end, case when state = 3 then 200 else 500 end, 41000, at, 0,
		case when state = 4 then 'answered 500' else '' end
	from made`

const fillAttempts = `
	insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns, delay_source,
		nominal_ns, truncated, request_headers, response_headers, response_body)
	select delivery, 1, a, at, 41000, case when state = 3 then 0 else 1 end, '', case when state = 3 then 200 else 500 end, 0, '', 0, '', 0, false,
		'{}', '{}', ''
	from made, generate_series(1, case when state in (1, 4) then 3 else 1 end) a`

// fillOutbox adds what has just been accepted.
const fillOutbox = `
	insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
	select gen_random_uuid(), md5(random()::text)::uuid, id, tenant, 'order.1', 1, now(), now() + interval '3 days', now() + interval '1 hour'
	from receivers, generate_series(1, 5)`

// fillStatistics adds an hour of each day.
const fillStatistics = `
	insert into statistics_minutes (tenant_id, endpoint_id, at, attempt_delivered, first_attempts, first_delivered, ended_delivered)
	select tenant, id, date_trunc('minute', now()) - m * interval '10 minutes', 10, 10, 10, 10 from receivers, generate_series(0, 288) m`
