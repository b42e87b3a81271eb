package events

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// settleKnown reads the rows of keys that earlier requests have taken, and decides on the requests with
// these keys.
func settleKnown(ctx context.Context, db postgres.Querier, items []*posting, keys []heldKey) error {
	if err := readKeys(ctx, db, keys); err != nil {
		return err
	}
	events, err := earlierEvents(ctx, db, keys)
	if err != nil {
		return err
	}
	for _, in := range items {
		if in.stores() {
			in.settle(events)
		}
	}
	return nil
}

// readKeys reads the rows of the keys. A request is handed in again if the row of one of its keys has
// disappeared since.
func readKeys(ctx context.Context, db postgres.Querier, keys []heldKey) error {
	var names keyNames
	for _, h := range keys {
		names.add(h, h.event())
	}
	rows, err := db.Query(ctx, `
		select i.tenant_id, i.kind, i.key, i.body_sha256, coalesce(i.event_ids, array[i.event_id]),
			i.kind = $4 and i.created_at >= now() - $5::bigint * interval '1 millisecond'
		from idempotency_keys i
		join unnest($1::text[], $2::smallint[], $3::text[]) u (tenant, kind, name) on i.tenant_id = tenant and i.kind = u.kind and i.key = name`,
		names.tenants, names.kinds, names.keys, keyIdempotency, webhook.IdempotencyKeysKept.Milliseconds())
	if err != nil {
		return err
	}
	var (
		tenantID string
		k        postingKey
		sum      []byte
		ids      [][16]byte
		kept     bool
	)
	there := make(map[string]*keyRow, len(keys))
	_, err = pgx.ForEachRow(rows, []any{&tenantID, &k.Kind, &k.Key, &sum, &ids, &kept}, func() error {
		row := &keyRow{sum: bytes.Clone(sum), events: make([]webhook.EventID, len(ids)), kept: kept}
		for i, id := range ids {
			row.events[i] = id
		}
		there[k.name(tenantID)] = row
		return nil
	})
	if err != nil {
		return err
	}
	for _, h := range keys {
		row := there[h.name]
		switch {
		case row == nil:
			h.in.Again = true
		case row.events[0] != h.event():
			h.row = row
		}
	}
	return nil
}

// earlierEvents reads the events that the rows of the keys name, through a view without payloads.
func earlierEvents(ctx context.Context, db postgres.Querier, keys []heldKey) (map[webhook.EventID]*webhook.Event, error) {
	events := map[webhook.EventID]*webhook.Event{}
	var ids [][16]byte
	for _, h := range keys {
		if h.row == nil {
			continue
		}
		for _, id := range h.row.events {
			ids = append(ids, id)
		}
	}
	rows, err := db.Query(ctx, `
		select id, tenant_id, type, external_id, payload_size, endpoint_ids, reason, created_at, deliver_at,
			null::timestamptz, null::text, tags, type_version, schema_error, coalesce(ordering_key, ''), 0, null::bytea,
			line_ids, line_numbers
		from event_heads where id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanEvent)
	for i := range found {
		events[found[i].ID] = &found[i]
	}
	return events, err
}

// settle decides on a request with keys of earlier requests. The Idempotency-Key comes first, because it
// is about the whole request.
func (in *posting) settle(events map[webhook.EventID]*webhook.Event) {
	var wrong []webhook.FieldError
	for i := range in.keys {
		k := &in.keys[i]
		if k.row == nil {
			continue
		}
		left := 0
		for _, id := range k.row.events {
			if events[id] != nil {
				left++
			}
		}
		if left == 0 && !k.row.kept { // retention has removed its events
			k.free, in.Again = true, true
			continue
		}
		if k.Kind == keyIdempotency {
			in.repeat(k.row, events, left)
			return
		}
		a := &in.Arrivals[k.at]
		if !bytes.Equal(k.row.sum, a.event.BodySHA256[:]) {
			wrong = append(wrong, webhook.FieldError{Field: in.field(k.at, fieldExternalID), Message: usedBefore})
			continue
		}
		a.earlier = events[k.row.events[0]]
		in.answered = !in.batch
	}
	if len(wrong) > 0 {
		in.refused = mismatch(wrong...)
	}
}

// repeat gives the request the answer of the earlier one with its Idempotency-Key.
func (in *posting) repeat(row *keyRow, events map[webhook.EventID]*webhook.Event, left int) {
	switch {
	case !bytes.Equal(row.sum, in.Body[:]) || len(row.events) != len(in.Arrivals):
		in.refused = mismatch(webhook.FieldError{Field: fieldIdempotencyKey, Message: usedBefore})
	case left < len(row.events):
		// Storing it again would send the remaining events twice.
		in.refused = &webhook.Error{Code: webhook.CodeConflict, Fields: []webhook.FieldError{{
			Field: fieldIdempotencyKey, Message: "was used before, and retention has removed events it stood for since; use another key",
		}}}
	default:
		in.answered = true
		for i, id := range row.events {
			in.Arrivals[i].earlier = events[id]
		}
	}
}

// Where a request has its keys.
const (
	fieldExternalID     = "external_id"
	fieldIdempotencyKey = "Idempotency-Key"

	usedBefore = "was used before with another body"
)

func mismatch(wrong ...webhook.FieldError) *webhook.Error {
	return &webhook.Error{Code: webhook.CodeMismatch, Message: "a key was used before with another body", Fields: wrong}
}

// underWay returns the error for a request whose key a request under way has, too.
func (in *posting) underWay(k *postingKey) error {
	field := fieldIdempotencyKey
	if k.Kind == keyExternalID {
		field = in.field(k.at, fieldExternalID)
	}
	return &webhook.Error{
		Code: webhook.CodeConflict, Message: "a request with the same key is under way", RetryAfter: time.Second,
		Fields: []webhook.FieldError{{Field: field, Message: "a request with the same one is under way; repeat this one to get its answer"}},
	}
}
