package events

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// listedFields are the fields of an event without its headers and the numbers of its deliveries: those of a page together may be large.
const (
	eventHead = `id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)), endpoint_ids, reason,
	created_at, deliver_at, payload_removed_at, payload_removed_reason, tags, type_version, schema_error, coalesce(ordering_key, ''),
	coalesce(octet_length(headers), 0), `
	eventFields  = eventHead + `headers, line_ids, line_numbers`
	listedFields = eventHead + `null::bytea, null::bigint[], null::bigint[]`
)

func scanEvent(row pgx.CollectableRow) (webhook.Event, error) {
	var (
		e         webhook.Event
		id        [16]byte
		endpoints [][16]byte
		deliver   *time.Time
		removed   *time.Time
		why       *string
		version   *int16
		headers   []byte
		lines     []int64
		numbers   []int64
	)
	err := row.Scan(&id, &e.TenantID, &e.Type, &e.ExternalID, &e.PayloadSize, &endpoints, &e.Reason, &e.CreatedAt, &deliver, &removed, &why,
		&e.Tags, &version, &e.SchemaError, &e.OrderingKey, &e.HeaderSize, &headers, &lines, &numbers)
	if version != nil {
		e.Version = int(*version)
	}
	if err == nil {
		e.Headers, err = postgres.EventHeaders(headers)
	}
	e.Removed = removalOf(removed, why)
	e.ID, e.CreatedAt, e.DeliverAt = id, e.CreatedAt.UTC(), postgres.OrZero(deliver)
	for _, endpoint := range endpoints {
		e.EndpointIDs = append(e.EndpointIDs, endpoint)
	}
	for i := range min(len(lines), len(numbers)) {
		e.Sequences = append(e.Sequences, webhook.Sequence{Key: e.OrderingKey, Line: lines[i], Number: numbers[i]})
	}
	return e, err
}

// Event reads an event and its deliveries, these in the order of the match, and after
// them those that a replay of events has made.
func (s *Events) Event(ctx context.Context, tenantID string, id webhook.EventID) (webhook.Event, []webhook.Delivery, error) {
	e, err := s.event(ctx, tenantID, id)
	if err != nil {
		return e, nil, err
	}
	found, err := s.deliveries.OfEvent(ctx, tenantID, id)
	if err != nil {
		return webhook.Event{}, nil, err
	}
	place := make(map[webhook.EndpointID]int, len(e.EndpointIDs))
	for i, endpoint := range e.EndpointIDs {
		place[endpoint] = i - len(e.EndpointIDs)
	}
	slices.SortStableFunc(found, func(a, b webhook.Delivery) int { return cmp.Compare(place[a.EndpointID], place[b.EndpointID]) })
	if len(found) > 0 {
		e.Reason = ""
	}
	return e, found, nil
}

func (s *Events) event(ctx context.Context, tenantID string, id webhook.EventID) (webhook.Event, error) {
	found, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read an event", scanEvent,
		`select `+eventFields+` from events where id = $1 and tenant_id = $2`, id, tenantID)
	if err != nil {
		return webhook.Event{}, err
	}
	if len(found) == 0 {
		return webhook.Event{}, webhook.NotFound("event")
	}
	return found[0], nil
}

// Payload is an event's payload, byte for byte as it was sent. CodeRemoved: it was removed before the event.
func (s *Events) Payload(ctx context.Context, tenantID string, id webhook.EventID) ([]byte, error) {
	type stored struct {
		Payload []byte
		At      *time.Time
		Why     *string
	}
	found, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read a payload", pgx.RowToStructByPos[stored],
		`select payload, payload_removed_at, payload_removed_reason from events where id = $1 and tenant_id = $2`, id, tenantID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, webhook.NotFound("event")
	}
	if removed := removalOf(found[0].At, found[0].Why); !removed.IsZero() {
		return nil, &webhook.Error{Code: webhook.CodeRemoved, Message: "the event is still there, but " + removed.String()}
	}
	return bytes.Clone(found[0].Payload), nil
}

// Contents are the payloads and headers of those of a tenant's events that still have them. Each event is looked up in the partition of its day.
func (s *Events) Contents(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.Content, error) {
	type stored struct {
		ID      [16]byte
		Payload []byte
		Headers []byte
	}
	found, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read payloads", pgx.RowToStructByPos[stored],
		`select e.id, e.payload, e.headers from unnest($1::uuid[]) u (id) cross join lateral (
			select id, payload, headers from events where id = u.id and tenant_id = $2 and payload_removed_at is null limit 1) e`,
		deliveries.RawIDs(ids), tenantID)
	contents := make(map[webhook.EventID]webhook.Content, len(found))
	for _, one := range found {
		headers, err := postgres.EventHeaders(one.Headers)
		if err != nil {
			return nil, fmt.Errorf("read the headers of %s: %w", webhook.EventID(one.ID), err)
		}
		contents[one.ID] = webhook.Content{Payload: one.Payload, Headers: headers}
	}
	return contents, err
}

// ListEvents reads a page of a tenant's events, newest first, without their headers. An index has the events with tags. None serves a type,
// or a certain tag: see postgres.ReadFiltered for searched and the errors.
func (s *Events) ListEvents(ctx context.Context, tenantID string, f webhook.EventFilter, p webhook.Page) (
	found []webhook.Event, searched [16]byte, err error,
) {
	c := s.core.OfTenant(tenantID)
	if f.Type == "" && f.Tag == "" {
		sql, args := listEvents(tenantID, f, p, searched)
		found, err = postgres.ReadList(ctx, s.core, c, "list events", scanEvent, sql, args...)
		return found, searched, err
	}
	q := postgres.FilterQuery{Args: []any{tenantID}}
	bound := postgres.Bound{SQL: `select id from events where tenant_id = $1` + indexed(&q, f, p) + ` order by id desc`}
	bound.Args = q.Args
	list := func(from [16]byte) (string, []any) { return listEvents(tenantID, f, p, from) }
	return postgres.ReadFiltered(ctx, s.core, c, "list events", scanEvent, p, list, bound)
}

// listEvents selects a page of what passes a filter, from an id on.
func listEvents(tenantID string, f webhook.EventFilter, p webhook.Page, from [16]byte) (sql string, args []any) {
	q := postgres.FilterQuery{Args: []any{tenantID}}
	conditions := indexed(&q, f, p)
	if f.Type != "" {
		conditions += " and " + q.TypePasses("type", f.Type)
	}
	if f.Tag != "" {
		conditions += " and " + q.Arg(f.Tag) + " = any(tags)"
	}
	if from != [16]byte{} {
		conditions += " and id >= " + q.Arg(from)
	}
	limit := ` order by id desc limit ` + q.Arg(p.Limit)
	if f.Tag == "" {
		return `select ` + listedFields + ` from events where tenant_id = $1` + conditions + limit, q.Args
	}
	// The index of tagged events has what the filters need, so only those that pass are read.
	return `select ` + listedFields + ` from (` + //nolint:unqueryvet // the columns are named before
		`select id as found from events where tenant_id = $1` + conditions + limit + `) i
		cross join lateral (select * from events where id = i.found limit 1) e order by i.found desc`, q.Args
}

// indexed returns the conditions of a filter that an index serves.
func indexed(q *postgres.FilterQuery, f webhook.EventFilter, p webhook.Page) string {
	var b strings.Builder
	if f.ExternalID != "" { // unique within the tenant: through the keys, which have the index
		b.WriteString(" and id = (select event_id from idempotency_keys where tenant_id = $1 and kind = 1 and key = " + q.Arg(f.ExternalID) + ")")
	}
	if f.Tag != "" {
		b.WriteString(" and tags is not null")
	}
	q.Window(&b, "id", "created_at", f.Since, f.Until, p)
	return b.String()
}
