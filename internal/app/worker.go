package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/worker"
)

const (
	// workerPatience is how long Start waits for the worker. Without Temporal it goes on, and
	// events are accepted.
	workerPatience = 10 * time.Second
	// workerPause is the pause before a failed worker is started again.
	workerPause = time.Second
)

// makeActivities makes the activities, before the first event is accepted.
func (a *App) makeActivities() {
	a.activities = activities.New(activities.Config{
		Store: a.store.Deliveries, History: a.store.Deliveries, Targets: a.store.Endpoints.Cache(), Fresh: a.fresh, Sender: a.sender,
		Admission: a.admits(), DeadLetters: a.engine.DeadLetters, Faults: a.faults, Replays: a.store.Replays,
		Tenants: tenantDeletions{a.store.Tenants, a.engine.TenantDeletions},
		Audit:   a.store.Audit, Observer: observer{a.metrics, a.notes, a.statistics, a.store.Now}, Tracer: a.tracer,
		Logger: a.log, Claimant: a.options.Process, MaxPayload: int(a.options.Config.MaxPayload), LeastRetryDelay: a.options.Config.TenantLeastRetryDelay,
		MaxHeld:         a.options.Config.MaxHeld,
		KeepDeadLetters: a.options.Config.DeadLetterRetention, Now: a.store.Now,
	})
}

// newSDKWorker returns what starts Temporal's worker once, with an interceptor for traces if there are any.
func newSDKWorker(o *Options, tracer *tracing.Tracer) func(client.Client, *activities.Activities, func(error)) (*worker.Worker, error) {
	return func(c client.Client, runs *activities.Activities, fatal func(error)) (*worker.Worker, error) {
		start := worker.Options{Fatal: fatal}
		if o.Config.WorkerVersioning {
			start.Version = o.Version
		}
		if tracer != nil {
			start.Interceptors = []interceptor.WorkerInterceptor{worker.Spans(tracer)}
		}
		if o.Register != nil {
			return worker.StartWith(c, func(r worker.Registry) { o.Register(r, runs) }, start)
		}
		return worker.Start(c, runs, start)
	}
}

// startWorker starts the worker, and waits up to workerPatience until it runs.
func (a *App) startWorker() {
	halt, halted, up := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(halted)
		keeper := keeper{log: a.log, working: &a.working, start: func(fatal func(error)) (*worker.Worker, error) {
			return a.newWorker(a.client, a.activities, fatal)
		}}
		keeper.keep(halt, up)
	}()
	a.push(phaseRequests, func(ctx context.Context) {
		work, cancel := untilCut(ctx)
		defer cancel()
		a.activities.Attempts.Stop(work)
		// The worker may be waiting for requests that were just cancelled. The rest of recordTime
		// is for the group commits.
		limited, cancel := context.WithTimeout(ctx, recordTime/4)
		defer cancel()
		await(limited, halted)
	})
	if a.fleet != nil {
		a.push(phaseLeave, a.fleet.Leave)
	}
	a.push(phaseWorker, func(ctx context.Context) {
		work, cancel := untilCut(ctx)
		defer cancel()
		close(halt)
		await(work, halted)
	})
	// If Temporal answers, the worker runs before the first event is accepted.
	select {
	case <-up:
	case <-time.After(workerPatience):
	}
}

// keeper keeps a worker running.
type keeper struct {
	log     *slog.Logger
	start   func(fatal func(error)) (*worker.Worker, error)
	working *atomic.Bool // a worker polls its task queues
}

// keep keeps a worker running until halt is closed, and then stops it. It repeats a start
// that fails, and replaces a worker that stops by itself. up gets a value when a worker runs.
func (k *keeper) keep(halt <-chan struct{}, up chan<- struct{}) {
	for warned := false; ; {
		failed := make(chan error, 1)
		w, err := k.start(func(err error) {
			select {
			case failed <- err:
			default: // one failure is enough
			}
		})
		switch {
		case err == nil:
			warned = false
			if k.work(w, halt, up, failed) {
				return
			}
		case !warned:
			k.log.Warn("the worker cannot reach Temporal yet; it keeps trying", "error", err)
			warned = true
		}
		select {
		case <-halt:
			return
		case <-time.After(workerPause):
		}
	}
}

// work lets a worker run until halt is closed, and returns true, or until it stops by itself. The
// worker has stopped when work returns.
func (k *keeper) work(w *worker.Worker, halt <-chan struct{}, up chan<- struct{}, failed <-chan error) (halted bool) {
	k.working.Store(true)
	select {
	case up <- struct{}{}:
	default:
	}
	select {
	case <-halt:
		halted = true
	case err := <-failed:
		k.log.Error("the worker has stopped by itself; starting another one", "error", err)
	}
	k.working.Store(false)
	w.Stop()
	return halted
}
