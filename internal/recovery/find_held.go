package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// findEvery is how often all endpoints with held deliveries are looked for: so deliveries that are
	// held although their endpoint is active go on within a minute, whatever held them.
	findEvery = 20 * time.Second
	heldPage  = 500
	// findAgain is the first pause after a search that failed. It doubles up to findEvery.
	findAgain = time.Second
)

// HeldReader reads which endpoints have held deliveries.
type HeldReader interface {
	// HeldEndpoints looks at up to limit held deliveries after a place, and returns the active or deleted endpoints of those that can be
	// released. next is zero at the end.
	HeldEndpoints(ctx context.Context, after webhook.HeldPlace, limit int) (found []webhook.HeldEndpoint, next webhook.HeldPlace, err error)
}

// FinderConfig is what a finder needs. All fields are required.
type FinderConfig struct {
	Engine *engine.Engine
	Held   *HeldEndpoints
	Store  HeldReader
	Logger *slog.Logger
}

// Finder finds endpoints with held deliveries, apart from their release, which does not wait for a search that takes long.
//
// A round reads the index deliveries_backlog in pages of 500 rows, in the order of endpoint and reason, and skips the other rows of one with
// more: up to two blocks for each endpoint, and some three for each partition and page. So it costs by endpoints with held deliveries, not by
// their deliveries.
type Finder struct {
	engine *engine.Engine
	held   *HeldEndpoints
	store  HeldReader
	log    *slog.Logger

	found, again time.Time // when the last search began that ended well; none begins before
	pause        time.Duration
}

// NewFinder returns a finder that does not run.
func NewFinder(c FinderConfig) *Finder {
	return &Finder{engine: c.Engine, held: c.Held, store: c.Store, log: c.Logger}
}

// Run searches every 20 s, and when this process has taken lanes, until ctx ends.
func (f *Finder) Run(ctx context.Context) {
	everyTick(ctx, releaseEvery, func() {
		now := time.Now()
		if !f.engine.Health.Up() || now.Before(f.again) || !findDue(f.found, f.held.lanesTaken(), now) {
			return
		}
		if _, err := f.runOnce(ctx); err == nil {
			f.found, f.pause = now, 0
			return
		}
		f.pause = min(max(2*f.pause, findAgain), findEvery)
		f.again = time.Now().Add(f.pause)
	})
}

// findDue reports whether held deliveries are to be looked for: regularly, when this process has taken lanes, and once more
// when what their owner was about to hold then is stored.
func findDue(found, taken, now time.Time) bool {
	stored := taken.Add(holdDelay)
	return now.Sub(found) >= findEvery || found.Before(taken) || found.Before(stored) && !now.Before(stored)
}

// runOnce notes all endpoints with held deliveries, and returns how often it has found one. The error is that it did not get through.
func (f *Finder) runOnce(ctx context.Context) (found int, err error) {
	var after webhook.HeldPlace
	for f.engine.Health.Up() && ctx.Err() == nil {
		var next webhook.HeldPlace
		page, err := readBatch(ctx, f.log, func(ctx context.Context, _ int) (page []webhook.HeldEndpoint, err error) {
			page, next, err = f.store.HeldEndpoints(ctx, after, heldPage)
			return page, err
		})
		if err != nil {
			return found, err
		}
		for _, e := range page {
			f.held.note(e.ID, time.Time{}, e.Faulty)
		}
		found += len(page)
		if next == (webhook.HeldPlace{}) {
			return found, nil
		}
		after = next
	}
	return found, errTemporalDown
}
