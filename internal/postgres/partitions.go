package postgres

import (
	"context"
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

const daysBehind = 1 // a process whose clock is behind still writes yesterday's ids

const daysAhead = 3 // for how many days maintenance may fail before rows go to the DEFAULT partition

// Attaching takes an exclusive lock on the DEFAULT partition. While it waits for the lock,
// readers of all days queue behind it, so it gives up soon and is tried again later.
const attachLockTimeout = 2 * time.Second

// Day is the span of a partition.
const Day = 24 * time.Hour

// Partitioned is a table that is split by day on the time inside an id.
type Partitioned struct{ Table, Column string }

// PartitionedTables are made partitioned by range, with a DEFAULT partition, in migrations.
func PartitionedTables() []Partitioned {
	return []Partitioned{{"events", "id"}, {"deliveries", "id"}, {"attempts", "delivery_id"}}
}

// MakePartitions makes the partitions of the days around now, in the worker's role.
func (s *Core) MakePartitions(ctx context.Context, now time.Time) error {
	return ensurePartitions(ctx, s.Work, s.Log, now)
}

func ensurePartitions(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, now time.Time) error {
	today := now.UTC().Truncate(Day)
	var failed []error
	for _, t := range PartitionedTables() {
		for offset := -daysBehind; offset <= daysAhead; offset++ {
			if err := ensurePartition(ctx, pool, logger, t, today.Add(time.Duration(offset)*Day)); err != nil {
				failed = append(failed, err)
				break // the table's other days would fail, too
			}
		}
	}
	return errors.Join(failed...)
}

// ensurePartition makes one partition in a transaction of its own, so that its
// locks are held as shortly as possible.
func ensurePartition(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, t Partitioned, from time.Time) error {
	name := t.Table + "_" + from.Format("20060102")
	exists, err := tableExists(ctx, pool, name)
	if err != nil {
		return Translate("look for partition "+name, err)
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
		low, high := IDsFrom(from), IDsFrom(from.Add(Day))
		if skipped, err = defaultHolds(ctx, tx, t, low, high); err != nil || skipped {
			return err
		}
		// Made beside the table and then attached: CREATE TABLE … PARTITION OF would
		// lock the whole table against reading.
		_, err = tx.Exec(ctx, `select everpost_make_partition($1, $2, $3, $4)`, t.Table, name, low, high)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" {
		skipped, err = true, nil // a row of the day was inserted between the check and the lock
	}
	if err != nil {
		return Translate("make partition "+name, err)
	}
	if skipped {
		logger.WarnContext(ctx, "a day stays in the default partition, which holds rows of it", slog.String("partition", name))
	}
	return nil
}

// lockPartitions keeps other processes from making partitions, checks whether one of
// them has made this one, and bounds the wait for further locks.
func lockPartitions(ctx context.Context, tx pgx.Tx, name string) (exists bool, err error) {
	_, err = tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('everpost/partitions/' || current_schema(), 0))`)
	if err != nil {
		return false, err
	}
	if exists, err = tableExists(ctx, tx, name); err != nil || exists {
		return exists, err
	}
	_, err = tx.Exec(ctx, `set local lock_timeout = `+Milliseconds(attachLockTimeout))
	return false, err
}

// tableExists reports whether the current schema has the table.
func tableExists(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, name string,
) (exists bool, err error) {
	err = db.QueryRow(ctx, `select exists (select from pg_tables where schemaname = current_schema() and tablename = $1)`, name).Scan(&exists)
	return exists, err
}

// defaultHolds reports whether the DEFAULT partition has ids in [low, high).
func defaultHolds(ctx context.Context, tx pgx.Tx, t Partitioned, low, high uuid.UUID) (bool, error) {
	var name *string
	err := tx.QueryRow(ctx, `
		select c.relname from pg_partitioned_table p
		left join pg_class c on c.oid = p.partdefid
		where p.partrelid = to_regclass($1)`, Quote(t.Table)).Scan(&name)
	if IsNoRows(err) {
		return false, &webhook.Error{Code: webhook.CodeInternal, Message: "table " + t.Table + " is not there or not partitioned: is the database migrated?"}
	}
	if err != nil || name == nil {
		return false, err
	}
	var holds bool
	err = tx.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s where %s >= $1 and %[2]s < $2)`, Quote(*name), Quote(t.Column)),
		[16]byte(low), [16]byte(high)).Scan(&holds)
	return holds, err
}

// Quote quotes a name for SQL.
func Quote(name string) string { return pgx.Identifier{name}.Sanitize() }
