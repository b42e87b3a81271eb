package deliveries

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// OutboxRow is a row of the outbox. The relay starts its delivery unless the row has been deleted by
// then.
type OutboxRow struct {
	*webhook.Start

	After time.Duration // when the relay does so, from the beginning of the transaction
}

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var outboxRows = postgres.RowsOf[OutboxRow]{
	postgres.Whole("id uuid", func(o OutboxRow) [16]byte { return o.DeliveryID }),
	postgres.Each("event uuid", func(o OutboxRow) [16]byte { return o.EventID }),
	postgres.Each("endpoint uuid", func(o OutboxRow) [16]byte { return o.EndpointID }),
	postgres.Each("tenant text", func(o OutboxRow) string { return o.TenantID }),
	postgres.Each("type text", func(o OutboxRow) string { return o.EventType }),
	postgres.Each("run int", func(o OutboxRow) int { return o.Run }),
	postgres.Each("created timestamptz", func(o OutboxRow) time.Time { return o.CreatedAt }),
	postgres.EachOptional("not_before timestamptz", func(o OutboxRow) *time.Time { return postgres.Optional(o.NotBefore) }),
	postgres.Each("give_up timestamptz", func(o OutboxRow) time.Time { return o.GiveUpAt }),
	postgres.Each("workflow text", func(o OutboxRow) string { return o.AssignedTo }),
	postgres.Each("earlier text", func(o OutboxRow) string { return o.Earlier }),
	postgres.Each("after bigint", func(o OutboxRow) int64 { return o.After.Microseconds() }),
}

//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	insertOutboxRows   = insertOutbox("false")
	insertReleasedRows = insertOutbox("true")
)

// insertOutbox is a statement that inserts outboxRows. released says whether a turn of a release lets the deliveries go.
func insertOutbox(released string) string {
	return `
	insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, workflow_id, earlier,
		relay_at, released)
	select id, event, endpoint, tenant, type, run, created, not_before, give_up, workflow, earlier,
		now() + after * interval '1 microsecond', ` + released + ` from (` +
		outboxRows.Query(1) + `) r`
}

// OutboxBatch has the rows to insert into the outbox.
type OutboxBatch []OutboxRow

// Queue inserts the rows. A row that exists is updated for the delivery's next run.
func (rows OutboxBatch) Queue(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertOutboxRows+`
			on conflict (delivery_id) do update
			set run = excluded.run, give_up_at = excluded.give_up_at, relay_at = excluded.relay_at, relayed = 0,
				workflow_id = excluded.workflow_id, earlier = excluded.earlier, stored_at = excluded.stored_at, released = excluded.released`,
			outboxRows.Args(rows)...)
	}
}

// QueueFirst inserts the rows of events that are being stored. No other transaction knows their ids, so
// there is no conflict, and no right to read the table is needed.
func (rows OutboxBatch) QueueFirst(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertOutboxRows, outboxRows.Args(rows)...)
	}
}

// queueNew inserts the rows of deliveries that have none, by insertOutboxRows or insertReleasedRows, and calls written for each.
func (rows OutboxBatch) queueNew(b *pgx.Batch, insert string, written func(webhook.DeliveryID)) {
	if len(rows) == 0 {
		return
	}
	b.Queue(insert+` on conflict (delivery_id) do nothing returning delivery_id`, outboxRows.Args(rows)...).Query(func(rows pgx.Rows) error {
		var id [16]byte
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			written(id)
			return nil
		})
		return err
	})
}

// deletingOutboxRows returns a statement that writes to deliveries as d and deletes the outbox rows of
// the deliveries that it has written. These outbox rows stay:
//
//   - of a delivery whose step or claim was refused: the outbox row may be the only trace of a release;
//   - one that is inserted while the statement waits for a lock: the relay handles it;
//   - of a delivery whose workflow is still to be started. Its id is in the parameter after those of rows.
//
// The delete has a list of ids instead of a join: for a join, PostgreSQL may read a whole table or index.
func deletingOutboxRows[R any](write string, rows postgres.RowsOf[R]) string {
	return `with applied as (` + write + `
	returning ` + statusColumns + `),
	deleted as (delete from outbox where delivery_id = any(array(select id from applied where id <> all($` + strconv.Itoa(len(rows)+1) + `::uuid[]))))
	select ` + statusColumns + ` from applied d`
}

// Outbox returns what has to be brought to Temporal: deliveries that are not started, and commands that
// no step has answered.
type Outbox struct {
	core *postgres.Core

	mu    sync.Mutex
	after string // the tenant after which TakeCommands goes on
}

// NewOutbox makes an Outbox.
func NewOutbox(s *postgres.Core) *Outbox { return &Outbox{core: s} }

// TakeStarts takes deliveries whose outbox row is due, the longest due first: their start was not made, or was lost. It returns them
// again, to any process, after RelayAfter, and each time after twice as long, up to 8.5 min: where no worker runs at all,
// starting them again does not help.
//
// Deliveries that no workflow is assigned to get a shared one, unless their deliver_at is in the future: MaxAssigned one that is named
// after the call, which no other call is. So a start that is repeated names the same workflow.
//
// It takes up to limit deliveries, and with them the others of their workflows that are due, so that a workflow begins with all of
// them. It reads the rows that it takes by outbox_relay and outbox_by_workflow: some four blocks for each.
func (s *Outbox) TakeStarts(ctx context.Context, call string, limit int) ([]webhook.Start, error) {
	starts, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read the outbox", scanStart, `
		with due as materialized (
			select delivery_id, workflow_id, not_before, relay_at from outbox
			where relay_at <= now() order by relay_at, workflow_id limit $1 for update skip locked),
		others as materialized (
			select delivery_id, workflow_id, not_before, relay_at from outbox
			where workflow_id = any(array(select workflow_id from due where workflow_id <> '')) and workflow_id <> '' and relay_at <= now()
				and delivery_id <> all(array(select delivery_id from due)) limit $1 for update skip locked),
		taken as materialized (
			select delivery_id, relay_at, workflow_id <> '' as assigned, case
				when workflow_id <> '' then workflow_id
				when not_before > now() then ''
				else $3 || '/' || ((row_number() over (partition by workflow_id <> '', coalesce(not_before > now(), false)) - 1) / $4::bigint)::text
				end as workflow
			from (table due union all table others) t)
		update outbox set relay_at = now() + $2::bigint * (1 << least(relayed, 6)) * interval '1 millisecond', relayed = relayed + 1,
			workflow_id = (select workflow from taken t where t.delivery_id = outbox.delivery_id)
		where delivery_id = any(array(select delivery_id from taken))
		returning delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, not_before, give_up_at, relayed,
			(select t.relay_at from taken t where t.delivery_id = outbox.delivery_id), workflow_id, earlier,
			(select t.assigned from taken t where t.delivery_id = outbox.delivery_id)`,
		limit, RelayAfter.Milliseconds(), webhook.SharedWorkflowPrefix+call, webhook.MaxAssigned)
	if err != nil || len(starts) == 0 {
		return nil, err
	}
	ids := make([][16]byte, len(starts))
	for i := range starts {
		ids[i] = starts[i].DeliveryID
	}
	gone, err := s.deleteNeedless(ctx, ids)
	if err != nil {
		return nil, err
	}
	starts = slices.DeleteFunc(starts, func(start webhook.Start) bool { return slices.Contains(gone, start.DeliveryID) })
	return starts, s.findRecorded(ctx, starts, ids)
}

// MakeDue makes the outbox rows of deliveries due. For a process that stops, and has not tried to start them.
func (s *Outbox) MakeDue(ctx context.Context, ids []webhook.DeliveryID) error {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return s.core.AsWorker().WithConn(ctx, "make rows of the outbox due", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			update outbox set relay_at = now() where delivery_id in (
				select delivery_id from outbox where delivery_id = any($1) and relay_at > now() order by delivery_id for update)`, raw)
		return err
	})
}

// MakeRecentDue makes the outbox rows due that the relay would take within RelayAfter. For a process that has the database to itself: the
// process that was to start their deliveries has ended.
func (s *Outbox) MakeRecentDue(ctx context.Context) error {
	return s.core.AsWorker().WithConn(ctx, "make the outbox due", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `update outbox set relay_at = now() where relay_at > now() and relay_at <= now() + $1::bigint * interval '1 millisecond'`,
			RelayAfter.Milliseconds())
		return err
	})
}

// ReturnStarts undoes TakeStarts for deliveries that could not be started, because Temporal was not
// available: they are due again. Rows that were deleted or taken since then stay as they are.
func (s *Outbox) ReturnStarts(ctx context.Context, starts []webhook.Start) error {
	ids, relayAt, relayed := make([][16]byte, len(starts)), make([]time.Time, len(starts)), make([]int, len(starts))
	for i := range starts {
		ids[i], relayAt[i], relayed[i] = starts[i].DeliveryID, starts[i].RelayAt, starts[i].Relayed
	}
	return s.core.AsWorker().WithConn(ctx, "put deliveries back into the outbox", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			update outbox o set relay_at = u.relay_at, relayed = o.relayed - 1
			from unnest($1::uuid[], $2::timestamptz[], $3::int[]) u (id, relay_at, relayed)
			where o.delivery_id = u.id and o.relayed = u.relayed
			  and o.delivery_id in (select delivery_id from outbox where delivery_id = any($1) order by delivery_id for update skip locked)`,
			ids, relayAt, relayed)
		return err
	})
}

// isOf selects the delivery d of an outbox row o. It names the columns with which indexes on deliveries begin before the id, too: a plan that is
// made while a day's partition is empty is kept, takes any of them, and with the id alone would read all of it for each row.
const isOf = `d.id = o.delivery_id and d.tenant_id = o.tenant_id and d.endpoint_id = o.endpoint_id`

// DeleteRecorded deletes the outbox rows of deliveries in their first run that have an attempt or a
// claim in the store and whose workflow has been started.
func (s *Outbox) DeleteRecorded(ctx context.Context, ids []webhook.DeliveryID) error {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return s.core.AsWorker().WithConn(ctx, "delete from the outbox", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `delete from outbox where delivery_id in (
			select o.delivery_id from outbox o join deliveries d on `+isOf+`
			where o.delivery_id = any($1) and d.id = any($1) and o.run = 1 and d.run = 1 and `+isRecorded+`
			order by o.delivery_id for update of o)`, raw)
		return err
	})
}

// deleteNeedless deletes the outbox rows of deliveries that need no start, and returns these
// deliveries. A release has inserted their rows while a step was being written that did not see them.
// Such a delivery was held, so it has at least two steps. A single step may be that of an eager request,
// whose workflow may not have been started.
func (s *Outbox) deleteNeedless(ctx context.Context, ids [][16]byte) ([]webhook.DeliveryID, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), "delete outdated outbox rows", scanID, `
		delete from outbox where delivery_id in (
			select o.delivery_id from outbox o join deliveries d on `+isOf+`
			where o.delivery_id = any($1) and d.id = any($1) and (d.run > o.run or d.run = o.run and d.seq > 1 and d.state <> `+postgres.Held+`)
			order by o.delivery_id for update of o)
		returning delivery_id`, ids)
}

// isRecorded selects deliveries of the table d that have an attempt or a claim, and are not held. A row
// with neither was inserted by a command.
const isRecorded = `(d.seq > 0 or d.owner is not null) and d.state <> ` + postgres.Held

// findRecorded sets Resume of deliveries that are being released, and Recorded of others that have an
// attempt or a claim.
func (s *Outbox) findRecorded(ctx context.Context, starts []webhook.Start, ids [][16]byte) error {
	found, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read held deliveries", Scan,
		`select `+Columns+` from deliveries d where d.id = any($1) and d.state = `+postgres.Held, ids)
	if err != nil {
		return err
	}
	recorded, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read recorded deliveries", scanID,
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
		&start.Relayed, &start.RelayAt, &start.AssignedTo, &start.Earlier, &start.Assigned)
	start.DeliveryID, start.EventID, start.EndpointID = delivery, event, endpoint
	start.NotBefore, start.CreatedAt, start.GiveUpAt = postgres.OrZero(notBefore), start.CreatedAt.UTC(), start.GiveUpAt.UTC()
	return start, err
}

// MaxCountedOverall bounds counts over all tenants, because they are counted often: MaxCountedOverall+1
// means more than that. webhook.MaxCounted bounds those of an endpoint or a tenant.
const MaxCountedOverall = 100_000

// OutboxDepth returns how many deliveries are in the outbox, and since when the oldest is, by this
// process's clock (zero if there is none). It counts no further than 100,001, which means "more than 100,000".
func (s *Outbox) OutboxDepth(ctx context.Context) (int64, time.Time, error) {
	var (
		n      int64
		oldest *time.Duration
	)
	err := s.core.AsWorker().WithConn(ctx, "count the outbox", func(ctx context.Context, conn postgres.Querier) error {
		// In the order of the key, which is that of the events, so that the oldest is normally among those counted.
		return conn.QueryRow(ctx, `
			select count(*), now() - min(stored_at) from (select stored_at from outbox order by delivery_id limit $1) o`, MaxCountedOverall+1).
			Scan(&n, &oldest)
	})
	if err != nil || oldest == nil {
		return n, time.Time{}, err
	}
	return n, time.Now().Add(-*oldest), nil // as old by this process's clock as it is by the database's
}

// RelayAfter is how long after its transaction began the relay starts a delivery: longer than it may wait in the queue of its process, and than
// the life of a fresh token and the second until a slow request has its claim. If its own process starts it as late as that, it has
// two workflows, and one of them gets the claim.
const RelayAfter = 8 * time.Second
