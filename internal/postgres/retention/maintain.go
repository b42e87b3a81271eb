package retention

import (
	"context"
	"log/slog"
	"time"
)

const (
	maintainEvery = time.Hour
	maintainRetry = time.Minute
)

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
	return s.core.MakePartitions(ctx, now)
}

// Maintain makes partitions ahead of time, and finishes the cancelling of what
// deleted endpoints left open, until ctx ends.
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
