package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/webhook"
)

const daysBehind = 1 // a process whose clock is behind still writes yesterday's ids

const daysAhead = 3 // for how many days maintenance may fail before rows go to the DEFAULT partition

// PartitionLockTimeout bounds the wait for the exclusive lock with which a partition is attached or
// dropped. Readers of all days queue behind the wait, so it ends soon and is tried again later.
const PartitionLockTimeout = 2 * time.Second

// Day is the span of a partition.
const Day = 24 * time.Hour

// Partitioned is a table that migrations make partitioned by range, with a DEFAULT partition.
type Partitioned struct {
	Table, Column string
	Span          time.Duration // of a partition
	ByTime        bool          // the column is a time, else an id that begins with one
	Keep          time.Duration // how long rows are kept; 0: it depends on the row
}

// PartitionedTables are the tables of deliveries.
func PartitionedTables() []Partitioned {
	return []Partitioned{
		{Table: "events", Column: "id", Span: Day}, {Table: "deliveries", Column: "id", Span: Day}, {Table: "attempts", Column: "delivery_id", Span: Day},
	}
}

// StatisticsTables are the tables of statistics. Those of hours have few rows.
func StatisticsTables() []Partitioned {
	return []Partitioned{
		{Table: "statistics_minutes", Column: "at", Span: Day, ByTime: true, Keep: webhook.MinutesKept},
		{Table: "statistics_hours", Column: "at", Span: 7 * Day, ByTime: true, Keep: webhook.HoursKept},
	}
}

// MakePartitions makes the partitions of the days around now, in the worker's role.
func (s *Core) MakePartitions(ctx context.Context, now time.Time) error {
	return ensurePartitions(ctx, s.WorkPool, s.Log, now)
}

func ensurePartitions(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, now time.Time) error {
	today := now.UTC().Truncate(Day)
	first, last := today.Add(-daysBehind*Day), today.Add(daysAhead*Day)
	var failed []error
	for _, t := range append(PartitionedTables(), StatisticsTables()...) {
		for from := first.Truncate(t.Span); !from.After(last); from = from.Add(t.Span) {
			if err := ensurePartition(ctx, pool, logger, t.partition(from)); err != nil {
				failed = append(failed, err)
				break // the table's other partitions would fail, too
			}
		}
	}
	return errors.Join(failed...)
}

// partition is one to be made, of the values from low until before high.
type partition struct {
	table, column string
	name          string
	low, high     any
	function      string // makes it as a separate table and then attaches it
}

func (t Partitioned) partition(from time.Time) partition {
	p := partition{
		table: t.Table, column: t.Column, name: t.Table + "_" + from.Format("20060102"),
		low: from, high: from.Add(t.Span), function: "everpost_make_statistics_partition",
	}
	if !t.ByTime {
		p.low, p.high, p.function = [16]byte(IDsFrom(from)), [16]byte(IDsFrom(from.Add(t.Span))), "everpost_make_partition"
	}
	return p
}

// ensurePartition makes one partition in a transaction of its own, so that its
// locks are held as shortly as possible.
func ensurePartition(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, p partition) error {
	exists, err := tableExists(ctx, pool, p.name)
	if err != nil {
		return Translate("look for partition "+p.name, err)
	}
	if exists {
		return nil // the ordinary case needs no lock
	}
	var skipped bool
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		exists, err := lockPartitions(ctx, tx, p.name)
		if err != nil || exists {
			return err
		}
		if skipped, err = defaultHolds(ctx, tx, p); err != nil || skipped {
			return err
		}
		// Made as a separate table and then attached: CREATE TABLE … PARTITION OF would
		// lock the whole table against reading.
		_, err = tx.Exec(ctx, `select `+p.function+`($1, $2, $3, $4)`, p.table, p.name, p.low, p.high)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" {
		skipped, err = true, nil // a row of the day was inserted between the check and the lock
	}
	if err != nil {
		return Translate("make partition "+p.name, err)
	}
	if skipped {
		logger.WarnContext(ctx, "a day stays in the default partition, which holds rows of it", slog.String("partition", p.name))
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
	_, err = tx.Exec(ctx, `set local lock_timeout = `+Milliseconds(PartitionLockTimeout))
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

// defaultHolds reports whether the DEFAULT partition has rows that belong into the partition.
func defaultHolds(ctx context.Context, tx pgx.Tx, p partition) (bool, error) {
	var name *string
	err := tx.QueryRow(ctx, `
		select c.relname from pg_partitioned_table p
		left join pg_class c on c.oid = p.partdefid
		where p.partrelid = to_regclass($1)`, Quote(p.table)).Scan(&name)
	if IsNoRows(err) {
		return false, &webhook.Error{Code: webhook.CodeInternal, Message: "table " + p.table + " is not there or not partitioned: is the database migrated?"}
	}
	if err != nil || name == nil {
		return false, err
	}
	var holds bool
	err = tx.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s where %s >= $1 and %[2]s < $2)`, Quote(*name), Quote(p.column)), p.low, p.high).
		Scan(&holds)
	return holds, err
}

// Quote quotes a name for SQL.
func Quote(name string) string { return pgx.Identifier{name}.Sanitize() }
