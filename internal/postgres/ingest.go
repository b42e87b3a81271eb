package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	keyExternalID  int16 = 1 // idempotency_keys.kind
	keyIdempotency int16 = 2

	// relayAfter is when the relay takes up what nobody has begun: longer than the
	// life of a token, a start's timeout and a workflow task's timeout together.
	relayAfter = 15 * time.Second

	matchRounds = 5 // repetitions of a match against endpoints that changed meanwhile
)

// intake is one event on its way into the store, with what its flush found out.
type intake struct {
	event    webhook.NewEvent
	id       webhook.EventID
	created  time.Time
	version  int64 // of the tenant's endpoints that the match was made with
	starts   []webhook.Start
	reason   string
	keys     []intakeKey
	sum      [sha256.Size]byte
	stale    bool            // result: the endpoints changed, match again
	unknown  bool            // result: there is no such tenant
	earlier  webhook.EventID // result: an earlier request's event has one of the keys
	mismatch bool            // result: … and its body was another one
}

type intakeKey struct {
	kind int16
	key  string
}

// name is the key as one string that sorts; a tenant's id holds no NUL.
func (k intakeKey) name(tenantID string) string {
	return tenantID + "\x00" + string(rune(k.kind)) + k.key
}

// Accept stores an event and its deliveries. When it returns without an error,
// all of it is committed.
//
// Errors: CodeNotFound (no such tenant), CodeInvalid (an unknown endpoint id),
// CodeMismatch (a key came back with another body), CodeConflict (a request with
// the same key is under way), CodeUnavailable.
func (s *Store) Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error) {
	in := &intake{event: e, sum: sha256.Sum256(e.Payload)}
	if e.ExternalID != "" {
		in.keys = append(in.keys, intakeKey{keyExternalID, e.ExternalID})
	}
	if e.IdempotencyKey != "" {
		in.keys = append(in.keys, intakeKey{keyIdempotency, e.IdempotencyKey})
	}
	if !s.inFlight.enter(e.TenantID, in.keys) {
		return webhook.Accepted{}, &webhook.Error{
			Code: webhook.CodeConflict, Message: "a request with the same key is under way; repeat it to get its answer", RetryAfter: time.Second,
		}
	}
	defer s.inFlight.leave(e.TenantID, in.keys)

	for range matchRounds {
		if err := s.match(ctx, in); err != nil {
			return webhook.Accepted{}, err
		}
		if err := s.ingest.do(ctx, in); err != nil {
			return webhook.Accepted{}, err
		}
		switch {
		case in.unknown:
			return webhook.Accepted{}, webhook.NotFound("tenant")
		case in.mismatch:
			return webhook.Accepted{}, &webhook.Error{
				Code: webhook.CodeMismatch, Message: "this key was used before with another body",
			}
		case !in.earlier.IsZero():
			return s.acceptedBefore(ctx, e.TenantID, in.earlier)
		case !in.stale:
			return webhook.Accepted{Event: in.stored(), Deliveries: in.starts}, nil
		}
		s.endpointCache.ForgetTenant(e.TenantID)
	}
	return webhook.Accepted{}, &webhook.Error{
		Code: webhook.CodeUnavailable, Message: "the tenant's endpoints are changing too fast", RetryAfter: time.Second,
	}
}

// match gives the event its id and finds the endpoints it goes to.
func (s *Store) match(ctx context.Context, in *intake) error {
	endpoints, version, err := s.endpointCache.OfTenant(ctx, in.event.TenantID)
	if err != nil {
		return err
	}
	in.id = webhook.NewEventID()
	in.created = time.Now().UTC().Truncate(time.Microsecond)
	in.version, in.reason, in.starts = version, "", nil
	in.stale, in.unknown, in.mismatch, in.earlier = false, false, false, webhook.EventID{}

	if in.event.EndpointIDs != nil {
		return in.matchNamed(endpoints)
	}
	for i := range endpoints {
		if endpoints[i].Wants(in.event.Type) {
			in.add(&endpoints[i])
		}
	}
	if len(in.starts) == 0 {
		in.reason = webhook.ReasonNoMatch
	}
	return nil
}

func (in *intake) matchNamed(endpoints []webhook.Endpoint) error {
	for _, id := range in.event.EndpointIDs {
		i := slices.IndexFunc(endpoints, func(e webhook.Endpoint) bool { return e.ID == id })
		if i < 0 {
			return webhook.Invalid("endpoint_ids", "names an endpoint that does not exist: "+id.String())
		}
		in.add(&endpoints[i])
	}
	return nil
}

func (in *intake) add(e *webhook.Endpoint) {
	from := in.created
	if in.event.DeliverAt.After(from) {
		from = in.event.DeliverAt
	}
	in.starts = append(in.starts, webhook.Start{
		Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(in.id, e.ID), EventID: in.id, EndpointID: e.ID,
			TenantID: in.event.TenantID, EventType: in.event.Type,
		},
		Run: 1, CreatedAt: in.created, NotBefore: in.event.DeliverAt,
		GiveUpAt: from.Add(e.RetryPolicy.GiveUpAfter).Truncate(time.Microsecond),
	})
}

func (in *intake) stored() webhook.Event {
	e := webhook.Event{
		ID: in.id, TenantID: in.event.TenantID, Type: in.event.Type, ExternalID: in.event.ExternalID,
		CreatedAt: in.created, DeliverAt: in.event.DeliverAt, PayloadSize: len(in.event.Payload), Reason: in.reason,
	}
	for _, start := range in.starts {
		e.EndpointIDs = append(e.EndpointIDs, start.EndpointID)
	}
	return e
}

// acceptedBefore is the answer that the first request with the same key got.
func (s *Store) acceptedBefore(ctx context.Context, tenantID string, id webhook.EventID) (webhook.Accepted, error) {
	e, err := s.event(ctx, tenantID, id)
	if err != nil {
		return webhook.Accepted{}, err
	}
	again := webhook.Accepted{Event: e, Replayed: true}
	for _, endpoint := range e.EndpointIDs {
		again.Deliveries = append(again.Deliveries, webhook.Start{Ref: webhook.Ref{
			DeliveryID: webhook.DeliveryIDOf(e.ID, endpoint), EventID: e.ID, EndpointID: endpoint,
			TenantID: tenantID, EventType: e.Type,
		}, Run: 1, CreatedAt: e.CreatedAt, NotBefore: e.DeliverAt})
	}
	return again, nil
}

// flushIntake writes events, outbox rows and keys of many requests in one
// transaction of two round trips.
func (s *Store) flushIntake(ctx context.Context, items []*intake) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	if err := checkIntake(ctx, tx, items); err != nil {
		return err
	}
	if err := insertIntake(ctx, tx, items); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// checkIntake compares the endpoints' versions and takes the keys.
func checkIntake(ctx context.Context, tx pgx.Tx, items []*intake) error {
	var (
		tenants []string
		byKey   = map[string]*intake{}
		keys    []string
	)
	for _, in := range items {
		in.stale, in.unknown, in.mismatch, in.earlier = false, false, false, webhook.EventID{}
		if !slices.Contains(tenants, in.event.TenantID) {
			tenants = append(tenants, in.event.TenantID)
		}
		for _, k := range in.keys {
			name := k.name(in.event.TenantID)
			byKey[name] = in
			keys = append(keys, name)
		}
	}
	versions, err := tenantVersions(ctx, tx, tenants)
	if err != nil {
		return err
	}
	for _, in := range items {
		version, known := versions[in.event.TenantID]
		in.unknown, in.stale = !known, known && version != in.version
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys) // one order for all: no deadlocks between flushes
	return takeKeys(ctx, tx, keys, byKey)
}

func tenantVersions(ctx context.Context, tx pgx.Tx, tenants []string) (map[string]int64, error) {
	rows, err := tx.Query(ctx, `select id, endpoints_version from tenants where id = any($1)`, tenants)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]int64, len(tenants))
	var (
		id      string
		version int64
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		versions[id] = version
		return nil
	})
	return versions, err
}

// takeKeys inserts the keys of the items that can be stored. Where a key exists,
// the item learns whose it is, and its other key is given back.
func takeKeys(ctx context.Context, tx pgx.Tx, names []string, byKey map[string]*intake) error {
	var (
		tenantIDs, keys []string
		kinds           []int16
		sums            [][]byte
		events          [][16]byte
		created         []time.Time
	)
	for _, name := range names {
		in := byKey[name]
		if in.stale || in.unknown {
			continue
		}
		tenantID, rest, _ := strings.Cut(name, "\x00")
		tenantIDs = append(tenantIDs, tenantID)
		kinds = append(kinds, int16(rest[0]))
		keys = append(keys, rest[1:])
		sums = append(sums, in.event.BodySHA256[:])
		events = append(events, in.id)
		created = append(created, in.created)
	}
	if len(keys) == 0 {
		return nil
	}
	//nolint:unqueryvet // unnest's arguments are the columns; allowed-patterns does not reach pgx's Exec
	tag, err := tx.Exec(ctx, `
		insert into idempotency_keys (tenant_id, kind, key, body_sha256, event_id, created_at)
		select * from unnest($1::text[], $2::smallint[], $3::text[], $4::bytea[], $5::uuid[], $6::timestamptz[])
		on conflict do nothing`, tenantIDs, kinds, keys, sums, events, created)
	if err != nil || tag.RowsAffected() == int64(len(keys)) {
		return err
	}
	return findEarlier(ctx, tx, tenantIDs, kinds, keys, byKey)
}

func findEarlier(ctx context.Context, tx pgx.Tx, tenantIDs []string, kinds []int16, keys []string, byKey map[string]*intake) error {
	rows, err := tx.Query(ctx, `
		select i.tenant_id, i.kind, i.key, i.body_sha256, i.event_id
		from idempotency_keys i
		join unnest($1::text[], $2::smallint[], $3::text[]) u (t, k, name) on i.tenant_id = t and i.kind = k and i.key = name`,
		tenantIDs, kinds, keys)
	if err != nil {
		return err
	}
	var (
		tenantID, key string
		kind          int16
		sum           []byte
		event         [16]byte
		refused       []*intake
	)
	_, err = pgx.ForEachRow(rows, []any{&tenantID, &kind, &key, &sum, &event}, func() error {
		in := byKey[intakeKey{kind, key}.name(tenantID)]
		if webhook.EventID(event) == in.id {
			return nil // taken just now
		}
		in.earlier = event
		in.mismatch = in.mismatch || !bytes.Equal(sum, in.event.BodySHA256[:])
		refused = append(refused, in)
		return nil
	})
	if err != nil {
		return err
	}
	var orphans [][16]byte
	for _, in := range refused {
		orphans = append(orphans, in.id)
	}
	_, err = tx.Exec(ctx, `
		delete from idempotency_keys i using unnest($1::text[], $2::smallint[], $3::text[]) u (t, k, name)
		where i.tenant_id = t and i.kind = k and i.key = name
		  and i.event_id = any($4::uuid[])`, tenantIDs, kinds, keys, orphans)
	return err
}

// insertIntake writes the events that nothing speaks against, and their outbox rows.
func insertIntake(ctx context.Context, tx pgx.Tx, items []*intake) error {
	var (
		ev eventColumns
		ob outboxColumns
	)
	for _, in := range items {
		if in.stale || in.unknown || !in.earlier.IsZero() {
			continue
		}
		ev.add(in)
		for _, start := range in.starts {
			ob.add(start, in.created.Add(relayAfter))
		}
	}
	batch := &pgx.Batch{}
	ev.queue(batch)
	ob.queue(batch)
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

type eventColumns struct {
	ids                       [][16]byte
	tenants, types, externals []string
	payloads, sums            [][]byte
	endpoints, reasons        []string
	created                   []time.Time
	deliverAt                 []*time.Time
}

func (c *eventColumns) add(in *intake) {
	c.ids = append(c.ids, in.id)
	c.tenants = append(c.tenants, in.event.TenantID)
	c.types = append(c.types, in.event.Type)
	c.externals = append(c.externals, in.event.ExternalID)
	c.payloads = append(c.payloads, in.event.Payload)
	c.sums = append(c.sums, in.sum[:])
	c.endpoints = append(c.endpoints, endpointArray(in.starts))
	c.reasons = append(c.reasons, in.reason)
	c.created = append(c.created, in.created)
	c.deliverAt = append(c.deliverAt, optional(in.event.DeliverAt))
}

func (c *eventColumns) queue(b *pgx.Batch) {
	if len(c.ids) == 0 {
		return
	}
	b.Queue(`
		insert into events (id, tenant_id, type, external_id, payload, payload_sha256, endpoint_ids, reason, created_at, deliver_at)
		select id, tenant, type, external, payload, sum, endpoints::uuid[], reason, created, deliver
		from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::text[], $9::timestamptz[], $10::timestamptz[])
		  u (id, tenant, type, external, payload, sum, endpoints, reason, created, deliver)`,
		c.ids, c.tenants, c.types, c.externals, c.payloads, c.sums, c.endpoints, c.reasons, c.created, c.deliverAt)
}

// endpointArray spells an array of uuids: unnest flattens arrays of arrays, so
// that a list per row has to travel as text.
func endpointArray(starts []webhook.Start) string {
	const hexDigits = "0123456789abcdef"
	var b strings.Builder
	b.Grow(2 + 33*len(starts))
	b.WriteByte('{')
	for i, start := range starts {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, octet := range start.EndpointID {
			b.WriteByte(hexDigits[octet>>4])
			b.WriteByte(hexDigits[octet&15])
		}
	}
	b.WriteByte('}')
	return b.String()
}

// keysUnderWay are the idempotency keys of requests that this process is storing.
type keysUnderWay struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (u *keysUnderWay) enter(tenantID string, keys []intakeKey) bool {
	if len(keys) == 0 {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range keys {
		if _, taken := u.keys[k.name(tenantID)]; taken {
			return false
		}
	}
	for _, k := range keys {
		u.keys[k.name(tenantID)] = struct{}{}
	}
	return true
}

func (u *keysUnderWay) leave(tenantID string, keys []intakeKey) {
	if len(keys) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range keys {
		delete(u.keys, k.name(tenantID))
	}
}

// PruneIdempotencyKeys removes keys that are older than their time, a batch at a
// time: Idempotency-Keys after a day, external ids with their events. It returns
// how many went.
func (s *Store) PruneIdempotencyKeys(ctx context.Context, externalIDs time.Duration) (int, error) {
	const day = 24 * time.Hour
	total := 0
	for _, k := range []struct {
		kind int16
		keep time.Duration
	}{{keyIdempotency, day}, {keyExternalID, externalIDs}} {
		for {
			tag, err := s.pool.Exec(ctx, `
				delete from idempotency_keys where (tenant_id, kind, key) in (
					select tenant_id, kind, key from idempotency_keys
					where kind = $1 and created_at < $2 order by created_at limit 5000)`, k.kind, time.Now().Add(-k.keep))
			if err != nil {
				return total, translate("prune idempotency keys", err)
			}
			total += int(tag.RowsAffected())
			if tag.RowsAffected() == 0 {
				break
			}
		}
	}
	return total, nil
}

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// optional is nil for the zero time: SQL's null.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// orZero is the zero time for SQL's null.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
