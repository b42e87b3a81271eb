package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// expireEvery is how often held deliveries are looked for that are to be given up, and expireBatches how many batches a round starts: of 100, and up
	// to 200 while tenants take turns.
	expireEvery   = time.Second
	expireBatches = 8
)

// Expired finds held deliveries that are to be given up.
type Expired interface {
	// ReleaseExpired releases held deliveries whose give-up time has passed.
	ReleaseExpired(ctx context.Context, limit int) ([]webhook.Start, error)
}

// Expiry gives held deliveries up at their give-up time.
//
// A round costs one read of the index deliveries_expires when nothing has expired, a few blocks for each partition, and four blocks for each
// delivery. It starts up to 800 of the longest expired, and while there are more up to 800 besides, of which the tenants take turns.
// It is apart from the release.
type Expiry struct {
	engine *engine.Engine
	store  Expired
	log    *slog.Logger
}

// NewExpiry returns an expiry that does not run.
func NewExpiry(e *engine.Engine, store Expired, log *slog.Logger) *Expiry {
	return &Expiry{engine: e, store: store, log: log}
}

// Run gives deliveries up every second until ctx ends.
func (x *Expiry) Run(ctx context.Context) {
	everyTick(ctx, expireEvery, func() {
		_, _ = x.runOnce(ctx) // the error is logged, and the next round tries again
	})
}

// runOnce starts what has expired: its workflow gives it up. The error is that of the store.
func (x *Expiry) runOnce(ctx context.Context) (n int, err error) {
	for range expireBatches {
		if !x.engine.Health.Up() {
			break
		}
		starts, err := readBatch(ctx, x.log, x.store.ReleaseExpired)
		if err != nil {
			return n, err
		}
		x.engine.Starts.Assigned(starts)
		n += len(starts)
		if len(starts) < batchSize/2 { // the store has looked at all that have expired
			break
		}
	}
	return n, nil
}
