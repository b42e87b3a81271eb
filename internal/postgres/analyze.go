package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// analyzeEvery is how often partitioned tables are analyzed, a little less than a day, so that an hourly look does so daily.
	analyzeEvery = Day - 30*time.Minute
	// analyzeTimeout bounds one table. A sample of each of 36 full partitions takes some seconds of a core, and about a minute with its pauses.
	analyzeTimeout = 5 * time.Minute
)

// Analyze analyzes the partitioned tables that have not been analyzed within a day, by any process: autovacuum only analyzes their partitions.
// No statement needs these statistics to be fast; they keep the planner from guessing about a table as a whole.
//
// It samples and pauses, and locks against nothing but partitions being dropped or attached.
func (s *Core) Analyze(ctx context.Context) error { return analyze(ctx, s.WorkPool, analyzeEvery) }

func analyze(ctx context.Context, pool *pgxpool.Pool, every time.Duration) error {
	var failed []error
	for _, t := range append(PartitionedTables(), StatisticsTables()...) {
		_, err := analyzeOne(ctx, pool, t.Table, `select everpost_analyze($1, $2::bigint * interval '1 millisecond')`, every.Milliseconds())
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// AnalyzeGrown analyzes today's partitions that have grown eightfold since they were analyzed, and returns how many: plans that were made while
// they were empty end with that.
//
// It reads three rows of pg_class, and samples up to 30,000 rows of each partition that has grown, with pauses: four times a day, for one that
// becomes large.
func AnalyzeGrown(ctx context.Context, s *Core) (n int, err error) {
	today := s.Now().UTC().Truncate(Day)
	var failed []error
	for _, t := range PartitionedTables() {
		grown, err := analyzeOne(ctx, s.WorkPool, t.Table, `select everpost_analyze_grown($1, $2)`, today)
		if failed = append(failed, err); grown {
			n++
		}
	}
	return n, errors.Join(failed...)
}

// analyzeOne analyzes a table, or a partition of it, by a function that says whether it has.
func analyzeOne(ctx context.Context, pool *pgxpool.Pool, table, function string, arg any) (analyzed bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `set local statement_timeout = `+Milliseconds(analyzeTimeout)+`; set local lock_timeout = `+Milliseconds(PartitionLockTimeout))
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, function, table, arg).Scan(&analyzed)
	})
	return analyzed, Translate("analyze "+table, err)
}

// LockAgainstAnalysis takes the lock that Analyze holds, for a transaction that is about to drop a partition: it would wait for the analysis,
// and everybody else for it. ok is false while an analysis is under way.
func LockAgainstAnalysis(ctx context.Context, tx pgx.Tx) (ok bool, err error) {
	err = tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(hashtextextended('everpost/analyze/' || current_schema(), 0))`).Scan(&ok)
	return ok, err
}
