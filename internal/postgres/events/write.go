package events

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// maxPayloadErrors bounds the errors about the payloads of a batch; there are up to ten of each.
const maxPayloadErrors = 50

// flushPostings writes events, outbox rows and keys of many requests in one transaction.
func (s *Events) flushPostings(ctx context.Context, items []*posting) error {
	conn, err := s.core.EventsPool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	s.renewPending(items)
	if err := writePostings(ctx, conn, items); err != nil {
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

// writePostings decides on each request by itself, and writes those that are to be stored. It takes two round trips if none of their
// keys is known: the first begins, reads the versions of the endpoints and takes the keys; the last writes and commits. Between them, requests that
// take numbers need one more.
func writePostings(ctx context.Context, db postgres.Querier, items []*posting) error {
	if err := checkPostings(ctx, db, items); err != nil {
		return err
	}
	if err := takeNumbers(ctx, db, items); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	ev, ob := newRows(items)
	ev.queue(batch)
	ob.QueueFirst(batch)
	batch.Queue("commit")
	failpoint.Hit("event-before-commit")
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	failpoint.Hit("event-after-commit")
	return nil
}

// checkPostings begins the transaction, compares the versions of the endpoints, takes the keys, and decides
// which requests are stored.
func checkPostings(ctx context.Context, db postgres.Querier, items []*posting) error {
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
			in.refused = in.wrong()
		}
		if in.stores() {
			in.refused = in.over()
		}
	}
	return settleKeys(ctx, db, keys)
}

// reset removes the results of an earlier flush.
func (in *posting) reset() {
	in.Stale, in.Again, in.answered, in.refused = false, false, false, nil
	for i := range in.Arrivals {
		in.Arrivals[i].earlier = nil
	}
	for i := range in.keys {
		in.keys[i].row, in.keys[i].free = nil, false
	}
}

// stores reports whether the request is to be stored, by what is known so far.
func (in *posting) stores() bool {
	return in.refused == nil && !in.Stale && !in.Again && !in.answered
}

// wrong returns the error for events that name an endpoint that does not exist, or that the catalogue refuses; nil if there are none. It speaks
// of payloads that do not match when nothing else is wrong.
func (in *posting) wrong() *webhook.Error {
	var wrong, payloads []webhook.FieldError
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		if a.earlier != nil {
			continue
		}
		if !a.unknown.IsZero() {
			wrong = append(wrong, webhook.FieldError{
				Field: in.field(i, "endpoint_ids"), Message: "names an endpoint that does not exist: " + a.unknown.String(),
			})
		}
		for _, f := range a.verdict.Refused {
			f.Field = in.field(i, f.Field)
			if a.verdict.Payload {
				payloads = append(payloads, f)
			} else {
				wrong = append(wrong, f)
			}
		}
	}
	switch {
	case len(wrong) > 0:
		return &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid", Fields: wrong}
	case len(payloads) > 0:
		return &webhook.Error{
			Code: webhook.CodePayloadInvalid, Message: "the payload does not match the schema of its event type",
			Fields: payloads[:min(len(payloads), maxPayloadErrors)],
		}
	}
	return nil
}

func (in *posting) Tenant() string { return in.TenantID }

// Weight is what a request counts in a flush: one per event, or more if it has very many deliveries.
func (in *posting) Weight() int {
	deliveries := 0
	for i := range in.Arrivals {
		deliveries += len(in.Arrivals[i].Starts)
	}
	return max(len(in.Arrivals), deliveries/deliveriesPerEvent)
}

// queueVersions reads the versions of the tenants' endpoints. A tenant that does not exist has none.
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

// newRows returns the rows of the events to store, and their outbox rows.
func newRows(items []*posting) (ev eventBatch, ob deliveries.OutboxBatch) {
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

	in *posting
}

// eventRows has the payloads last, so that the buffer is not enlarged for anything after them.
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
	postgres.EachOptional("version smallint", eventRow.version),
	postgres.EachOptional("mismatch text", func(e eventRow) *string { return e.schemaError() }),
	postgres.Each("created timestamptz", func(e eventRow) time.Time { return e.in.created }),
	postgres.EachOptional("deliver timestamptz", func(e eventRow) *time.Time { return postgres.Optional(e.event.DeliverAt) }),
	postgres.Each("targeted bool", func(e eventRow) bool { return e.event.EndpointIDs != nil }),
	postgres.EachOptional("tags text", eventRow.tags),
	postgres.EachOptional("ordering_key text", func(e eventRow) *string { return postgres.OptionalText(e.event.OrderingKey) }),
	postgres.EachOptional("lines text", func(e eventRow) *string { return e.places(func(s webhook.Sequence) int64 { return s.Line }) }),
	postgres.EachOptional("numbers text", func(e eventRow) *string { return e.places(func(s webhook.Sequence) int64 { return s.Number }) }),
	postgres.EachBytes("headers bytea", func(e eventRow) []byte { return postgres.HeadersColumn(e.event.Headers) }),
	postgres.EachBytes("payload bytea", func(e eventRow) []byte { return e.event.Payload }),
}

func (e eventRow) endpoints() string {
	ids := make([]webhook.EndpointID, len(e.Starts))
	for i := range e.Starts {
		ids[i] = e.Starts[i].EndpointID
	}
	return UUIDArray(ids)
}

// version is nil if the sender named none.
func (e eventRow) version() *int16 {
	if e.event.Version == 0 {
		return nil
	}
	return new(int16(e.event.Version)) //nolint:gosec // the API bounds it
}

// tags are an array as text, as those of UUIDArray. A tag has no character that would have to be escaped (webhook.ValidTag).
func (e eventRow) tags() *string {
	if len(e.event.Tags) == 0 {
		return nil
	}
	text := `{"` + strings.Join(e.event.Tags, `","`) + `"}`
	return &text
}

// places are the lines or the numbers of the event's deliveries, an array as text; nil if none has a number.
func (e eventRow) places(of func(webhook.Sequence) int64) *string {
	if len(e.numbered) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i := range e.Starts {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, of(e.Starts[i].Sequence), 10)
	}
	text := string(append(b, '}'))
	return &text
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertEventRows = `
	insert into events (id, tenant_id, type, external_id, payload, payload_sha256, endpoint_ids, reason, created_at, deliver_at, targeted,
		type_version, schema_error, tags, ordering_key, line_ids, line_numbers, headers)
	select id, tenant, type, external, payload, sum, endpoints::uuid[], reason, created, deliver, targeted,
		version, mismatch, tags::text[], ordering_key, lines::bigint[], numbers::bigint[], headers
	from (` + eventRows.Query(1) + `) r`

type eventBatch []eventRow

func (rows eventBatch) queue(b *pgx.Batch) {
	if len(rows) > 0 {
		b.Queue(insertEventRows, eventRows.Args(rows)...)
	}
}

// UUIDArray writes an array of UUIDs as text. A list for each row cannot be sent as an array, because
// unnest flattens arrays of arrays.
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
