package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/postgres"
)

const (
	maintainEvery = time.Hour
	maintainRetry = time.Minute
	// growthEvery is how often today's partitions are looked at.
	growthEvery = 5 * time.Second
)

// EnsurePartitions makes the partitions of events, deliveries and attempts from the
// day before now to three days after it, where they are missing. Days are in UTC;
// a partition is named after its day, as events_20261120. Several processes may call
// it at once: one makes the partitions while the others wait.
//
// A day of which the DEFAULT partition already holds rows cannot get a partition of
// its own: PostgreSQL does not attach one while the rows are elsewhere, and moving
// them would lock all tables. Such a day is skipped with a warning. Its rows stay in
// the DEFAULT partition, where they are found, indexed and unique like any others;
// only their retention costs a DELETE instead of a DROP.
//
// After an error the partitions already made stay, and those of the other tables are
// still made.
func (s *Retention) EnsurePartitions(ctx context.Context, now time.Time) error {
	return s.core.MakePartitions(ctx, now)
}

// AnalyzeGrown analyzes today's partitions that have grown, and returns how many.
func (s *Retention) AnalyzeGrown(ctx context.Context) (int, error) {
	return postgres.AnalyzeGrown(ctx, s.core)
}

// WatchGrowth has today's partitions analyzed as they grow, until ctx ends: plans that were made while they were empty are not kept for long.
func (s *Retention) WatchGrowth(ctx context.Context) {
	timer := time.NewTimer(growthEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait := growthEvery
		if _, err := s.AnalyzeGrown(ctx); err != nil && ctx.Err() == nil {
			wait = maintainRetry
			s.core.Log.WarnContext(ctx, "today's partitions were not analyzed", slog.Any("error", err), slog.Duration("retry_in", wait))
		}
		timer.Reset(wait)
	}
}

// Maintain makes partitions ahead of time and cancels the remaining deliveries of deleted
// endpoints, until ctx ends.
func (s *Retention) Maintain(ctx context.Context) {
	for {
		wait := maintainEvery
		if err := s.EnsurePartitions(ctx, s.core.Now()); err != nil && ctx.Err() == nil {
			s.core.Log.ErrorContext(ctx, "partitions were not made", slog.Any("error", err), slog.Duration("retry_in", maintainRetry))
			wait = maintainRetry
		}
		if err := s.deliveries.CancelRemaining(ctx); err != nil && ctx.Err() == nil {
			s.core.Log.ErrorContext(ctx, "deliveries of deleted endpoints were not all cancelled", slog.Any("error", err),
				slog.Duration("retry_in", maintainRetry))
			wait = maintainRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.deliveries.HasUncancelled():
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
