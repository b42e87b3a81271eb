package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// flushIntake writes events, outbox rows and keys of many requests in one
// transaction of two round trips.
func (s *Store) flushIntake(ctx context.Context, items []*intake) error {
	tx, err := s.writer.Begin(ctx)
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
	var tenants []string
	for _, in := range items {
		in.stale, in.unknown, in.mismatch, in.earlier = false, false, false, webhook.EventID{}
		if !slices.Contains(tenants, in.event.TenantID) {
			tenants = append(tenants, in.event.TenantID)
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
	keys, byKey, repeats := keysOf(items)
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys) // one order for all: no deadlocks between flushes
	if err := takeKeys(ctx, tx, keys, byKey); err != nil {
		return err
	}
	for _, r := range repeats {
		r.settle()
	}
	return nil
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
