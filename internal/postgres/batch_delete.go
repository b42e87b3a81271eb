package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Unprepared is for a statement that is used once, with literals for the planner: prepared, it
// would take the place of one that is used all the time.
const Unprepared = pgx.QueryExecModeExec

// restFactor is how much longer than a batch of deletions took the next one waits, so that
// they take a quarter of what one connection can.
const restFactor = 3

// Rest lets others have the database after a batch that began at a time.
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

// DeleteBatch is how many rows go at a time: reckoned to be 10 to 20 ms of a core, for which others may have to wait.
const DeleteBatch = 1000
