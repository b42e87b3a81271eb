package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	dropLockTimeout = 2 * time.Second // as attachLockTimeout: readers wait behind a waiting drop
	deleteBatch     = 5000
)

// Retained says what a retention run has removed.
type Retained struct {
	Days int   // dropped as a whole
	Rows int64 // deliveries that were deleted one by one, from days that are still needed
}

// Retain removes the events, deliveries and attempts of days that ended before
// keep ago. A day of which everything is finished is dropped, partitions and all,
// which costs the same however much it held. A day with open deliveries or dead
// letters keeps those, with their events and attempts; what is finished of it is
// deleted. Several processes may call it at once.
func (s *Store) Retain(ctx context.Context, now time.Time, keep time.Duration) (Retained, error) {
	days, err := s.daysBefore(ctx, now.Add(-keep))
	if err != nil {
		return Retained{}, translate("look for old days", err)
	}
	var (
		total  Retained
		failed []error
	)
	for _, suffix := range days {
		dropped, rows, err := s.retainDay(ctx, suffix)
		if err != nil {
			failed = append(failed, translate("remove day "+suffix, err))
		}
		if dropped {
			total.Days++
		}
		total.Rows += rows
	}
	return total, errors.Join(failed...)
}

// daysBefore are the days of partitions that ended by the time given, as their
// names end: 20261120.
func (s *Store) daysBefore(ctx context.Context, limit time.Time) ([]string, error) {
	rows, err := s.pool.Query(ctx, `select tablename from pg_tables where schemaname = current_schema() and tablename ~ '^deliveries_[0-9]{8}$' order by 1`)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var old []string
	for _, name := range names {
		suffix := strings.TrimPrefix(name, "deliveries_")
		if from, err := time.Parse("20060102", suffix); err == nil && !from.Add(day).After(limit) {
			old = append(old, suffix)
		}
	}
	return old, nil
}

func (s *Store) retainDay(ctx context.Context, suffix string) (dropped bool, rows int64, err error) {
	if dropped, err = s.dropDay(ctx, suffix); dropped || err != nil {
		return dropped, 0, err
	}
	for {
		n, err := s.deleteFinished(ctx, suffix)
		rows += n
		if err != nil || n < deleteBatch {
			return false, rows, errors.Join(err, s.deleteOrphans(ctx, suffix))
		}
	}
}

// dropDay drops the day's partitions unless something of it is still needed.
func (s *Store) dropDay(ctx context.Context, suffix string) (dropped bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = `+milliseconds(dropLockTimeout)); err != nil {
			return err
		}
		needed := false
		err := tx.QueryRow(ctx, fmt.Sprintf(`
			select exists (select from %[1]s where state in (0, 1, 2, 4))
			    or exists (select from outbox o where exists (select from %[2]s e where e.id = o.event_id))`,
			quote("deliveries_"+suffix), quote("events_"+suffix))).Scan(&needed)
		if err != nil || needed {
			return err
		}
		dropped = true
		_, err = tx.Exec(ctx, fmt.Sprintf(`drop table %s, %s, %s`, quote("attempts_"+suffix), quote("deliveries_"+suffix), quote("events_"+suffix)))
		return err
	})
	return dropped && err == nil, err
}

// deleteFinished deletes a batch of finished deliveries with their attempts.
func (s *Store) deleteFinished(ctx context.Context, suffix string) (int64, error) {
	tag, err := s.pool.Exec(ctx, fmt.Sprintf(`
		with finished as (select id from %[1]s where state in (3, 5, 6) limit %[3]d),
		     gone as (delete from %[2]s a using finished f where a.delivery_id = f.id)
		delete from %[1]s d using finished f where d.id = f.id`,
		quote("deliveries_"+suffix), quote("attempts_"+suffix), deleteBatch))
	return tag.RowsAffected(), err
}

// deleteOrphans deletes the day's events of which no delivery is left.
func (s *Store) deleteOrphans(ctx context.Context, suffix string) error {
	_, err := s.pool.Exec(ctx, fmt.Sprintf(`
		delete from %s e
		where not exists (select from %s d where d.event_id = e.id) and not exists (select from outbox o where o.event_id = e.id)`,
		quote("events_"+suffix), quote("deliveries_"+suffix)))
	return err
}
