package postgres

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/webhook"
)

// The kinds of idempotency_keys.
const (
	keyExternalID  int16 = 1 // idempotency_keys.kind
	keyIdempotency int16 = 2
)

type intakeKey struct {
	kind int16
	key  string
}

// name is the key as one string that sorts; a tenant's id holds no NUL.
func (k intakeKey) name(tenantID string) string {
	return tenantID + "\x00" + string(rune(k.kind)) + k.key
}

// repeat is an item with a key that an earlier item of the same flush has.
type repeat struct{ of, item *intake }

// settle gives the repetition the answer of the first, which has taken its keys by
// now. Where the first is refused for a key of its own, the repetition is matched again.
func (r repeat) settle() {
	if !r.of.earlier.IsZero() {
		r.item.stale = true
		return
	}
	r.item.earlier = r.of.id
	r.item.mismatch = r.item.mismatch || r.item.event.BodySHA256 != r.of.event.BodySHA256
}

// keysOf are the names of the keys to be taken and the item that takes each. Every
// key is taken once: by the first item that can be stored. The others are repeats,
// and take none of their keys.
func keysOf(items []*intake) (names []string, byKey map[string]*intake, repeats []repeat) {
	byKey = map[string]*intake{}
	for _, in := range items {
		if in.stale || in.unknown {
			continue
		}
		own := make([]string, len(in.keys))
		repeated := false
		for i, k := range in.keys {
			own[i] = k.name(in.event.TenantID)
			if first := byKey[own[i]]; first != nil {
				repeats, repeated = append(repeats, repeat{of: first, item: in}), true
			}
		}
		if repeated {
			continue
		}
		for _, name := range own {
			byKey[name] = in
		}
		names = append(names, own...)
	}
	return names, byKey, repeats
}

// takeKeys inserts keys. Where a key exists,
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
		tenantID, rest, _ := strings.Cut(name, "\x00")
		tenantIDs = append(tenantIDs, tenantID)
		kinds = append(kinds, int16(rest[0]))
		keys = append(keys, rest[1:])
		sums = append(sums, in.event.BodySHA256[:])
		events = append(events, in.id)
		created = append(created, in.created)
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

// freeKeys deletes the keys that the item's earlier event has left behind.
func (s *Store) freeKeys(ctx context.Context, in *intake) error {
	return s.withConn(ctx, "free keys of an event that is gone", func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `
			delete from idempotency_keys i where i.tenant_id = $1 and i.event_id = $2
				and (i.kind, i.key) in (($3::smallint, $4::text), ($5::smallint, $6::text))
				and not exists (select from events e where e.id = i.event_id)`,
			in.event.TenantID, in.earlier, keyExternalID, in.event.ExternalID, keyIdempotency, in.event.IdempotencyKey)
		return err
	})
}

// PruneIdempotencyKeys removes keys that are older than their time, a batch at a
// time: Idempotency-Keys after a day; external ids after externalIDs, and then only
// when their event is gone, because that may stay as long as it has a dead letter.
// It returns how many went.
func (s *Store) PruneIdempotencyKeys(ctx context.Context, externalIDs time.Duration) (int, error) {
	total := 0
	for _, k := range []struct {
		kind int16
		keep time.Duration
	}{{keyIdempotency, day}, {keyExternalID, externalIDs}} {
		n, err := s.pruneKeys(ctx, k.kind, time.Now().Add(-k.keep))
		total += n
		if err != nil {
			return total, translate("prune idempotency keys", err)
		}
	}
	return total, nil
}

// pruneKeys goes over the old keys of a kind once, oldest first, so that no batch
// looks again at those that stay.
func (s *Store) pruneKeys(ctx context.Context, kind int16, before time.Time) (int, error) {
	total := 0
	for after := new(time.Time{}); ; {
		var seen, gone int
		err := s.pool.QueryRow(ctx, `
			with old as (
				select tenant_id, kind, key, event_id, created_at from idempotency_keys
				where kind = $1 and created_at < $2 and created_at > $3 order by created_at limit $4),
			gone as (
				delete from idempotency_keys i using old o
				where i.tenant_id = o.tenant_id and i.kind = o.kind and i.key = o.key and i.event_id = o.event_id
				  and (o.kind = $5 or not exists (select from events e where e.id = o.event_id))
				returning 1)
			select (select count(*) from old), (select max(created_at) from old), (select count(*) from gone)`,
			kind, before, *after, deleteBatch, keyIdempotency).Scan(&seen, &after, &gone)
		total += gone
		if err != nil || seen < deleteBatch {
			return total, err
		}
	}
}
