package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres/stores"
)

// grown is an installation's history, and the steady work that is measured on top of it.
type grown struct {
	days, perDay int
	beside       pace
	removing     pace // while retention removes the history
	turns        int  // how often each work runs on both installations
}

func (g grown) deliveries() int { return g.days * g.perDay }

const day = 24 * time.Hour

// growth measures whether an installation becomes slower with its history, and whether
// retention disturbs it. It alternates with an empty installation, so that changes in the
// machine's speed affect both.
func growth(ctx context.Context, b *bench) (_ []row, err error) {
	empty, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.End()) }()
	grown, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, grown.End()) }()
	both := [2]*instance{empty, grown}
	b.sayf("writing %d finished deliveries of the last %d days", b.size.growth.deliveries(), b.size.growth.days)
	started := time.Now()
	if err := b.grow(ctx, grown); err != nil {
		return nil, err
	}
	b.sayf("written after %s", time.Since(started).Round(time.Second))
	for _, in := range both {
		if err := b.restart(ctx, in); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, measured := range []struct {
		name string
		work work
	}{{"growth", b.throughputWork()}, {"growth-steady", b.size.growth.beside.work()}} {
		alone, beside, err := b.alternate(ctx, both, measured.work)
		if err != nil {
			return rows, err
		}
		about := fmt.Sprintf("%s, median of %d", measured.work.describe(), b.size.growth.turns)
		rows = append(rows, row{measured.name + "-empty", about + ", in turns with the next", alone},
			row{measured.name + "-beside", fmt.Sprintf("%s, beside %d finished deliveries", about, b.size.growth.deliveries()), beside})
	}
	if err := empty.Stop(); err != nil { // not used any more
		return rows, fmt.Errorf("stop: %w", err)
	}
	removing, err := b.whileRetained(ctx, grown)
	if err != nil {
		return rows, err
	}
	return append(rows, row{"growth-retention", b.size.growth.removing.work().describe() + ", while these are removed", removing}), nil
}

// grow writes the history.
func (b *bench) grow(ctx context.Context, in *instance) error {
	past, err := openPast(ctx, in)
	if err != nil {
		return err
	}
	defer past.close(ctx)
	return past.write(ctx, b.size.growth)
}

// restart restarts an installation: a process that has worked for a minute differs from a
// new one.
func (b *bench) restart(ctx context.Context, in *instance) error {
	if err := in.Stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if _, err := in.Start(ctx); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	in.api = client{in.API}
	return b.warmUp(ctx, in)
}

// alternate measures a work on both installations, as medians of several turns. The order
// changes with each turn. Ratios are of the same turn.
func (b *bench) alternate(ctx context.Context, both [2]*instance, w work) (empty, beside figures, err error) {
	var all [2][]figures
	for turn := range b.size.growth.turns {
		for i := range both {
			which := (turn + i) % 2
			f, err := b.measure(ctx, both[which], w)
			if err != nil {
				return nil, nil, err
			}
			all[which] = append(all[which], f)
		}
		was, is := all[0][turn], all[1][turn]
		b.sayf("%s, turn %d of %d: empty and grown %.0f and %.0f/s, p50 %.1f and %.1f ms, p99 %.1f and %.1f ms", w.name, turn+1, b.size.growth.turns,
			was[deliveriesPerSecond], is[deliveriesPerSecond], was[endToEndP50], is[endToEndP50], was[endToEndP99], is[endToEndP99])
		if w.rate > 0 {
			is.set(latencyRatio, is[endToEndP50]/was[endToEndP50])
			continue
		}
		is.set(acceptRatio, is[acceptedPerSecond]/was[acceptedPerSecond])
		is.set(throughputRatio, is[deliveriesPerSecond]/was[deliveriesPerSecond])
	}
	return median(all[0]), median(all[1]), nil
}

// whileRetained measures the steady work while the worker's retention runs.
func (b *bench) whileRetained(ctx context.Context, in *instance) (figures, error) {
	past, err := openPast(ctx, in)
	if err != nil {
		return nil, err
	}
	defer past.close(ctx)
	if err := past.killOne(ctx); err != nil {
		return nil, err
	}
	retained := make(chan error, 1)
	took := time.Duration(0)
	go func() {
		started := time.Now()
		err := past.retain(ctx, b.size.growth)
		took = time.Since(started)
		retained <- err
	}()
	f, err := b.measure(ctx, in, b.size.growth.removing.work())
	if err := errors.Join(err, <-retained); err != nil {
		return nil, err
	}
	f.set(retainTime, took.Seconds())
	return f, nil
}

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
		return nil, errors.Join(fmt.Errorf("open the record: %w", err), connection.Close(ctx))
	}
	return &past{connection, store}, nil
}

func (p *past) close(ctx context.Context) {
	p.store.Close()
	_ = p.connection.Close(context.WithoutCancel(ctx)) // the server is stopped next
}

// write writes days of events of 1 KiB, each with an external id, delivered by one attempt.
func (p *past) write(ctx context.Context, g grown) error {
	today := time.Now().UTC().Truncate(day)
	for n := g.days + 1; n > 1; n-- { // not yesterday: retention keeps a part of it
		from := today.Add(-time.Duration(n) * day)
		if err := p.store.Retention.EnsurePartitions(ctx, from); err != nil {
			return fmt.Errorf("make partitions: %w", err)
		}
		if _, err := p.connection.Exec(ctx, writeDay, from, g.perDay, payloadSize); err != nil {
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

// writeDay writes $2 deliveries, spread over the day $1, with payloads of $3 bytes. Ids are
// UUIDv7 of their time, like the store's.
const writeDay = `
	with made as materialized (
		select moment, md5(random()::text) salt,
			(time || '7' || left(md5(random()::text), 3) || '8' || left(md5(random()::text), 15))::uuid event,
			(time || '8' || left(md5(random()::text), 3) || '8' || left(md5(random()::text), 15))::uuid delivery
		from generate_series(0, $2::int - 1) n,
			lateral (select $1::timestamptz + n * (interval '1 day' / $2::int) moment) times,
			lateral (select lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') "time") hex),
	endpoint as (select id, tenant_id from endpoints order by id limit 1),
	events as (
		insert into events (id, tenant_id, type, external_id, payload, payload_sha256, endpoint_ids, created_at)
		select event, tenant_id, 'bench.past', salt, convert_to(repeat(salt, $3::int / 32), 'UTF8'), sha256(salt::bytea), array[id], moment
		from made, endpoint),
	keys as (
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at)
		select tenant_id, 1, salt, sha256(salt::bytea), event, moment from made, endpoint),
	attempts as (
		insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns,
			delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
		select delivery, 1, 1, moment, 2000, 0, 'http_200', 200, 0, '', 0, '', 0, false, '{}', '{}', '' from made)
	insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, attempts, run_attempts, give_up_at,
		completed_at, workflow_id, last_decision, last_reason, last_status, last_latency_us, last_at, last_retry_after_ns)
	select delivery, event, id, tenant_id, 'bench.past', moment, 1, 1, 3, 1, 1, moment + interval '72 hours', moment,
		'delivery/' || event || '/' || id, 0, 'http_200', 200, 2000, moment, 0 from made, endpoint`

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
func (p *past) retain(ctx context.Context, g grown) error {
	removed, err := p.store.Retention.Retain(ctx, time.Now(), day)
	if err != nil {
		return fmt.Errorf("remove old days: %w", err)
	}
	if want := int64(g.perDay - 1); removed.Rows != want {
		return fmt.Errorf("retention deleted %d rows of the day that is still needed, not %d", removed.Rows, want)
	}
	if _, err := p.store.Events.PruneIdempotencyKeys(ctx, day); err != nil {
		return fmt.Errorf("remove old keys: %w", err)
	}
	return nil
}
