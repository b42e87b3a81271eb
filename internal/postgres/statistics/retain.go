package statistics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// sumUpAfter is when an hour is summed up: when no process writes to its minutes any more. They
	// drop what they could not write for 24 h.
	sumUpAfter = 25 * time.Hour
	// writerKept is how long the last flush of a process is kept: longer than it may be
	// written again.
	writerKept = 48 * time.Hour
	// pairsAtATime bounds a statement that sums up.
	pairsAtATime = 1000
	// tenantKept is how long the statistics of a deleted tenant stay at least: longer than a flush
	// takes that has counted the tenant's last deliveries.
	tenantKept = 10 * time.Minute
)

// RetainStatistics sums up the hours that are complete, drops the partitions of minutes and hours
// that are past their time, and removes what is left of deleted tenants. It returns how many
// partitions it has dropped. Several processes may call it at once.
func (s *Statistics) RetainStatistics(ctx context.Context, now time.Time) (dropped int, err error) {
	if err := s.sumUp(ctx, now); err != nil {
		return 0, err // what is not summed up must not be dropped
	}
	dropped, err = s.dropOld(ctx, now)
	return dropped, errors.Join(err, s.removeRemains(ctx, now), s.removeDeletedTenants(ctx))
}

// sumUp writes the hours that are complete.
func (s *Statistics) sumUp(ctx context.Context, now time.Time) error {
	for {
		hour, found, err := s.nextHour(ctx)
		if err != nil || !found || hour.Add(time.Hour).After(now.Add(-sumUpAfter)) {
			return err
		}
		if err := s.sumUpHour(ctx, hour); err != nil {
			return err
		}
	}
}

// pair is what statistics are counted of: an endpoint, all of a tenant if that is zero, or everything if both are.
type pair struct {
	Tenant   string
	Endpoint [16]byte
}

// sumUpHour sums up an hour, pairsAtATime pairs in each statement. The row of the whole installation comes last, because it says
// that the hour is summed up. Another process may do the same at the same time.
func (s *Statistics) sumUpHour(ctx context.Context, hour time.Time) error {
	var last pair
	for more := true; more; {
		var page []pair
		err := s.core.AsWorker().ByIndex().WithConn(ctx, "sum up statistics", func(ctx context.Context, conn postgres.Querier) error {
			day := hour.UTC().Truncate(24 * time.Hour)
			rows, err := conn.Query(ctx, addPairs, hour, hour.Add(time.Hour), day, day.Add(24*time.Hour), last.Tenant, last.Endpoint, pairsAtATime)
			if err != nil {
				return err
			}
			page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[pair])
			return err
		})
		if err != nil {
			return err
		}
		if more = len(page) == pairsAtATime; more {
			last = page[len(page)-1]
		}
	}
	return s.core.AsWorker().WithConn(ctx, "sum up statistics", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, addTotal, hour, hour.Add(time.Hour))
		return err
	})
}

// nextHour is the first hour with counts after those that are summed up. It looks at the rows of the
// whole installation: there is one wherever there is any other.
func (s *Statistics) nextHour(ctx context.Context) (hour time.Time, found bool, err error) {
	var first *time.Time
	err = s.core.AsWorker().WithConn(ctx, "look for statistics", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `
			select min(at) from statistics_minutes where tenant_id = '' and endpoint_id = $1 and at >= coalesce(
				(select max(at) + interval '1 hour' from statistics_hours where tenant_id = '' and endpoint_id = $1), '-infinity')`,
			webhook.EndpointID{}).Scan(&first)
	})
	return postgres.OrZero(first).Truncate(time.Hour), first != nil, err
}

//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	// addPairs sums up the hour from $1 to $2 of the next pairs after ($5, $6), and returns these pairs. They are those of the day from $3
	// to $4, each found by one look into the primary key: so it reads and writes some 30 blocks for each pair, whatever the
	// number of pairs and of days.
	addPairs = `
	with recursive page (tenant, endpoint, n) as (
		(select tenant_id, endpoint_id, 1 from statistics_minutes
			where at >= $3 and at < $4 and (tenant_id, endpoint_id) > ($5, $6) order by tenant_id, endpoint_id limit 1)
		union all
		(select next.tenant_id, next.endpoint_id, p.n + 1 from page p, lateral (
			select m.tenant_id, m.endpoint_id from statistics_minutes m
			where m.at >= $3 and m.at < $4 and (m.tenant_id, m.endpoint_id) > (p.tenant, p.endpoint) order by m.tenant_id, m.endpoint_id limit 1) next
		where p.n < $7)),
	added as (
		insert into statistics_hours (tenant_id, endpoint_id, at, ` + columns + `)
		select p.tenant, p.endpoint, $1, hour.* from page p, lateral (
			select ` + summedUp + ` from statistics_minutes m
			where m.tenant_id = p.tenant and m.endpoint_id = p.endpoint and m.at >= $1 and m.at < $2 having count(*) > 0) hour
		order by 1, 2
		on conflict do nothing)
	select tenant, endpoint from page order by n`

	// addTotal sums up the hour of the whole installation.
	addTotal = `
	insert into statistics_hours (tenant_id, endpoint_id, at, ` + columns + `)
	select m.tenant_id, m.endpoint_id, $1, ` + summedUp + ` from statistics_minutes m
	where m.tenant_id = '' and m.endpoint_id = '00000000-0000-0000-0000-000000000000' and m.at >= $1 and m.at < $2 group by 1, 2
	on conflict do nothing`
)

// dropOld drops the partitions that have ended too long ago.
func (s *Statistics) dropOld(ctx context.Context, now time.Time) (dropped int, err error) {
	names, err := postgres.QueryAll(ctx, s.core.AsWorker(), "read partitions", pgx.RowTo[string], `
		select tablename::text from pg_tables
		where schemaname = current_schema() and tablename ~ '^statistics_(minutes|hours)_[0-9]{8}$' order by 1`)
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, t := range postgres.StatisticsTables() {
		for _, name := range names {
			suffix, ofTable := strings.CutPrefix(name, t.Table+"_")
			from, err := time.Parse("20060102", suffix)
			if !ofTable || err != nil || from.Add(t.Span).After(now.Add(-t.Keep)) {
				continue
			}
			if err := s.drop(ctx, name); err != nil {
				failed = append(failed, err)
				continue
			}
			dropped++
		}
	}
	return dropped, errors.Join(failed...)
}

func (s *Statistics) drop(ctx context.Context, name string) error {
	return s.core.AsWorker().InTx(ctx, "drop partition "+name, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = `+postgres.Milliseconds(postgres.PartitionLockTimeout)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `select everpost_drop_partitions($1)`, []string{name})
		return err
	})
}

// removeRemains removes old rows that are in no partition of their own, and the last flushes of
// processes that have ended.
func (s *Statistics) removeRemains(ctx context.Context, now time.Time) error {
	limit := func(t postgres.Partitioned) time.Time { return now.Add(-t.Keep).UTC().Truncate(t.Span) }
	tables := postgres.StatisticsTables()
	return s.core.AsWorker().WithConn(ctx, "remove old statistics", func(ctx context.Context, conn postgres.Querier) error {
		batch := &pgx.Batch{}
		batch.Queue(`delete from statistics_minutes where at < $1`, limit(tables[0]))
		batch.Queue(`delete from statistics_hours where at < $1`, limit(tables[1]))
		batch.Queue(`delete from statistics_writers where written_at < now() - $1::bigint * interval '1 millisecond'`, writerKept.Milliseconds())
		return conn.SendBatch(ctx, batch).Close()
	})
}

// removeDeletedTenants removes the statistics of deleted tenants, so that their ids can be used again.
func (s *Statistics) removeDeletedTenants(ctx context.Context) error {
	ids, err := postgres.QueryAll(ctx, s.core.AsWorker(), "look for deleted tenants", pgx.RowTo[string], `
		select id from deleted_tenants d where deleted_at < now() - $1::bigint * interval '1 millisecond'
		and (exists (select from statistics_minutes m where m.tenant_id = d.id) or exists (select from statistics_hours h where h.tenant_id = d.id))`,
		tenantKept.Milliseconds())
	if err != nil {
		return err
	}
	for _, id := range ids {
		for _, statement := range []string{
			`delete from statistics_minutes where (tenant_id, endpoint_id, at) in (
				select tenant_id, endpoint_id, at from statistics_minutes where tenant_id = $1 limit $2)`,
			`delete from statistics_hours where (tenant_id, endpoint_id, at) in (
				select tenant_id, endpoint_id, at from statistics_hours where tenant_id = $1 limit $2)`,
		} {
			if err := s.deleteInBatches(ctx, statement, id); err != nil {
				return fmt.Errorf("remove the statistics of a deleted tenant: %w", err)
			}
		}
	}
	return nil
}

// deleteInBatches repeats a statement until it deletes less than a batch.
func (s *Statistics) deleteInBatches(ctx context.Context, statement, tenantID string) error {
	return postgres.InBatches(ctx, func() (more bool, err error) {
		err = s.core.AsWorker().WithConn(ctx, "remove statistics", func(ctx context.Context, conn postgres.Querier) error {
			tag, err := conn.Exec(ctx, statement, tenantID, postgres.DeleteBatch)
			more = tag.RowsAffected() >= postgres.DeleteBatch
			return err
		})
		return more, err
	})
}
