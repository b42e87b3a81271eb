// Package health stores the health of endpoints: what each worker observes of them, the failures for
// which they are disabled, and circuits that were closed by hand.
package health

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/statistics"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	actionEndpointTest = "endpoint.test"

	// observationLife is for how long a worker's observations are used: it writes new ones every
	// few seconds.
	observationLife = 30 * time.Second
	// observationPrune is how many expired rows of other workers a write removes at most.
	observationPrune = 1000
)

// EndpointHealth stores the health of endpoints: the observations of each worker, circuits closed
// by hand, and the failures for which an endpoint is disabled.
type EndpointHealth struct {
	core *postgres.Core

	endpoints *endpoints.Endpoints
}

// New makes an EndpointHealth.
func New(s *postgres.Core, endpoints *endpoints.Endpoints) *EndpointHealth {
	return &EndpointHealth{core: s, endpoints: endpoints}
}

// WriteObservations replaces a worker's observations of endpoints: those of endpoints that seen lacks are
// removed, as are other workers' observations older than observationLife.
func (s *EndpointHealth) WriteObservations(ctx context.Context, worker string, seen map[webhook.EndpointID]webhook.Observation) error {
	ids, texts := make([][16]byte, 0, len(seen)), make([][]byte, 0, len(seen))
	for id := range seen {
		ids, texts = append(ids, id), append(texts, postgres.JSONBytes(seen[id]))
	}
	return s.core.AsWorker().WithConn(ctx, "share the health of endpoints", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			with here as (select id, seen from unnest($2::uuid[], $3::jsonb[]) u (id, seen)),
			gone as (
				delete from endpoint_health h where h.worker = $1 and not exists (select from here where here.id = h.endpoint_id)),
			forgotten as (
				delete from endpoint_health h where (h.endpoint_id, h.worker) in (
					select endpoint_id, worker from endpoint_health
					where worker <> $1 and seen_at < now() - $4::bigint * interval '1 millisecond' limit $5 for update skip locked))
			insert into endpoint_health (endpoint_id, worker, seen_at, seen) select id, $1, now(), seen from here
			on conflict (endpoint_id, worker) do update set seen_at = excluded.seen_at, seen = excluded.seen`,
			worker, ids, texts, observationLife.Milliseconds(), observationPrune)
		return err
	})
}

// Health reads an endpoint, without its headers and credentials, with the counts of its deliveries, those of its last attempts, the last
// failure on record, and the observations of all workers but the named one, which has newer ones itself. CodeNotFound.
func (s *EndpointHealth) Health(ctx context.Context, tenantID string, id webhook.EndpointID, but string) (
	h webhook.Health, seen []webhook.Observation, err error,
) {
	h.Endpoint, err = s.endpoints.Unsealed(ctx, tenantID, id)
	if err != nil {
		return h, nil, err
	}
	b := &h.Backlog
	batch := &pgx.Batch{}
	batch.Queue(countWaiting, id, webhook.MaxCounted+1).QueryRow(func(row pgx.Row) error {
		var looked int
		var next, oldest *time.Time
		err := row.Scan(&looked, &b.Retrying, &b.Deferred, &b.Scheduled, &next, &oldest)
		b.MoreWaiting, b.NextAt, b.Oldest = looked > webhook.MaxCounted, postgres.OrZero(next), postgres.OrZero(oldest)
		if b.Waiting()+b.Scheduled > webhook.MaxCounted { // one more than the bound was read
			*cmp.Or(positive(&b.Retrying), positive(&b.Deferred), &b.Scheduled)--
		}
		return err
	})
	batch.Queue(countHeld, id, webhook.MaxCounted+1).QueryRow(func(row pgx.Row) error {
		var oldest *time.Time
		err := row.Scan(&b.Held, &oldest)
		if b.Held > webhook.MaxCounted {
			b.Held, b.MoreHeld = webhook.MaxCounted, true
		}
		if at := postgres.OrZero(oldest); !at.IsZero() && (b.Oldest.IsZero() || at.Before(b.Oldest)) {
			b.Oldest = at
		}
		return err
	})
	batch.Queue(`
		select seen from endpoint_health
		where endpoint_id = $1 and worker <> $2 and seen_at > now() - $3::bigint * interval '1 millisecond'
		order by worker`, id, but, observationLife.Milliseconds()).
		Query(func(rows pgx.Rows) (err error) {
			seen, err = pgx.CollectRows(rows, pgx.RowTo[webhook.Observation])
			return err
		})
	batch.Queue(lastFailure, id, tenantID).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[webhook.LastFailure])
		if len(found) > 0 {
			found[0].At = found[0].At.UTC()
			h.LastFailure = &found[0]
		}
		return err
	})
	statistics.QueueRecent(batch, tenantID, id, &h.History)
	statistics.QueueVerdicts(batch, tenantID, id, &h.Verdicts)
	err = s.core.OfTenant(tenantID).ByIndex().WithConn(ctx, "read the health of endpoint "+id.String(), func(ctx context.Context, conn postgres.Querier) error {
		return conn.SendBatch(ctx, batch).Close()
	})
	return h, seen, err
}

// A waiting delivery has a due time; one whose request is under way is not waiting. The counts
// read the deliveries that are due soonest, up to the bound, however many there are. They use the
// indexes deliveries_open and deliveries_release; state < 3 repeats the former's condition.
const (
	countWaiting = `
		select count(*), count(*) filter (where not sent and state = ` + postgres.Retrying + ` and reason = ''),
			count(*) filter (where not sent and reason <> ''),
			count(*) filter (where not sent and state = ` + postgres.Pending + ` and reason = ''),
			min(due_at) filter (where not sent), min(created_at) filter (where not sent and (state = ` + postgres.Retrying + ` or reason <> ''))
		from (
			select state, reason, due_at, created_at, coalesce(owner_until > now(), false) as sent from deliveries
			where endpoint_id = $1 and state < ` + postgres.Held + ` and state ` + postgres.IsOpen + ` and due_at is not null
			order by due_at limit $2) w`
	countHeld = `
		select count(*), min(created_at) from (
			select created_at from deliveries where endpoint_id = $1 and state = ` + postgres.Held + ` order by id limit $2) h`
)

// lastFailure is the newest failed attempt among the 500 deliveries that are due next and the newest dead letters: the endpoint's newest 20 of the
// tenant's newest 5,000, which the index has with their endpoints.
const (
	lastFailure = `
	select f.last_reason, f.last_at, coalesce(a.error, ''), 1000 * coalesce(a.names_us, 0)::bigint, 1000 * coalesce(a.connect_us, 0)::bigint,
		1000 * coalesce(a.tls_us, 0)::bigint, 1000 * coalesce(a.wait_us, 0)::bigint
	from (select f.* from (
		select * from (select ` + lastAttempt + ` from deliveries
			where endpoint_id = $1 and state < ` + postgres.Held + ` and state ` + postgres.IsOpen + ` and due_at is not null
			order by due_at limit 500) w
		union all
		select d.* from (
			select id from (select id, endpoint_id from deliveries
				where tenant_id = $2 and state = ` + postgres.DeadLettered + ` order by id desc limit 5000) l
			where endpoint_id = $1 limit 20) i
		cross join lateral (select ` + lastAttempt + ` from deliveries d where d.id = i.id limit 1) d) f
	where f.last_decision > 1 -- not delivered
	order by f.last_at desc limit 1) f
	left join lateral (
		select error, names_us, connect_us, tls_us, wait_us from attempts a
		where a.delivery_id = f.id and a.run = f.run and a.number = f.attempts limit 1) a on true`
	lastAttempt = `id, run, attempts, last_reason, last_at, last_decision`
)

// positive is n unless it is zero.
func positive(n *int) *int {
	if *n == 0 {
		return nil
	}
	return n
}

// NoteTest writes to the audit log that an endpoint is tested.
func (s *EndpointHealth) NoteTest(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) error {
	return s.core.OfTenant(tenantID).InTx(ctx, "note a test of endpoint "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, by, tenantID, actionEndpointTest, id.String(), nil)
	})
}
