package events

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// The kinds of idempotency_keys.
const (
	keyExternalID  int16 = 1 // idempotency_keys.kind
	keyIdempotency int16 = 2
)

// postingKey is a key of a request, with the results of its flush.
type postingKey struct {
	Kind int16
	Key  string
	at   int // the event that it names; 0 for an Idempotency-Key, which names the request

	row  *keyRow // result: the row of an earlier request; nil if there is none
	free bool    // result: that request's events are gone, so that the row is to be deleted
}

// name is the key as one string that sorts; a tenant's id holds no NUL.
func (k *postingKey) name(tenantID string) string {
	return tenantID + "\x00" + string(rune(k.Kind)) + k.Key
}

// keyRow is the row of an earlier request.
type keyRow struct {
	sum    []byte
	events []webhook.EventID // one, or those of a batch in their order
	kept   bool              // an Idempotency-Key that is not to be removed yet
}

// heldKey is a key that a flush inserts for a request.
type heldKey struct {
	*postingKey

	name string
	in   *posting
}

// event is the id by which the row of the key belongs to this request.
func (h heldKey) event() webhook.EventID { return h.in.Arrivals[h.at].id }

// keysOf returns the keys of the requests that can be stored, in the order in which all flushes insert
// them, so that flushes do not deadlock. Of two requests with a common key the later one is handed in
// again; keysUnderWay prevents that within a process.
func keysOf(items []*posting) []heldKey {
	var all []heldKey
	holder := map[string]*posting{}
	for _, in := range items {
		if !in.stores() {
			continue
		}
		first := len(all)
		for i := range in.keys {
			name := in.keys[i].name(in.TenantID)
			in.Again = in.Again || holder[name] != nil
			all = append(all, heldKey{&in.keys[i], name, in})
		}
		if in.Again {
			all = all[:first]
			continue
		}
		for _, h := range all[first:] {
			holder[h.name] = in
		}
	}
	slices.SortFunc(all, func(a, b heldKey) int { return cmp.Compare(a.name, b.name) })
	return all
}

// sum is the SHA-256 of the body of the event or request that the key names.
func (h heldKey) sum() []byte {
	if h.Kind == keyExternalID {
		return h.in.Arrivals[h.at].event.BodySHA256[:]
	}
	return h.in.Body[:]
}

// list has the ids of the events in the answer for an Idempotency-Key; nil for one event.
func (h heldKey) list() *string {
	if h.Kind == keyExternalID {
		return nil
	}
	return h.in.eventList()
}

// keyRows are rows of idempotency_keys, with the events that the keys name.
//
//nolint:gochecknoglobals // a table that Go cannot write as a constant
var keyRows = postgres.RowsOf[heldKey]{
	postgres.Whole("key text", func(h heldKey) string { return h.Key }),
	postgres.Each("tenant text", func(h heldKey) string { return h.in.TenantID }),
	postgres.Each("kind smallint", func(h heldKey) int16 { return h.Kind }),
	postgres.Each("event uuid", func(h heldKey) [16]byte { return h.event() }),
	postgres.EachBytes("sum bytea", heldKey.sum),
	postgres.EachOptional("list text", heldKey.list),
	postgres.Each("created timestamptz", func(h heldKey) time.Time { return h.in.created }),
}

const insertKeys = `
	insert into idempotency_keys (tenant_id, kind, key, event_id, body_sha256, event_ids, created_at)
	select tenant, kind, key, event, sum, list::uuid[], created
	from `

//nolint:gochecknoglobals // a constant that Go cannot write as one
var takeKeys = insertKeys + `(` + keyRows.Query(1) + `) r on conflict do nothing`

// queueKeys inserts the keys and counts those that are new.
func queueKeys(batch *pgx.Batch, keys []heldKey, taken *int) {
	if len(keys) == 0 {
		return
	}
	batch.Queue(takeKeys, keyRows.Args(keys)...).
		Exec(func(tag pgconn.CommandTag) error {
			*taken = int(tag.RowsAffected())
			return nil
		})
}

// keyNames names rows of idempotency_keys. It includes the event, so that no row of another request is
// deleted.
type keyNames struct {
	tenants, keys []string
	kinds         []int16
	events        [][16]byte
}

func (c *keyNames) add(h heldKey, event webhook.EventID) {
	c.tenants = append(c.tenants, h.in.TenantID)
	c.kinds = append(c.kinds, h.Kind)
	c.keys = append(c.keys, h.Key)
	c.events = append(c.events, event)
}

// settleKeys deletes the keys of requests that are not stored and those whose events are gone, and
// completes the answers of batches that contain earlier events.
func settleKeys(ctx context.Context, db postgres.Querier, keys []heldKey) error {
	var (
		orphans, mixed keyNames
		lists          []string
	)
	for _, h := range keys {
		switch {
		case h.free:
			orphans.add(h, h.row.events[0])
		case h.row != nil:
		case !h.in.stores():
			orphans.add(h, h.event())
		case h.Kind == keyIdempotency && h.in.mixed():
			mixed.add(h, h.in.answerIDs()[0])
			lists = append(lists, *h.in.eventList())
		}
	}
	batch := &pgx.Batch{}
	if len(orphans.keys) > 0 {
		batch.Queue(`
			delete from idempotency_keys i
			using unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[]) u (tenant, kind, name, event)
			where i.tenant_id = tenant and i.kind = u.kind and i.key = name and i.event_id = event`,
			orphans.tenants, orphans.kinds, orphans.keys, orphans.events)
	}
	if len(mixed.keys) > 0 {
		batch.Queue(`
			update idempotency_keys i set event_id = event, event_ids = list::uuid[]
			from unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[], $5::text[]) u (tenant, kind, name, event, list)
			where i.tenant_id = tenant and i.kind = u.kind and i.key = name`,
			mixed.tenants, mixed.kinds, mixed.keys, mixed.events, lists)
	}
	if batch.Len() == 0 {
		return nil
	}
	return db.SendBatch(ctx, batch).Close()
}

// eventList has the ids of the events in the answer for the request's Idempotency-Key; nil for one event.
func (in *posting) eventList() *string {
	if !in.batch {
		return nil
	}
	list := UUIDArray(in.answerIDs())
	return &list
}

// mixed reports whether the answer contains earlier events.
func (in *posting) mixed() bool {
	for i := range in.Arrivals {
		if in.Arrivals[i].isKnown() {
			return true
		}
	}
	return false
}

// answerIDs returns the ids of the events in the answer.
func (in *posting) answerIDs() []webhook.EventID {
	ids := make([]webhook.EventID, len(in.Arrivals))
	for i := range in.Arrivals {
		if ids[i] = in.Arrivals[i].id; in.Arrivals[i].earlier != nil {
			ids[i] = in.Arrivals[i].earlier.ID
		}
	}
	return ids
}

// keysUnderWay has the keys of requests that this process is storing.
type keysUnderWay struct {
	mu   sync.Mutex
	Keys map[string]struct{} // by name
}

// enter adds all keys of a request, or adds none and returns one that is under way.
func (u *keysUnderWay) enter(tenantID string, keys []postingKey) (taken *postingKey) {
	if len(keys) == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range keys {
		if _, there := u.Keys[keys[i].name(tenantID)]; there {
			return &keys[i]
		}
	}
	for i := range keys {
		u.Keys[keys[i].name(tenantID)] = struct{}{}
	}
	return nil
}

func (u *keysUnderWay) leave(tenantID string, keys []postingKey) {
	if len(keys) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range keys {
		delete(u.Keys, keys[i].name(tenantID))
	}
}

// PruneIdempotencyKeys removes old keys, in batches: Idempotency-Keys after a day; external ids after
// externalIDs, but not before their event is removed, which a dead letter may keep for longer. It returns
// the number of removed keys.
func (s *Events) PruneIdempotencyKeys(ctx context.Context, externalIDs time.Duration) (int, error) {
	total := 0
	for _, k := range []struct {
		kind int16
		keep time.Duration
	}{{keyIdempotency, webhook.IdempotencyKeysKept}, {keyExternalID, externalIDs}} {
		n, err := s.pruneKeys(ctx, k.kind, s.core.Now().Add(-k.keep))
		total += n
		if err != nil {
			return total, postgres.Translate("prune idempotency keys", err)
		}
	}
	return total, nil
}

// pruneKeys goes through the old keys of a kind once, oldest first. Keys of the same time are in one batch,
// because the next batch begins after that time.
func (s *Events) pruneKeys(ctx context.Context, kind int16, before time.Time) (total int, err error) {
	after := new(time.Time{})
	err = postgres.InBatches(ctx, func() (bool, error) {
		var seen, gone int
		err := s.core.WorkPool.QueryRow(ctx, `
			with old as (
				select tenant_id, kind, key, event_id, created_at from idempotency_keys
				where kind = $1 and created_at < $2 and created_at > $3 order by created_at fetch first $4 rows with ties),
			gone as (
				delete from idempotency_keys i using old o
				where i.tenant_id = o.tenant_id and i.kind = o.kind and i.key = o.key and i.event_id = o.event_id
				  and (o.kind = $5 or not exists (select from events e where e.id = o.event_id))
				returning 1)
			select (select count(*) from old), (select max(created_at) from old), (select count(*) from gone)`,
			kind, before, *after, postgres.DeleteBatch, keyIdempotency).Scan(&seen, &after, &gone)
		total += gone
		return seen >= postgres.DeleteBatch, err
	})
	return total, err
}
