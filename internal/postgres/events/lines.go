package events

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Requests that take numbers lock their lines until the commit, and wait for other processes that have locked one. So they have a group commit of
// their own, and others never wait for a line. A flush locks its lines in the order of their keys, after the idempotency keys.

// lineKey is the key of a line's row. The ordering key is in it as 128 bits of its SHA-256; that of events without one is the empty text's.
type lineKey struct{ endpoint, key [16]byte }

func (k lineKey) compare(other lineKey) int {
	return cmp.Or(bytes.Compare(k.endpoint[:], other.endpoint[:]), bytes.Compare(k.key[:], other.key[:]))
}

func lineKeyOf(endpoint webhook.EndpointID, orderingKey string) lineKey {
	sum := sha256.Sum256([]byte(orderingKey))
	return lineKey{endpoint, [16]byte(sum[:16])}
}

// line is a line whose next numbers a flush takes, with the deliveries that get them, in their order.
type line struct {
	lineKey

	tenant string
	of     []*webhook.Start
}

// linesOf returns the lines of the requests that are to be stored, in the order of their keys.
func linesOf(items []*posting) []*line {
	byKey := map[lineKey]*line{}
	var all []*line
	for _, in := range items {
		if !in.numbered || !in.stores() {
			continue
		}
		for i := range in.Arrivals {
			a := &in.Arrivals[i]
			if a.isKnown() {
				continue
			}
			for _, at := range a.numbered {
				start := &a.Starts[at]
				key := lineKeyOf(start.EndpointID, a.event.OrderingKey)
				l := byKey[key]
				if l == nil {
					l = &line{lineKey: key, tenant: in.TenantID}
					byKey[key] = l
					all = append(all, l)
				}
				start.Sequence.Key = a.event.OrderingKey
				l.of = append(l.of, start)
			}
		}
	}
	slices.SortFunc(all, func(a, b *line) int { return a.compare(b.lineKey) })
	return all
}

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var lineRows = postgres.RowsOf[*line]{
	postgres.Whole("endpoint uuid", func(l *line) [16]byte { return l.endpoint }),
	postgres.Each("key uuid", func(l *line) [16]byte { return l.key }),
	postgres.Each("tenant text", func(l *line) string { return l.tenant }),
	postgres.Each("n bigint", func(l *line) int64 { return int64(len(l.of)) }),
}

// takeLines writes each line once: a statement may change a row only once.
//
//nolint:gochecknoglobals // a constant that Go cannot write as one
var takeLines = `
	insert into lines as l (endpoint_id, key, tenant_id, id, last_number, used_on)
	select endpoint, key, tenant, (extract(epoch from now()) * 1000000)::bigint, n, (now() at time zone 'utc')::date
	from (` + lineRows.Query(1) + `) r
	on conflict (endpoint_id, key) do update set last_number = l.last_number + excluded.last_number, used_on = excluded.used_on
	returning endpoint_id, key, id, last_number`

// takeNumbers gives the deliveries of numbered endpoints the next numbers of their lines, in the order in which the requests came. A rollback gives
// them back. It asks nothing if no request takes one.
func takeNumbers(ctx context.Context, db postgres.Querier, items []*posting) error {
	lines := linesOf(items)
	if len(lines) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, takeLines, lineRows.Args(lines)...)
	if err != nil {
		return err
	}
	byKey := make(map[lineKey]*line, len(lines))
	for _, l := range lines {
		byKey[l.lineKey] = l
	}
	var (
		key      lineKey
		id, last int64
	)
	_, err = pgx.ForEachRow(rows, []any{&key.endpoint, &key.key, &id, &last}, func() error {
		of := byKey[key].of
		for i, start := range of {
			start.Sequence.Line, start.Sequence.Number = id, last-int64(len(of)-1-i)
		}
		return nil
	})
	return err
}

// lineLocks says how requests are written whose lines another process has locked, and does not release: apart from the others. It does not see a line
// that the other process has begun in the same transaction: a request that waits for such a one is found by halving the flush.
func (s *Events) lineLocks() *groupcommit.Apart[*posting] {
	return &groupcommit.Apart[*posting]{
		Keys: func(in *posting) (keys []any) {
			for _, l := range linesOf([]*posting{in}) {
				keys = append(keys, l.lineKey)
			}
			return keys
		},
		Turn: &s.linesTurn,
		Locked: func(ctx context.Context, items []*posting) ([][]any, error) {
			locked := make([][]any, len(items))
			var (
				endpoints, keys [][16]byte
				of              []int
			)
			for i, in := range items {
				for _, l := range linesOf([]*posting{in}) {
					endpoints, keys, of = append(endpoints, l.endpoint), append(keys, l.key), append(of, i)
				}
			}
			rows, err := s.core.EventsPool.Query(ctx, `
				select u.at from unnest($1::uuid[], $2::uuid[]) with ordinality u (endpoint, key, at)
				where exists (select from lines l where l.endpoint_id = u.endpoint and l.key = u.key)
				  and not exists (select from (select from lines l where l.endpoint_id = u.endpoint and l.key = u.key for no key update skip locked) free)`,
				endpoints, keys)
			if err != nil {
				return nil, err
			}
			var at int
			_, err = pgx.ForEachRow(rows, []any{&at}, func() error {
				locked[of[at-1]] = append(locked[of[at-1]], lineKey{endpoints[at-1], keys[at-1]})
				return nil
			})
			return locked, err
		},
	}
}

// PruneLines removes lines that took no number for as long as asked, to the day, by the index lines_idle, a thousand rows at a time. It waits for no
// lock, so flushes and it do not wait for one another in turn. A line that begins again has a higher id.
func (s *Events) PruneLines(ctx context.Context, keep time.Duration) (removed int64, err error) {
	err = postgres.InBatches(ctx, func() (bool, error) {
		tag, err := s.core.WorkPool.Exec(ctx, `
			with old as materialized (
				select endpoint_id, key from lines where used_on < (now() at time zone 'utc' - $1::bigint * interval '1 millisecond')::date
				order by used_on limit $2 for update skip locked)
			delete from lines l using old where l.endpoint_id = old.endpoint_id and l.key = old.key`, keep.Milliseconds(), postgres.DeleteBatch)
		removed += tag.RowsAffected()
		return tag.RowsAffected() >= postgres.DeleteBatch, err
	})
	return removed, postgres.Translate("remove idle lines", err)
}
