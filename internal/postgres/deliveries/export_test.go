// Names for the tests, which are in a package of their own.

package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Deliveries) FlushClaims(ctx context.Context, items []*claiming) error {
	return s.flushClaims(ctx, items)
}
func (s *Deliveries) FlushRecords(ctx context.Context, items []*recording) error {
	return s.flushRecords(ctx, items)
}

type Claiming = claiming

const CommandTurns = commandTurns
const ExpiredAfter = expiredAfter

var ListDeliveries = listDeliveries

const MaxSignalDoublings = maxSignalDoublings
const OverdueAfter = overdueAfter
const RecordWeight = recordWeight

type Recording = recording

const (
	TenantsOfLane = tenantsOfLane
	CountPage     = countPage
	ExpiredTurns  = expiredTurns
)

func Release(ctx context.Context, tx pgx.Tx, now time.Time, held []webhook.Delivery) error {
	_, err := release(ctx, tx, now, held, insertReleasedRows)
	return err
}

// NoteHolds is the statement with which holds note themselves.
const NoteHolds = noteHolds

// AnyExpired is the statement that finds what has expired.
const AnyExpired = anyExpired
