package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// outboxRow has the relay take up a delivery that has not begun by then: after a while from the
// beginning of the transaction, by the database's clock.
type outboxRow struct {
	*webhook.Start

	after time.Duration
}

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var outboxRows = rowsOf[outboxRow]{
	whole("id uuid", func(o outboxRow) [16]byte { return o.DeliveryID }),
	each("event uuid", func(o outboxRow) [16]byte { return o.EventID }),
	each("endpoint uuid", func(o outboxRow) [16]byte { return o.EndpointID }),
	each("tenant text", func(o outboxRow) string { return o.TenantID }),
	each("type text", func(o outboxRow) string { return o.EventType }),
	each("run int", func(o outboxRow) int { return o.Run }),
	each("created timestamptz", func(o outboxRow) time.Time { return o.CreatedAt }),
	eachOptional("not_before timestamptz", func(o outboxRow) *time.Time { return optional(o.NotBefore) }),
	each("give_up timestamptz", func(o outboxRow) time.Time { return o.GiveUpAt }),
	each("after bigint", func(o outboxRow) int64 { return o.after.Microseconds() }),
}

const insertOutbox = `
	insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, relay_at) `

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertOutboxRows = insertOutbox + selectOutbox(1)

func selectOutbox(parameter int) string {
	return `select id, event, endpoint, tenant, type, run, created, not_before, give_up, now() + after * interval '1 microsecond' from (` +
		outboxRows.query(parameter) + `) r`
}

// outboxBatch is rows of the outbox that are to be written.
type outboxBatch []outboxRow

// queue writes the rows. A delivery that has one begins its next run.
func (rows outboxBatch) queue(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertOutboxRows+`
			on conflict (delivery_id) do update
			set run = excluded.run, give_up_at = excluded.give_up_at, relay_at = excluded.relay_at, relayed = 0, workflow_id = ''`, outboxRows.args(rows)...)
	}
}

// queueFirst writes the rows of events that are being stored: no other transaction knows their
// ids. It needs no right to read the table.
func (rows outboxBatch) queueFirst(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertOutboxRows, outboxRows.args(rows)...)
	}
}

// queueNew writes the rows of those that have none, and calls written for each.
func (rows outboxBatch) queueNew(b *pgx.Batch, written func(webhook.DeliveryID)) {
	if len(rows) == 0 {
		return
	}
	b.Queue(insertOutboxRows+` on conflict (delivery_id) do nothing returning delivery_id`, outboxRows.args(rows)...).Query(func(rows pgx.Rows) error {
		var id [16]byte
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			written(id)
			return nil
		})
		return err
	})
}

// Outbox hands out what has to be carried to Temporal: deliveries that have not begun, and
// commands that no step has answered.
type Outbox struct{ *core }

// TakeStarts takes up to limit deliveries that were stored a while ago and have
// no first record: their start was never made, or died on the way. They are not
// handed out again for the same while, by any process, and each time for twice as
// long, up to 8 min: where no worker runs at all, starting them again does not help.
func (s *Outbox) TakeStarts(ctx context.Context, limit int) ([]webhook.Start, error) {
	starts, err := queryAll(ctx, s.asWorker(), "read the outbox", scanStart, `
		update outbox set relay_at = now() + $2::bigint * (1 << least(relayed, 5)) * interval '1 millisecond', relayed = relayed + 1
		where delivery_id in (
			select delivery_id from outbox where relay_at <= now() order by relay_at limit $1 for update skip locked)
		returning delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, relayed,
			(select was.relay_at from outbox was where was.delivery_id = outbox.delivery_id), workflow_id`, // relay_at as it was before
		limit, relayAfter.Milliseconds())
	if err != nil || len(starts) == 0 {
		return nil, err
	}
	ids := make([][16]byte, len(starts))
	for i := range starts {
		ids[i] = starts[i].DeliveryID
	}
	gone, err := s.endBegun(ctx, ids)
	if err != nil {
		return nil, err
	}
	starts = slices.DeleteFunc(starts, func(start webhook.Start) bool { return slices.Contains(gone, start.DeliveryID) })
	return starts, s.findRecorded(ctx, starts, ids)
}

// ReturnStarts gives back what TakeStarts has handed out and could not be started, because Temporal
// was away: it is handed out again at the time at which it was due, as if it had not been handed out. What has
// been recorded or taken since then stays as it is.
func (s *Outbox) ReturnStarts(ctx context.Context, starts []webhook.Start) error {
	ids, relayAt, relayed := make([][16]byte, len(starts)), make([]time.Time, len(starts)), make([]int, len(starts))
	for i := range starts {
		ids[i], relayAt[i], relayed[i] = starts[i].DeliveryID, starts[i].RelayAt, starts[i].Relayed
	}
	return s.asWorker().withConn(ctx, "put deliveries back into the outbox", func(ctx context.Context, conn querier) error {
		_, err := conn.Exec(ctx, `
			update outbox o set relay_at = u.relay_at, relayed = o.relayed - 1
			from unnest($1::uuid[], $2::timestamptz[], $3::int[]) u (id, relay_at, relayed)
			where o.delivery_id = u.id and o.relayed = u.relayed
			  and o.delivery_id in (select delivery_id from outbox where delivery_id = any($1) order by delivery_id for update skip locked)`,
			ids, relayAt, relayed)
		return err
	})
}

// AssignWorkflow notes into which workflow deliveries are put that have no first record.
func (s *Outbox) AssignWorkflow(ctx context.Context, workflowID string, ids []webhook.DeliveryID) error {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return s.asWorker().withConn(ctx, "note where deliveries are", func(ctx context.Context, conn querier) error {
		_, err := conn.Exec(ctx, `update outbox set workflow_id = $1
			where delivery_id in (select delivery_id from outbox where delivery_id = any($2) order by delivery_id for update)`, workflowID, raw)
		return err
	})
}

// DeleteStarts deletes the outbox rows of deliveries in their first run that have an attempt or a
// claim in the store and whose workflow has been started.
func (s *Outbox) DeleteStarts(ctx context.Context, ids []webhook.DeliveryID) error {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return s.asWorker().withConn(ctx, "delete from the outbox", func(ctx context.Context, conn querier) error {
		_, err := conn.Exec(ctx, `delete from outbox where delivery_id in (
			select o.delivery_id from outbox o join deliveries d on d.id = o.delivery_id
			where o.delivery_id = any($1) and d.id = any($1) and o.run = 1 and d.run = 1 and `+isRecorded+`
			order by o.delivery_id for update of o)`, raw)
		return err
	})
}

// endBegun ends the outbox rows of those of which the record says that they have gone on, and
// returns them: they were put into the outbox by a release while that was being recorded, so
// that what recorded it did not see them. What was held has two steps by then. One step is that
// of an eager request, whose workflow may not have been started.
func (s *Outbox) endBegun(ctx context.Context, ids [][16]byte) ([]webhook.DeliveryID, error) {
	return queryAll(ctx, s.asWorker(), "end what has gone on", scanID, `
		delete from outbox where delivery_id in (
			select o.delivery_id from outbox o join deliveries d on d.id = o.delivery_id
			where o.delivery_id = any($1) and d.id = any($1) and (d.run > o.run or d.run = o.run and d.seq > 1 and d.state <> 2)
			order by o.delivery_id for update of o)
		returning delivery_id`, ids)
}

// isRecorded is a delivery of the table d that has an attempt or a claim, and is not held. A row alone
// may be that of a command.
const isRecorded = `(d.seq > 0 or d.owner is not null) and d.state <> 2`

// findRecorded says of those that were held and are released where they stand, and which of the
// others have an attempt or a claim.
func (s *Outbox) findRecorded(ctx context.Context, starts []webhook.Start, ids [][16]byte) error {
	found, err := queryAll(ctx, s.asWorker(), "read what is held", scanDelivery,
		`select `+deliveryColumns+` from deliveries d where d.id = any($1) and d.state = 2`, ids)
	if err != nil {
		return err
	}
	recorded, err := queryAll(ctx, s.asWorker(), "read what is recorded", scanID,
		`select d.id from deliveries d where d.id = any($1) and d.run = 1 and `+isRecorded, ids)
	if err != nil {
		return err
	}
	held := make(map[webhook.DeliveryID]*webhook.Progress, len(found))
	for i := range found {
		held[found[i].DeliveryID] = &found[i].Progress
	}
	for i := range starts {
		if at := held[starts[i].DeliveryID]; at != nil && at.Run == starts[i].Run {
			starts[i].Resume = at
		}
		starts[i].Recorded = starts[i].Run == 1 && slices.Contains(recorded, starts[i].DeliveryID)
	}
	return nil
}

func scanID(row pgx.CollectableRow) (webhook.DeliveryID, error) {
	var id [16]byte
	err := row.Scan(&id)
	return id, err
}

func scanStart(row pgx.CollectableRow) (webhook.Start, error) {
	var (
		start                     webhook.Start
		delivery, event, endpoint [16]byte
		notBefore                 *time.Time
	)
	err := row.Scan(&delivery, &event, &endpoint, &start.TenantID, &start.EventType, &start.Run, &start.CreatedAt, &notBefore, &start.GiveUpAt,
		&start.Relayed, &start.RelayAt, &start.RelayedTo)
	start.DeliveryID, start.EventID, start.EndpointID = delivery, event, endpoint
	start.NotBefore, start.CreatedAt, start.GiveUpAt = orZero(notBefore), start.CreatedAt.UTC(), start.GiveUpAt.UTC()
	return start, err
}

// maxCounted bounds the count of the outbox: beyond it the number says nothing more.
const maxCounted = 100_000

// OutboxDepth is how many deliveries wait for their first record, and since when
// the oldest does (zero when none does). It counts no further than 100,001, which
// stands for "more than 100,000".
func (s *Outbox) OutboxDepth(ctx context.Context) (int64, time.Time, error) {
	var (
		n      int64
		oldest *time.Duration
	)
	err := s.asWorker().withConn(ctx, "count the outbox", func(ctx context.Context, conn querier) error {
		// In the order of the key, which is that of time: the oldest is among the counted.
		return conn.QueryRow(ctx, `
			select count(*), now() - min(created_at) from (select created_at from outbox order by delivery_id limit $1) o`, maxCounted+1).
			Scan(&n, &oldest)
	})
	if err != nil || oldest == nil {
		return n, time.Time{}, err
	}
	return n, time.Now().Add(-*oldest), nil // as old by this process's clock as it is by the database's
}
