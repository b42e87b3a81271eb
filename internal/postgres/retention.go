package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	dropLockTimeout = 2 * time.Second // as attachLockTimeout: readers wait behind a waiting drop
	// deleteBatch is how many rows go at a time: reckoned to be 10 to 20 ms of a core, for which others may have to wait.
	deleteBatch = 1000
)

// Retention makes the partitions of days to come and removes those whose retention has passed.
type Retention struct {
	*core

	deliveries *Deliveries
}

// Retained says what a retention run has removed.
type Retained struct {
	Days int   // dropped as a whole
	Rows int64 // deliveries that were deleted one by one, from days that are still needed
}

// Retain removes the events, deliveries and attempts of days that ended before
// keep ago. A day of which everything is finished is dropped, partitions and all,
// which costs the same however much it held. A day with open deliveries or dead
// letters keeps those, with their events and attempts; what is finished of it is
// deleted, as is what lies in the DEFAULT partitions. Several processes may call it
// at once.
func (s *Retention) Retain(ctx context.Context, now time.Time, keep time.Duration) (Retained, error) {
	days, err := s.daysBefore(ctx, now.Add(-keep))
	if err != nil {
		return Retained{}, translate("look for old days", err)
	}
	var (
		total  Retained
		failed []error
	)
	for _, d := range days {
		dropped, rows, err := s.retainDay(ctx, d)
		if err != nil {
			failed = append(failed, translate("remove day "+d.from.Format(time.DateOnly), err))
		}
		if dropped {
			total.Days++
		}
		total.Rows += rows
	}
	return total, errors.Join(failed...)
}

// oldDay is a day that is past its retention, and the tables that have a partition
// for it; the rows of the others lie in their DEFAULT partitions.
type oldDay struct {
	from   time.Time
	tables []string
}

// bounds are the day's ids as SQL: the smallest, and the smallest of the next day.
// Literals, so that the planner looks at the day's partitions only.
func (d oldDay) bounds() (low, high string) {
	return "'" + idsFrom(d.from).String() + "'::uuid", "'" + idsFrom(d.from.Add(day)).String() + "'::uuid"
}

// whole reports that nothing of the day lies in a DEFAULT partition.
func (d oldDay) whole() bool { return len(d.tables) == len(partitionedTables()) }

// daysBefore are the days that ended by the time given, the oldest first: those that
// a table has a partition for and those of which a DEFAULT partition holds rows.
func (s *Retention) daysBefore(ctx context.Context, limit time.Time) ([]oldDay, error) {
	days := map[time.Time]*oldDay{}
	add := func(from time.Time) *oldDay {
		if from.Add(day).After(limit) {
			return &oldDay{}
		}
		if days[from] == nil {
			days[from] = &oldDay{from: from}
		}
		return days[from]
	}
	names, err := queryAll(ctx, s.asWorker(), "read partitions", pgx.RowTo[string], `
		select tablename from pg_tables
		where schemaname = current_schema() and tablename ~ '^(events|deliveries|attempts)_[0-9]{8}$'`)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		table, suffix, _ := strings.Cut(name, "_")
		if from, err := time.Parse("20060102", suffix); err == nil {
			d := add(from)
			d.tables = append(d.tables, table)
		}
	}
	for _, t := range partitionedTables() {
		if err := s.daysInDefault(ctx, t, limit, func(from time.Time) { add(from) }); err != nil {
			return nil, err
		}
	}
	old := make([]oldDay, 0, len(days))
	for _, d := range days {
		old = append(old, *d)
	}
	slices.SortFunc(old, func(a, b oldDay) int { return a.from.Compare(b.from) })
	return old, nil
}

// daysInDefault goes from day to day through a table's DEFAULT partition, by its index.
func (s *Retention) daysInDefault(ctx context.Context, t partitioned, limit time.Time, found func(time.Time)) error {
	for next := time.UnixMilli(0); ; {
		ids, err := queryAll(ctx, s.asWorker(), "look into "+t.table+"_default", pgx.RowTo[[16]byte], fmt.Sprintf(
			`select %[1]s from %[2]s where %[1]s >= $1 order by %[1]s limit 1`, quote(t.column), quote(t.table+"_default")), [16]byte(idsFrom(next)))
		if err != nil || len(ids) == 0 {
			return err
		}
		from := timeOf(ids[0]).Truncate(day)
		if from.Add(day).After(limit) {
			return nil
		}
		found(from)
		next = from.Add(day)
	}
}

// timeOf is the time inside an id, to the millisecond: the reverse of idsFrom.
func timeOf(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC() //nolint:gosec // 48 bits
}

// unprepared is for a statement that is used once, with literals for the planner: prepared, it
// would take the place of one that is used all the time.
const unprepared = pgx.QueryExecModeExec

// restFactor is how much longer than a batch of deletions took the next one waits, so that
// they take a quarter of what one connection can.
const restFactor = 3

// rest lets others have the database after a batch that began at a time.
func rest(ctx context.Context, begun time.Time) error {
	pause := time.NewTimer(restFactor * time.Since(begun))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Retention) retainDay(ctx context.Context, d oldDay) (dropped bool, rows int64, err error) {
	if dropped, err = s.dropDay(ctx, d); err != nil || dropped && d.whole() {
		return dropped, 0, err
	}
	if rows, err = s.deleteFinished(ctx, d); err != nil {
		return dropped, rows, err
	}
	return dropped, rows, s.deleteOrphans(ctx, d)
}

// dropDay drops the day's partitions unless something of it is still needed. It
// looks twice: without locks, because that is the ordinary end, and with locks on
// everything that could make a delivery open again.
func (s *Retention) dropDay(ctx context.Context, d oldDay) (dropped bool, err error) {
	if len(d.tables) == 0 {
		return false, nil
	}
	err = s.asWorker().inTx(ctx, "drop partitions", func(ctx context.Context, tx pgx.Tx) error {
		if needed, err := neededDay(ctx, tx, d); err != nil || needed {
			return err
		}
		// Of the tables first, then of their partitions, in the order in which the
		// group commits use them: any other could deadlock with a reader or a flush.
		var partitions []string
		for _, table := range []string{"deliveries", "attempts", "events"} {
			if slices.Contains(d.tables, table) {
				partitions = append(partitions, table+"_"+d.from.Format("20060102"))
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`
			set local lock_timeout = %s;
			lock table only deliveries, only attempts, only events in access exclusive mode`, milliseconds(dropLockTimeout)))
		if err != nil {
			return err
		}
		if needed, err := neededDay(ctx, tx, d); err != nil || needed {
			return err
		}
		dropped = true
		_, err = tx.Exec(ctx, `select everpost_drop_partitions($1)`, partitions)
		return err
	})
	return dropped && err == nil, err
}

// neededDay reports whether something of the day is open, a dead letter or not begun.
// Each question has an index, because one round of them is asked under the lock.
func neededDay(ctx context.Context, tx pgx.Tx, d oldDay) (needed bool, err error) {
	low, high := d.bounds()
	err = tx.QueryRow(ctx, fmt.Sprintf(`
		select exists (select from deliveries where id >= %[1]s and id < %[2]s and state < 3)
		    or exists (select from deliveries where id >= %[1]s and id < %[2]s and state = 4)
		    or exists (select from outbox where delivery_id >= %[1]s and delivery_id < %[2]s)`, low, high), unprepared).Scan(&needed)
	return needed, err
}

// deleteFinished deletes the day's finished deliveries with their attempts, a batch
// at a time in the order of the ids, so that none goes over what the one before it
// has left dead. What is locked is being replayed and stays.
func (s *Retention) deleteFinished(ctx context.Context, d oldDay) (total int64, err error) {
	_, high := d.bounds()
	for after := idsFrom(d.from); ; {
		begun := time.Now()
		low := "'" + after.String() + "'::uuid"
		gone, err := queryAll(ctx, s.asWorker(), "delete finished deliveries", pgx.RowTo[[16]byte], fmt.Sprintf(`
			with finished as (
				select id from deliveries where id > %[1]s and id < %[2]s and state in (3, 5, 6) order by id limit %[3]d for update skip locked),
			gone as (
				delete from attempts a using finished f where a.delivery_id = f.id and a.delivery_id > %[1]s and a.delivery_id < %[2]s)
			delete from deliveries d using finished f where d.id = f.id and d.id > %[1]s and d.id < %[2]s and d.state in (3, 5, 6)
			returning d.id`, low, high, deleteBatch), unprepared)
		total += int64(len(gone))
		if err != nil || len(gone) == 0 {
			return total, err
		}
		after = slices.MaxFunc(gone, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
		if err := rest(ctx, begun); err != nil {
			return total, err
		}
	}
}

// deleteOrphans deletes the day's events of which no delivery is left, and the
// attempts in the DEFAULT partition whose deliveries were dropped with theirs.
func (s *Retention) deleteOrphans(ctx context.Context, d oldDay) error {
	err := s.sweepDay(ctx, d, "events", "id", `
		delete from events e where e.id = any($1) and e.id >= $2 and e.id < $3
			and not exists (select from deliveries d where d.event_id = e.id and d.id >= $2 and d.id < $3)
			and not exists (select from outbox o where o.event_id = e.id and o.delivery_id >= $2 and o.delivery_id < $3)`)
	if err != nil || slices.Contains(d.tables, "attempts") {
		return err
	}
	return s.sweepDay(ctx, d, "attempts", "delivery_id", `
		delete from attempts a where a.delivery_id = any($1) and a.delivery_id >= $2 and a.delivery_id < $3
			and not exists (select from deliveries d where d.id = a.delivery_id)`)
}

// sweepDay runs a DELETE over the ids $1 of a day's table, a batch at a time. $2 and
// $3 bound the batch's ids by whole milliseconds: an event and its deliveries share
// theirs.
func (s *Retention) sweepDay(ctx context.Context, d oldDay, table, column, sql string) error {
	_, high := d.bounds()
	for after := idsFrom(d.from); ; {
		begun := time.Now()
		ids, err := queryAll(ctx, s.asWorker(), "read old "+table, pgx.RowTo[[16]byte], fmt.Sprintf(
			`select distinct %[1]s from %[2]s where %[1]s > '%[3]s'::uuid and %[1]s < %[4]s order by 1 limit %[5]d`,
			quote(column), quote(table), after, high, deleteBatch), unprepared)
		if err != nil || len(ids) == 0 {
			return err
		}
		first, last := timeOf(ids[0]), timeOf(ids[len(ids)-1])
		err = s.asWorker().withConn(ctx, "delete old "+table, func(ctx context.Context, conn querier) error {
			_, err := conn.Exec(ctx, sql, ids, [16]byte(idsFrom(first)), [16]byte(idsFrom(last.Add(time.Millisecond))))
			return err
		})
		if err != nil || len(ids) < deleteBatch {
			return err
		}
		after = ids[len(ids)-1]
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}
