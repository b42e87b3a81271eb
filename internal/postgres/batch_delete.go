package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Unprepared is the mode for a statement that is used once, with literals for the planner. Prepared,
// it would push a statement in constant use out of the driver's cache.
const Unprepared = pgx.QueryExecModeExec

// restFactor is the pause after a batch of deletions, as a multiple of the time that the batch
// took: deletions use a quarter of one connection's time.
const restFactor = 3

// Rest pauses after a batch that began at begun, so that other work gets the database.
func Rest(ctx context.Context, begun time.Time) error {
	pause := time.NewTimer(restFactor * time.Since(begun))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// InBatches calls batch as long as there is more, with a Rest after each.
func InBatches(ctx context.Context, batch func() (more bool, err error)) error {
	for {
		begun := time.Now()
		if more, err := batch(); err != nil || !more {
			return err
		}
		if err := Rest(ctx, begun); err != nil {
			return err
		}
	}
}

// DeleteBatch is how many rows are deleted at a time: an estimated 10 to 20 ms of a core, for which other statements may wait.
const DeleteBatch = 1000
