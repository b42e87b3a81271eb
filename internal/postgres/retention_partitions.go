package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	daysBehind = 1 // a process whose clock is behind still writes yesterday's ids
	daysAhead  = 3 // so many days may maintenance fail before rows land in the DEFAULT partition

	maintainEvery = time.Hour
	maintainRetry = time.Minute

	// Attaching takes an exclusive lock on the DEFAULT partition. While it waits for
	// that, readers of all days wait behind it: better to give up soon and come back.
	attachLockTimeout = 2 * time.Second

	day = 24 * time.Hour
)

// partitioned is a table that is split by day on the time inside an id.
type partitioned struct{ table, column string }

// partitionedTables are made partitioned by range, with a DEFAULT partition, in migrations.
func partitionedTables() []partitioned {
	return []partitioned{{"events", "id"}, {"deliveries", "id"}, {"attempts", "delivery_id"}}
}

// EnsurePartitions makes the partitions of events, deliveries and attempts from the
// day before now to three days after it, where they are missing. Days are UTC's;
// a partition is named for its day, events_20261120. Several processes may call it
// at once: one works, the others wait and find it done.
//
// A day of which the DEFAULT partition already holds rows cannot have a partition
// of its own: PostgreSQL refuses to attach one while the rows are elsewhere, and
// moving them would need a lock on everything. Such a day is skipped with a warning
// and its rows stay in the DEFAULT partition, where they are found, indexed and
// unique like any others; only their retention costs a DELETE instead of a DROP.
//
// An error leaves what was made and does not keep the other tables from theirs.
func (s *Retention) EnsurePartitions(ctx context.Context, now time.Time) error {
	return ensurePartitions(ctx, s.work, s.log, now)
}

// Maintain makes partitions ahead of time, and finishes the cancelling of what
// deleted endpoints left open, until ctx ends.
func (s *Retention) Maintain(ctx context.Context) {
	for {
		wait := maintainEvery
		if err := s.EnsurePartitions(ctx, s.now()); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "partitions were not made", slog.Any("error", err), slog.Duration("retry_in", maintainRetry))
			wait = maintainRetry
		}
		if err := s.deliveries.cancelLeftOpen(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "deliveries of deleted endpoints were not all cancelled", slog.Any("error", err), slog.Duration("retry_in", maintainRetry))
			wait = maintainRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.deliveries.leftOpen:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func ensurePartitions(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, now time.Time) error {
	today := now.UTC().Truncate(day)
	var failed []error
	for _, t := range partitionedTables() {
		for offset := -daysBehind; offset <= daysAhead; offset++ {
			if err := ensurePartition(ctx, pool, logger, t, today.Add(time.Duration(offset)*day)); err != nil {
				failed = append(failed, err)
				break // the table's other days would fail alike
			}
		}
	}
	return errors.Join(failed...)
}

// ensurePartition makes one partition in a transaction of its own, so that its
// locks are held as shortly as possible.
func ensurePartition(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, t partitioned, from time.Time) error {
	name := t.table + "_" + from.Format("20060102")
	exists, err := tableExists(ctx, pool, name)
	if err != nil {
		return translate("look for partition "+name, err)
	}
	if exists {
		return nil // the ordinary case needs no lock
	}
	var skipped bool
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		exists, err := lockPartitions(ctx, tx, name)
		if err != nil || exists {
			return err
		}
		low, high := idsFrom(from), idsFrom(from.Add(day))
		if skipped, err = defaultHolds(ctx, tx, t, low, high); err != nil || skipped {
			return err
		}
		// Made beside the table and then attached: CREATE TABLE … PARTITION OF would
		// lock the whole table against reading.
		_, err = tx.Exec(ctx, `select everpost_make_partition($1, $2, $3, $4)`, t.table, name, low, high)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" {
		skipped, err = true, nil // a row of the day came in between the look and the lock
	}
	if err != nil {
		return translate("make partition "+name, err)
	}
	if skipped {
		logger.WarnContext(ctx, "a day stays in the default partition, which holds rows of it", slog.String("partition", name))
	}
	return nil
}

// lockPartitions keeps other processes from making partitions, looks whether one
// of them has made this one, and bounds the wait for further locks.
func lockPartitions(ctx context.Context, tx pgx.Tx, name string) (exists bool, err error) {
	_, err = tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('everpost/partitions/' || current_schema(), 0))`)
	if err != nil {
		return false, err
	}
	if exists, err = tableExists(ctx, tx, name); err != nil || exists {
		return exists, err
	}
	_, err = tx.Exec(ctx, `set local lock_timeout = `+milliseconds(attachLockTimeout))
	return false, err
}

// tableExists looks in the schema that unqualified names are made in.
func tableExists(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, name string,
) (exists bool, err error) {
	err = db.QueryRow(ctx, `select exists (select from pg_tables where schemaname = current_schema() and tablename = $1)`, name).Scan(&exists)
	return exists, err
}

// defaultHolds reports whether the DEFAULT partition has ids in [low, high).
func defaultHolds(ctx context.Context, tx pgx.Tx, t partitioned, low, high uuid.UUID) (bool, error) {
	var name *string
	err := tx.QueryRow(ctx, `
		select c.relname from pg_partitioned_table p
		left join pg_class c on c.oid = p.partdefid
		where p.partrelid = to_regclass($1)`, quote(t.table)).Scan(&name)
	if isNoRows(err) {
		return false, &webhook.Error{Code: webhook.CodeInternal, Message: "table " + t.table + " is not there or not partitioned: is the database migrated?"}
	}
	if err != nil || name == nil {
		return false, err
	}
	var holds bool
	err = tx.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s where %s >= $1 and %[2]s < $2)`, quote(*name), quote(t.column)),
		[16]byte(low), [16]byte(high)).Scan(&holds)
	return holds, err
}

// idsFrom is the smallest id that can carry the time: 48 bits of milliseconds, the
// rest zero (RFC 9562 §5.7). No UUIDv7 and no delivery's id of an earlier time is
// above it.
func idsFrom(t time.Time) uuid.UUID {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli())) // none is before 1970
	var id uuid.UUID
	copy(id[:6], ms[2:])
	return id
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
