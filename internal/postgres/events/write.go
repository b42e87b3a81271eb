package events

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// flushIntake writes events, outbox rows and keys of many requests in one transaction.
func (s *Events) flushIntake(ctx context.Context, items []*intake) error {
	conn, err := s.core.Intake.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	s.renewPending(items)
	if err := writeIntake(ctx, conn, items); err != nil {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = conn.Exec(rollback, "rollback") // if it fails the connection is closed, which does it
		}
		return err
	}
	s.countStored(items)
	return nil
}

// writeIntake takes a single round trip if none of the requests has to be refused or repeated;
// when idle that is most of what a 202 waits for. Otherwise it takes two or more: one begins,
// asks for the endpoints' versions and takes the keys, the last commits.
func writeIntake(ctx context.Context, db postgres.Querier, items []*intake) error {
	written, err := writeAtOnce(ctx, db, items)
	if written || err != nil {
		return err
	}
	return writeChecked(ctx, db, items)
}

// writeChecked settles each request by itself, and writes what is to be stored.
func writeChecked(ctx context.Context, db postgres.Querier, items []*intake) error {
	if err := checkIntake(ctx, db, items); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	ev, ob := newRows(items)
	ev.queue(batch)
	ob.QueueFirst(batch)
	batch.Queue("commit")
	return db.SendBatch(ctx, batch).Close()
}

// checkIntake begins the transaction, compares the endpoints' versions, takes the keys,
// and leaves each request settled: to be stored, or not.
func checkIntake(ctx context.Context, db postgres.Querier, items []*intake) error {
	var tenants []string
	for _, in := range items {
		in.reset()
		if !slices.Contains(tenants, in.TenantID) {
			tenants = append(tenants, in.TenantID)
		}
	}
	keys := keysOf(items)
	versions, taken := map[string]int64{}, 0
	batch := &pgx.Batch{}
	batch.Queue("begin")
	queueVersions(batch, tenants, versions)
	queueKeys(batch, keys, &taken)
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, in := range items {
		version, known := versions[in.TenantID]
		if !known {
			in.refused = webhook.NotFound("tenant")
		}
		in.Stale = known && version != in.Version
		in.Again = in.Again && known && !in.Stale
	}
	if taken < len(keys) {
		if err := settleKnown(ctx, db, items, keys); err != nil {
			return err
		}
	}
	for _, in := range items {
		if in.stores() {
			in.refused = in.unknown()
		}
		if in.stores() {
			in.refused = in.over()
		}
	}
	return settleKeys(ctx, db, keys)
}

// reset forgets what an earlier flush found out.
func (in *intake) reset() {
	in.Stale, in.Again, in.answered, in.refused = false, false, false, nil
	for i := range in.Arrivals {
		in.Arrivals[i].earlier = nil
	}
	for i := range in.keys {
		in.keys[i].row, in.keys[i].free = nil, false
	}
}

// stores reports whether the request is to be stored: nothing is known that is against it.
func (in *intake) stores() bool {
	return in.refused == nil && !in.Stale && !in.Again && !in.answered
}

// unknown is why a request with an event for an endpoint that does not exist is refused; nil
// of any other.
func (in *intake) unknown() *webhook.Error {
	var wrong []webhook.FieldError
	for i := range in.Arrivals {
		if a := &in.Arrivals[i]; a.earlier == nil && !a.unknown.IsZero() {
			wrong = append(wrong, webhook.FieldError{
				Field: in.field(i, "endpoint_ids"), Message: "names an endpoint that does not exist: " + a.unknown.String(),
			})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid", Fields: wrong}
}

func (in *intake) Tenant() string { return in.TenantID }

// weight is what a request counts for in a flush: one per event, or more when it
// makes very many deliveries.
func (in *intake) Weight() int {
	deliveries := 0
	for i := range in.Arrivals {
		deliveries += len(in.Arrivals[i].Starts)
	}
	return max(len(in.Arrivals), deliveries/deliveriesPerEvent)
}

// queueVersions asks for the versions of the tenants' endpoints; of a tenant that does not
// exist there is none.
func queueVersions(batch *pgx.Batch, tenants []string, versions map[string]int64) {
	batch.Queue(`select id, endpoints_version from tenants where id = any($1)`, tenants).Query(func(rows pgx.Rows) error {
		var (
			id      string
			version int64
		)
		_, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error {
			versions[id] = version
			return nil
		})
		return err
	})
}

// newRows are the events that are to be stored, and their outbox rows.
func newRows(items []*intake) (ev eventBatch, ob deliveries.OutboxBatch) {
	for _, in := range items {
		if !in.stores() {
			continue
		}
		for i := range in.Arrivals {
			a := &in.Arrivals[i]
			if a.isKnown() {
				continue
			}
			ev = append(ev, eventRow{a, in})
			for k := range a.Starts {
				ob = append(ob, deliveries.OutboxRow{Start: &a.Starts[k], After: deliveries.RelayAfter})
			}
		}
	}
	return ev, ob
}

// eventRow is an event of a request.
type eventRow struct {
	*arrival

	in *intake
}

// eventRows has the payloads last: the buffer that they fill is not made larger for anything after them.
//
//nolint:gochecknoglobals // a table that Go cannot write as a constant
var eventRows = postgres.RowsOf[eventRow]{
	postgres.Whole("id uuid", func(e eventRow) [16]byte { return e.id }),
	postgres.Each("tenant text", func(e eventRow) string { return e.in.TenantID }),
	postgres.Each("type text", func(e eventRow) string { return e.event.Type }),
	postgres.Each("external text", func(e eventRow) string { return e.event.ExternalID }),
	postgres.EachBytes("sum bytea", func(e eventRow) []byte { return e.sum[:] }),
	postgres.Each("endpoints text", eventRow.endpoints),
	postgres.Each("reason text", func(e eventRow) string { return e.reason }),
	postgres.Each("created timestamptz", func(e eventRow) time.Time { return e.in.created }),
	postgres.EachOptional("deliver timestamptz", func(e eventRow) *time.Time { return postgres.Optional(e.event.DeliverAt) }),
	postgres.Each("targeted bool", func(e eventRow) bool { return e.event.EndpointIDs != nil }),
	postgres.EachBytes("payload bytea", func(e eventRow) []byte { return e.event.Payload }),
}

func (e eventRow) endpoints() string {
	ids := make([]webhook.EndpointID, len(e.Starts))
	for i := range e.Starts {
		ids[i] = e.Starts[i].EndpointID
	}
	return UUIDArray(ids)
}

const insertEvents = `
	insert into events (id, tenant_id, type, external_id, payload, payload_sha256, endpoint_ids, reason, created_at, deliver_at, targeted)
	select id, tenant, type, external, payload, sum, endpoints::uuid[], reason, created, deliver, targeted
	from `

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertEventRows = insertEvents + `(` + eventRows.Query(1) + `) r`

type eventBatch []eventRow

func (rows eventBatch) queue(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertEventRows, eventRows.Args(rows)...)
	}
}

// UUIDArray spells an array of uuids: unnest flattens arrays of arrays, so that a
// list per row has to travel as text.
func UUIDArray[ID ~[16]byte](ids []ID) string {
	const hexDigits = "0123456789abcdef"
	var b strings.Builder
	b.Grow(2 + 33*len(ids))
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, octet := range id {
			b.WriteByte(hexDigits[octet>>4])
			b.WriteByte(hexDigits[octet&15])
		}
	}
	b.WriteByte('}')
	return b.String()
}
