// Package retention removes events, deliveries and attempts after their retention: day by day (retention.go), and of tenants that
// have their own in batches (tenant.go). It makes the partitions of the next days.
package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// Retention makes the partitions of the next days and removes those whose retention has passed.
type Retention struct {
	core *postgres.Core

	deliveries *deliveries.Deliveries

	tenants       sync.Mutex          // guards what follows, and is held during a run of RetainTenants
	tenantBatches int                 // see there
	unfinished    map[string][16]byte // where the next run goes on, by tenant and part
}

// New makes a Retention.
func New(s *postgres.Core, deliveries *deliveries.Deliveries) *Retention {
	return &Retention{core: s, deliveries: deliveries, tenantBatches: tenantBatches, unfinished: map[string][16]byte{}}
}

// Retained is what a retention run has removed.
type Retained struct {
	Days int   // dropped as whole partitions
	Rows int64 // deliveries deleted one by one, from days that still hold others
}

// Retain removes the events, deliveries and attempts of days that ended before now - keep.
// If all deliveries of a day are finished, its partitions are dropped, which costs the same
// however many rows they hold. A day with open deliveries or dead letters keeps those, with
// their events and attempts; its finished deliveries are deleted row by row, as are the rows
// in the DEFAULT partitions. Several processes may call it at once.
func (s *Retention) Retain(ctx context.Context, now time.Time, keep time.Duration) (Retained, error) {
	days, err := s.daysBefore(ctx, now.Add(-keep))
	if err != nil {
		return Retained{}, postgres.Translate("look for old days", err)
	}
	var (
		total  Retained
		failed []error
	)
	for _, d := range days {
		dropped, rows, err := s.retainDay(ctx, d)
		if err != nil {
			failed = append(failed, postgres.Translate("remove day "+d.From.Format(time.DateOnly), err))
		}
		if dropped {
			total.Days++
		}
		total.Rows += rows
	}
	return total, errors.Join(failed...)
}

// oldDay is a day past its retention, and the tables that have a partition for it. Its rows
// of the other tables are in their DEFAULT partitions.
type oldDay struct {
	From   time.Time
	Tables []string
}

// bounds are the smallest id of the day and of the next day, as SQL literals, so that the
// planner reads only the day's partitions.
func (d oldDay) bounds() (low, high string) {
	return "'" + postgres.IDsFrom(d.From).String() + "'::uuid", "'" + postgres.IDsFrom(d.From.Add(postgres.Day)).String() + "'::uuid"
}

// whole reports whether every table has a partition for the day.
func (d oldDay) whole() bool { return len(d.Tables) == len(postgres.PartitionedTables()) }

// daysBefore returns the days that ended by limit, oldest first: those that a table has a
// partition for and those of which a DEFAULT partition holds rows.
func (s *Retention) daysBefore(ctx context.Context, limit time.Time) ([]oldDay, error) {
	days := map[time.Time]*oldDay{}
	add := func(from time.Time) *oldDay {
		if from.Add(postgres.Day).After(limit) {
			return &oldDay{}
		}
		if days[from] == nil {
			days[from] = &oldDay{From: from}
		}
		return days[from]
	}
	names, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read partitions", pgx.RowTo[string], `
		select tablename from pg_tables
		where schemaname = current_schema() and tablename ~ '^(events|deliveries|attempts)_[0-9]{8}$'`)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		table, suffix, _ := strings.Cut(name, "_")
		if from, err := time.Parse("20060102", suffix); err == nil {
			d := add(from)
			d.Tables = append(d.Tables, table)
		}
	}
	for _, t := range postgres.PartitionedTables() {
		if err := s.daysInDefault(ctx, t, limit, func(from time.Time) { add(from) }); err != nil {
			return nil, err
		}
	}
	old := make([]oldDay, 0, len(days))
	for _, d := range days {
		old = append(old, *d)
	}
	slices.SortFunc(old, func(a, b oldDay) int { return a.From.Compare(b.From) })
	return old, nil
}

// daysInDefault calls found for each day until limit that a table's DEFAULT partition has rows of.
func (s *Retention) daysInDefault(ctx context.Context, t postgres.Partitioned, limit time.Time, found func(time.Time)) error {
	for next := time.UnixMilli(0); ; {
		ids, err := postgres.QueryAll(ctx, s.core.AsWorker(), "look into "+t.Table+"_default", pgx.RowTo[[16]byte], fmt.Sprintf(
			`select %[1]s from %[2]s where %[1]s >= $1 order by %[1]s limit 1`, postgres.Quote(t.Column), postgres.Quote(t.Table+"_default")),
			[16]byte(postgres.IDsFrom(next)))
		if err != nil || len(ids) == 0 {
			return err
		}
		from := postgres.TimeOf(ids[0]).Truncate(postgres.Day)
		if from.Add(postgres.Day).After(limit) {
			return nil
		}
		found(from)
		next = from.Add(postgres.Day)
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

// dropDay drops the day's partitions unless some of their rows are still needed. It checks
// twice: without locks, which usually settles it, and with locks on every table that could
// reopen a delivery.
func (s *Retention) dropDay(ctx context.Context, d oldDay) (dropped bool, err error) {
	if len(d.Tables) == 0 {
		return false, nil
	}
	err = s.core.AsWorker().InTx(ctx, "drop partitions", func(ctx context.Context, tx pgx.Tx) error {
		if needed, err := neededDay(ctx, tx, d); err != nil || needed {
			return err
		}
		switch ok, err := postgres.LockAgainstAnalysis(ctx, tx); {
		case err != nil:
			return err
		case !ok:
			return &webhook.Error{Code: webhook.CodeUnavailable, Message: "the tables are being analyzed", RetryAfter: time.Minute}
		}
		// The tables are locked first, then their partitions, in the order in which the group
		// commits use them: any other order could deadlock with a reader or a flush.
		var partitions []string
		for _, table := range []string{"deliveries", "attempts", "events"} {
			if slices.Contains(d.Tables, table) {
				partitions = append(partitions, table+"_"+d.From.Format("20060102"))
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`
			set local lock_timeout = %s;
			lock table only deliveries, only attempts, only events in access exclusive mode`, postgres.Milliseconds(postgres.PartitionLockTimeout)))
		if err != nil {
			return err
		}
		if needed, err := neededDay(ctx, tx, d); err != nil || needed {
			return err
		}
		dropped = true
		if _, err = tx.Exec(ctx, `select everpost_drop_partitions($1)`, partitions); err != nil {
			return err
		}
		failpoint.Hit("retention-before")
		return nil
	})
	return dropped && err == nil, err
}

// neededDay reports whether the day has deliveries that are open, dead letters or in the outbox.
// An index serves each subquery, because the second check runs under the lock.
func neededDay(ctx context.Context, tx pgx.Tx, d oldDay) (needed bool, err error) {
	low, high := d.bounds()
	err = tx.QueryRow(ctx, fmt.Sprintf(`
		select exists (select from deliveries where id >= %[1]s and id < %[2]s and state `+postgres.IsOpen+`)
		    or exists (select from deliveries where id >= %[1]s and id < %[2]s and state = `+postgres.DeadLettered+`)
		    or exists (select from outbox where delivery_id >= %[1]s and delivery_id < %[2]s)`, low, high), postgres.Unprepared).Scan(&needed)
	return needed, err
}

// deleteFinished deletes the day's finished deliveries with their attempts, a batch at a time
// in the order of their ids, so that no batch scans the dead rows of the previous one. It skips
// locked deliveries: they are being replayed.
func (s *Retention) deleteFinished(ctx context.Context, d oldDay) (total int64, err error) {
	_, high := d.bounds()
	after := postgres.IDsFrom(d.From)
	err = postgres.InBatches(ctx, func() (bool, error) {
		low := "'" + after.String() + "'::uuid"
		gone, err := postgres.QueryAll(ctx, s.core.AsWorker(), "delete finished deliveries", pgx.RowTo[[16]byte], fmt.Sprintf(`
			with finished as (
				select id from deliveries where id > %[1]s and id < %[2]s and state `+postgres.IsFinished+` order by id limit %[3]d for update skip locked),
			gone as (
				delete from attempts a using finished f where a.delivery_id = f.id and a.delivery_id > %[1]s and a.delivery_id < %[2]s)
			delete from deliveries d using finished f where d.id = f.id and d.id > %[1]s and d.id < %[2]s and d.state `+postgres.IsFinished+`
			returning d.id`, low, high, postgres.DeleteBatch), postgres.Unprepared)
		total += int64(len(gone))
		if err != nil || len(gone) == 0 {
			return false, err
		}
		failpoint.Hit("retention-after")
		after = slices.MaxFunc(gone, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
		return true, nil
	})
	return total, err
}

// deleteOrphans deletes the day's events without deliveries, and the attempts in the DEFAULT
// partition whose deliveries were dropped with a partition.
func (s *Retention) deleteOrphans(ctx context.Context, d oldDay) error {
	err := s.sweepDay(ctx, d, "events", "id", `
		delete from events e where e.id = any($1) and e.id >= $2 and e.id < $3
			and not exists (select from deliveries d where d.event_id = e.id and d.id >= $2 and d.id < $3)
			and not exists (select from outbox o where o.event_id = e.id and o.delivery_id >= $2 and o.delivery_id < $3)`)
	if err != nil || slices.Contains(d.Tables, "attempts") {
		return err
	}
	return s.sweepDay(ctx, d, "attempts", "delivery_id", `
		delete from attempts a where a.delivery_id = any($1) and a.delivery_id >= $2 and a.delivery_id < $3
			and not exists (select from deliveries d where d.id = a.delivery_id)`)
}

// sweepDay runs a DELETE for the ids of a day's table, $1, a batch at a time. $2 and $3 bound
// the batch's ids by whole milliseconds: the ids of an event and its deliveries have the same
// millisecond.
func (s *Retention) sweepDay(ctx context.Context, d oldDay, table, column, sql string) error {
	_, high := d.bounds()
	after := postgres.IDsFrom(d.From)
	return postgres.InBatches(ctx, func() (bool, error) {
		ids, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read old "+table, pgx.RowTo[[16]byte], fmt.Sprintf(
			`select distinct %[1]s from %[2]s where %[1]s > '%[3]s'::uuid and %[1]s < %[4]s order by 1 limit %[5]d`,
			postgres.Quote(column), postgres.Quote(table), after, high, postgres.DeleteBatch), postgres.Unprepared)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		first, last := postgres.TimeOf(ids[0]), postgres.TimeOf(ids[len(ids)-1])
		err = s.core.AsWorker().WithConn(ctx, "delete old "+table, func(ctx context.Context, conn postgres.Querier) error {
			_, err := conn.Exec(ctx, sql, ids, [16]byte(postgres.IDsFrom(first)), [16]byte(postgres.IDsFrom(last.Add(time.Millisecond))))
			return err
		})
		after = ids[len(ids)-1]
		return len(ids) >= postgres.DeleteBatch, err
	})
}
