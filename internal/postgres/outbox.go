package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

type outboxColumns struct {
	ids, events, endpoints [][16]byte
	tenants, types         []string
	runs                   []int
	created, giveUp, relay []time.Time
	notBefore              []*time.Time
}

func (c *outboxColumns) add(start webhook.Start, relayAt time.Time) {
	c.ids = append(c.ids, start.DeliveryID)
	c.events = append(c.events, start.EventID)
	c.endpoints = append(c.endpoints, start.EndpointID)
	c.tenants = append(c.tenants, start.TenantID)
	c.types = append(c.types, start.EventType)
	c.runs = append(c.runs, start.Run)
	c.created = append(c.created, start.CreatedAt)
	c.notBefore = append(c.notBefore, optional(start.NotBefore))
	c.giveUp = append(c.giveUp, start.GiveUpAt)
	c.relay = append(c.relay, relayAt)
}

const insertOutbox = `
	insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, relay_at) `

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertOutboxRows = insertOutbox + outboxRows(1)

func outboxRows(parameter int) string {
	return selectRows(parameter, "id uuid", "event uuid", "endpoint uuid", "tenant text", "type text", "run int", "created timestamptz",
		"not_before timestamptz", "give_up timestamptz", "relay timestamptz")
}

func (c *outboxColumns) args() []any {
	return []any{
		c.ids, once(c.events), once(c.endpoints), once(c.tenants), once(c.types), once(c.runs), once(c.created), onceOptional(c.notBefore),
		once(c.giveUp), once(c.relay),
	}
}

// queue writes the rows. A delivery that has one begins its next run.
func (c *outboxColumns) queue(b *pgx.Batch) {
	if len(c.ids) > 0 {
		b.Queue(insertOutboxRows+`
			on conflict (delivery_id) do update
			set run = excluded.run, give_up_at = excluded.give_up_at, relay_at = excluded.relay_at, relayed = 0`, c.args()...)
	}
}

// queueFirst writes the rows of events that are being stored: nobody else knows their
// ids. It needs no right to read the table.
func (c *outboxColumns) queueFirst(b *pgx.Batch) {
	if len(c.ids) > 0 {
		b.Queue(insertOutboxRows, c.args()...)
	}
}

// queueNew writes the rows of those that have none; written is told of each.
func (c *outboxColumns) queueNew(b *pgx.Batch, written func(webhook.DeliveryID)) {
	if len(c.ids) == 0 {
		return
	}
	b.Queue(insertOutboxRows+` on conflict (delivery_id) do nothing returning delivery_id`, c.args()...).Query(func(rows pgx.Rows) error {
		var id [16]byte
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			written(id)
			return nil
		})
		return err
	})
}

// LeftBehind takes up to limit deliveries that were stored a while ago and have
// no first record: their start was never made, or died on the way. They are not
// handed out again for the same while, by any process, and each time for twice as
// long, up to 8 min: where no worker runs at all, starting them again does not help.
func (s *Store) LeftBehind(ctx context.Context, limit int) ([]webhook.Start, error) {
	starts, err := queryAll(ctx, s.asWorker(), "read the outbox", scanStart, `
		update outbox set relay_at = now() + $2::bigint * (1 << least(relayed, 5)) * interval '1 millisecond', relayed = relayed + 1
		where delivery_id in (
			select delivery_id from outbox where relay_at <= now() order by relay_at limit $1 for update skip locked)
		returning delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, relayed`,
		limit, relayAfter.Milliseconds())
	if err != nil {
		return nil, err
	}
	return starts, s.findHeld(ctx, starts)
}

// findHeld says of those that were held and are released where they stand.
func (s *Store) findHeld(ctx context.Context, starts []webhook.Start) error {
	if len(starts) == 0 {
		return nil
	}
	ids := make([][16]byte, len(starts))
	for i := range starts {
		ids[i] = starts[i].DeliveryID
	}
	found, err := queryAll(ctx, s.asWorker(), "read what is held", scanDelivery,
		`select `+deliveryColumns+` from deliveries d where d.id = any($1) and d.state = 2`, ids)
	if err != nil {
		return err
	}
	held := make(map[webhook.DeliveryID]*webhook.Progress, len(found))
	for i := range found {
		held[found[i].DeliveryID] = &found[i].Progress
	}
	for i := range starts {
		if at := held[starts[i].DeliveryID]; at != nil && at.Run == starts[i].Run {
			starts[i].Held = at
		}
	}
	return nil
}

func scanStart(row pgx.CollectableRow) (webhook.Start, error) {
	var (
		start                     webhook.Start
		delivery, event, endpoint [16]byte
		notBefore                 *time.Time
	)
	err := row.Scan(&delivery, &event, &endpoint, &start.TenantID, &start.EventType, &start.Run, &start.CreatedAt, &notBefore, &start.GiveUpAt, &start.Relayed)
	start.DeliveryID, start.EventID, start.EndpointID = delivery, event, endpoint
	start.NotBefore, start.CreatedAt, start.GiveUpAt = orZero(notBefore), start.CreatedAt.UTC(), start.GiveUpAt.UTC()
	return start, err
}

// maxCounted bounds the count of the outbox: beyond it the number says nothing more.
const maxCounted = 100_000

// OutboxDepth is how many deliveries wait for their first record, and since when
// the oldest does (zero when none does). It counts no further than 100,001, which
// stands for "more than 100,000".
func (s *Store) OutboxDepth(ctx context.Context) (int64, time.Time, error) {
	var (
		n      int64
		oldest *time.Time
	)
	err := s.asWorker().withConn(ctx, "count the outbox", func(ctx context.Context, conn querier) error {
		// In the order of the key, which is that of time: the oldest is among the counted.
		return conn.QueryRow(ctx, `select count(*), min(created_at) from (select created_at from outbox order by delivery_id limit $1) o`, maxCounted+1).
			Scan(&n, &oldest)
	})
	return n, orZero(oldest), err
}
