package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/webhook"
)

const day = 24 * time.Hour

// history is what an installation has delivered before it is measured.
type history struct {
	days, perDay int
	payload      int // bytes of each event
	deadEvery    int // one of so many deliveries is a dead letter; 0: none
}

func (h history) deliveries() int { return h.days * h.perDay }

// past is the database of an installation, into which a history is written.
type past struct {
	connection *pgx.Conn
	store      *stores.DB
}

func openPast(ctx context.Context, in *instance) (*past, error) {
	url, err := in.DatabaseURL()
	if err != nil {
		return nil, err
	}
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the installation's PostgreSQL: %w", err)
	}
	store, err := stores.Open(ctx, stores.Config{URL: url, MaxConns: 2})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), connection.Close(ctx))
	}
	return &past{connection, store}, nil
}

func (p *past) close(ctx context.Context) {
	p.store.Close()
	_ = p.connection.Close(context.WithoutCancel(ctx)) // the server is stopped next
}

// write writes a history. Each event has an external id and one delivery, made by one attempt.
// The first endpoints get more of them than the last: of 5,000, the first one gets 6 %.
func (p *past) write(ctx context.Context, h history) error {
	today := time.Now().UTC().Truncate(day)
	for n := h.days + 1; n > 1; n-- { // not yesterday: retention keeps a part of it
		from := today.Add(-time.Duration(n) * day)
		if err := p.store.Retention.EnsurePartitions(ctx, from); err != nil {
			return fmt.Errorf("make partitions: %w", err)
		}
		if _, err := p.connection.Exec(ctx, writeDay, from, h.perDay, h.payload, h.deadEvery); err != nil {
			return fmt.Errorf("write the past: %w", err)
		}
	}
	for _, statement := range []string{"vacuum (analyze) events, deliveries, attempts, idempotency_keys", "checkpoint"} {
		if _, err := p.connection.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// writeDay writes $2 deliveries, spread over the day $1 and all endpoints of the tenant, with
// payloads of $3 bytes. One of $4 is a dead letter, none for 0. Ids are UUIDv7 of their time,
// like the store's.
const writeDay = `
	with tenant as (select tenant_id, array_agg(id order by id) endpoints from endpoints group by tenant_id),
	made as materialized (
		select moment, tenant_id, md5(random()::text) salt, coalesce(n % nullif($4::int, 0) = 0, false) dead,
			endpoints[1 + floor(cardinality(endpoints) * power(random(), 3))::int] endpoint,
			(time || '7' || left(md5(random()::text), 3) || '8' || left(md5(random()::text), 15))::uuid event,
			(time || '8' || left(md5(random()::text), 3) || '8' || left(md5(random()::text), 15))::uuid delivery
		from tenant, generate_series(0, $2::int - 1) n,
			lateral (select $1::timestamptz + n * (interval '1 day' / $2::int) moment) times,
			lateral (select lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') "time") hex),
	outcomes as (
		select event, delivery, endpoint, tenant_id, moment, dead, case when dead then 4 else 3 end state, case when dead then 3 else 1 end decision,
			case when dead then 'http_410' else 'http_200' end reason, case when dead then 410 else 200 end status
		from made),
	events as (
		insert into events (id, tenant_id, type, external_id, payload, payload_sha256, endpoint_ids, created_at)
		select event, tenant_id, 'bench.past', salt, convert_to(repeat(salt, $3::int / 32), 'UTF8'), sha256(salt::bytea), array[endpoint], moment
		from made),
	keys as (
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at)
		select tenant_id, 1, salt, sha256(salt::bytea), event, moment from made),
	attempts as (
		insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns,
			delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
		select delivery, 1, 1, moment, 2000, decision, reason, status, 0, '', 0, '', 0, false, '{}', '{}', '' from outcomes)
	insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, attempts, run_attempts, give_up_at,
		completed_at, workflow_id, last_decision, last_reason, last_status, last_latency_us, last_at, last_retry_after_ns)
	select delivery, event, endpoint, tenant_id, 'bench.past', moment, 1, 1, state, case when dead then reason else '' end, 1, 1,
		moment + interval '72 hours', moment, 'delivery/' || event || '/' || endpoint, decision, reason, status, 2000, moment, 0 from outcomes`

// leaveWaiting lets the last n deliveries wait for a retry, for longer than a measurement takes.
func (p *past) leaveWaiting(ctx context.Context, n int) error {
	_, err := p.connection.Exec(ctx, `update deliveries set state = 1, due_at = now() + interval '6 hours', completed_at = null, reason = '',
		give_up_at = now() + interval '72 hours', last_decision = 2, last_reason = 'http_503', last_status = 503
		where id in (select id from deliveries where event_type = 'bench.past' order by id desc limit $1)`, n)
	if err != nil {
		return fmt.Errorf("let deliveries wait: %w", err)
	}
	return nil
}

// writeStatistics writes what the deliveries of a history leave: hours of all endpoints, minutes of
// the last two days of the busy ones, and the totals.
func (p *past) writeStatistics(ctx context.Context, size pages) error {
	const of = `insert into %s (tenant_id, endpoint_id, at, attempt_delivered, attempt_http_4xx, first_attempts, first_delivered,
			ended_delivered, ended_dead_lettered, latency_2, latency_5, latency_20)
		select tenant_id, id, at, 40, 2, 42, 40, 40, 2, 30, 10, 2
		from (select '00000000-0000-0000-0000-000000000000'::uuid id, id tenant_id from tenants union all select '00000000-0000-0000-0000-000000000000', ''
			union all (select id, tenant_id from endpoints where 'bench.past' = any(event_types) order by id limit $1)) rows,
			generate_series($2::timestamptz, $3::timestamptz, '%s') at
		on conflict do nothing`
	now := time.Now().UTC()
	for _, table := range []struct {
		name, step string
		endpoints  int
		from       time.Time
		until      time.Time
	}{
		{"statistics_hours", "1 hour", size.endpoints, now.Truncate(day).Add(-time.Duration(size.days) * day), now.Truncate(time.Hour).Add(-2 * day)},
		{"statistics_minutes", "1 minute", size.busy, now.Truncate(time.Hour).Add(-2 * day), now.Truncate(time.Minute)},
	} {
		if _, err := p.connection.Exec(ctx, fmt.Sprintf(of, table.name, table.step), table.endpoints, table.from, table.until); err != nil {
			return fmt.Errorf("write %s: %w", table.name, err)
		}
	}
	if _, err := p.connection.Exec(ctx, "vacuum (analyze)"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// sample returns some ids of what was written.
func (p *past) sample(ctx context.Context) (*sample, error) {
	s := &sample{}
	for _, of := range []struct {
		into  *ids
		name  func(id [16]byte) string
		query string
	}{
		{&s.endpoints, endpointID, `select id from endpoints where 'bench.past' = any(event_types) order by id limit 1000`},
		{&s.events, eventID, `select event_id from deliveries where event_type = 'bench.past' order by random() limit 1000`},
		{&s.deliveries, deliveryID, `select id from deliveries where event_type = 'bench.past' order by random() limit 1000`},
		{&s.dead, deliveryID, `select id from deliveries where state = 4 order by random() limit 1000`},
		{&s.externalIDs, externalID, `select key::uuid from idempotency_keys
			where kind = 1 and event_id in (select id from events where type = 'bench.past' limit 1000)`},
	} {
		rows, err := p.connection.Query(ctx, of.query)
		if err != nil {
			return nil, fmt.Errorf("look for what was written: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil {
			return nil, fmt.Errorf("look for what was written: %w", err)
		}
		if len(found) == 0 {
			return nil, errors.New("nothing was written: " + of.query)
		}
		for _, id := range found {
			*of.into = append(*of.into, of.name(id))
		}
	}
	return s, nil
}

func endpointID(id [16]byte) string { return webhook.EndpointID(id).String() }
func eventID(id [16]byte) string    { return webhook.EventID(id).String() }
func deliveryID(id [16]byte) string { return webhook.DeliveryID(id).String() }
func externalID(id [16]byte) string { return hex.EncodeToString(id[:]) }

// killOne turns one delivery of the youngest day into a dead letter, so that the day cannot
// be dropped as a whole.
func (p *past) killOne(ctx context.Context) error {
	_, err := p.connection.Exec(ctx, `update deliveries set state = 4 where id = (select id from deliveries where created_at < $1 order by id desc limit 1)`,
		time.Now().UTC().Truncate(day).Add(-day))
	if err != nil {
		return fmt.Errorf("make a dead letter: %w", err)
	}
	return nil
}

// retain does once what a worker does every hour. It drops all days except the one with the
// dead letter, of which it deletes the other rows.
func (p *past) retain(ctx context.Context, h history) error {
	removed, err := p.store.Retention.Retain(ctx, time.Now(), day)
	if err != nil {
		return fmt.Errorf("remove old days: %w", err)
	}
	if want := int64(h.perDay - 1); removed.Rows != want {
		return fmt.Errorf("retention deleted %d rows of the day that is still needed, not %d", removed.Rows, want)
	}
	if _, err := p.store.Events.PruneIdempotencyKeys(ctx, day); err != nil {
		return fmt.Errorf("remove old keys: %w", err)
	}
	return nil
}
