package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// StopTime is how long Stop takes at most: little more than an attempt's deadline. A
	// process ends within 40 s; standalone needs the rest for Temporal and PostgreSQL.
	StopTime = 33 * time.Second
	// recordTime is the last part of StopTime, after requests under way are cut off: for
	// recording their outcomes, and for the group commits.
	recordTime = 2 * time.Second
)

// The phases of stopping, in their order: first the API stops accepting, and the store outlives
// everything that writes to it.
const (
	phaseAPI         = "the API server"
	phaseStarts      = "the starts of workflows"
	phaseWorker      = "the worker"
	phaseLeave       = "the leases of lanes"
	phaseRequests    = "the requests under way"
	phaseSender      = "the sender"
	phaseMonitor     = "the endpoint monitor"
	phaseLanes       = "the permits of other processes"
	phaseStatistics  = "the statistics"
	phaseGuard       = "the addresses of the installation"
	phaseListener    = "the API listener"
	phaseAdmin       = "the admin listener"
	phaseNotifier    = "the notifications"
	phaseMaintenance = "the maintenance"
	phaseBackground  = "the background work"
	phaseStore       = "the store"
	phaseClient      = "the Temporal client"
	phaseTraces      = "the traces"
)

// phase is one part of stopping. Its context ends with StopTime. Stop does not wait for a phase
// that overruns it.
type phase struct {
	name string
	stop func(context.Context)
}

// stops are the parts that have been started.
type stops struct {
	log      *slog.Logger
	patience time.Duration // StopTime, except in tests
	phases   []phase       // in the order of starting; they stop in reverse
	stopping atomic.Bool
}

func (s *stops) push(name string, stop func(context.Context)) {
	s.phases = append(s.phases, phase{name, stop})
}

// serve runs a server until Stop, which waits up to patience for requests under way.
func (s *stops) serve(name string, server *http.Server, l net.Listener, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("a listener ended", "address", l.Addr().String(), "error", err)
		}
	}()
	s.push(name, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close()
		}
		<-done
	})
}

// Stop stops everything within StopTime: the API, then the starts of workflows, the worker, the requests
// under way, the store, and at last the connection to Temporal. Meanwhile /readyz answers 503.
// The next start finds what was not finished.
func (a *App) Stop() {
	a.log.Info("stopping: no new work, waiting for what is under way")
	a.unwind()
}

// unwind stops what has been started, the last first, within one deadline.
func (s *stops) unwind() {
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	for _, p := range slices.Backward(s.phases) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.stop(ctx)
		}()
		if await(ctx, done) {
			s.log.DebugContext(ctx, "stopped", "part", p.name)
		} else {
			s.log.WarnContext(ctx, "a part did not stop in time; going on without it", "part", p.name)
		}
	}
	s.phases = nil
}

// untilCut is a context that ends recordTime before ctx.
func untilCut(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline()
	return context.WithDeadline(ctx, end.Add(-recordTime))
}

// await waits for done or the end of ctx. If both have happened, it reports done.
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
