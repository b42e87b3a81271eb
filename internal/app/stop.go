package app

import (
	"context"
	"slices"
	"time"
)

const (
	// StopTime is how long Stop takes at most: little more than an attempt's deadline.
	// What runs the process has the rest of the 40 s in which it promises to end for
	// Temporal and PostgreSQL.
	StopTime = 33 * time.Second
	// recordTime is the part of StopTime after requests that are still under way are
	// cut off: for what they came to, and for the writers.
	recordTime = 2 * time.Second
)

// The phases of stopping, in their order: the API accepts nothing more before what is
// there is ended, and the store outlives what writes to it.
const (
	phaseAPI         = "the API server"
	phaseStarter     = "the starter"
	phaseWorker      = "the worker"
	phaseRequests    = "the requests under way"
	phaseSender      = "the sender"
	phaseMonitor     = "the endpoint monitor"
	phaseListener    = "the API listener"
	phaseAdmin       = "the admin listener"
	phaseMaintenance = "the maintenance"
	phaseBackground  = "the background work"
	phaseStore       = "the store"
	phaseClient      = "the Temporal client"
)

// phase is one part of stopping. Its context ends when all of Stop has to be over;
// it may overrun it, and is left behind then.
type phase struct {
	name string
	stop func(context.Context)
}

func (a *App) push(name string, stop func(context.Context)) {
	a.phases = append(a.phases, phase{name, stop})
}

// Stop ends everything within StopTime: the API, then the starter, the worker, the
// requests under way, what writes to the store, and at last the connection to Temporal.
// Meanwhile /readyz answers 503. What is not finished by then is found again by the next
// start.
func (a *App) Stop() {
	a.log.Info("stopping: no new work, waiting for what is under way")
	a.unwind()
}

// unwind ends what has been started, the last first, against one deadline.
func (a *App) unwind() {
	a.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), a.stopTime)
	defer cancel()
	for _, p := range slices.Backward(a.phases) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.stop(ctx)
		}()
		if await(ctx, done) {
			a.log.DebugContext(ctx, "stopped", "part", p.name)
		} else {
			a.log.WarnContext(ctx, "a part did not stop in time; going on without it", "part", p.name)
		}
	}
	a.phases = nil
}

// untilCut ends with ctx, but for the time that is kept for the store.
func untilCut(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline()
	return context.WithDeadline(ctx, end.Add(-recordTime))
}

// await waits for done, which it prefers, or for the end of ctx.
func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
