package app

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"

	"github.com/everpost/everpost/activities"
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
		Admission: a.admits(), Starter: a.engine.HandOvers, Faults: a.faults, Replays: a.store.Replays,
		Tenants: tenantDeletions{a.store.Tenants, a.engine.TenantDeletions},
		Audit:   a.store.Audit, Observer: observer{a.metrics, a}, Tracer: a.tracer,
		Logger: a.log, Claimant: a.options.Process, MaxPayload: int(a.options.Config.MaxPayload), LeastRetryDelay: a.options.Config.TenantLeastRetryDelay,
		KeepDeadLetters: a.options.Config.DeadLetterRetention, Now: a.store.Now,
	})
}

// newSDKWorker starts Temporal's worker once, with an interceptor for traces if there are any.
func (a *App) newSDKWorker(c client.Client, runs *activities.Activities, fatal func(error)) (*worker.Worker, error) {
	o := worker.Options{Fatal: fatal}
	if a.options.Config.WorkerVersioning {
		o.Version = a.options.Version
	}
	if a.tracer != nil {
		o.Interceptors = []interceptor.WorkerInterceptor{worker.Spans(a.tracer)}
	}
	if register := a.options.Register; register != nil {
		return worker.StartWith(c, func(r worker.Registry) { register(r, runs) }, o)
	}
	return worker.Start(c, runs, o)
}

// startWorker starts the worker, and waits up to workerPatience until it runs.
func (a *App) startWorker() {
	halt, halted, up := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(halted)
		a.keepWorking(halt, up)
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

// keepWorking keeps a worker running until halt is closed, and then stops it. It repeats a start
// that fails, and replaces a worker that stops by itself. up gets a value when a worker runs.
func (a *App) keepWorking(halt <-chan struct{}, up chan<- struct{}) {
	for warned := false; ; {
		failed := make(chan error, 1)
		w, err := a.newWorker(a.client, a.activities, func(err error) {
			select {
			case failed <- err:
			default: // one failure is enough
			}
		})
		switch {
		case err == nil:
			warned = false
			if a.work(w, halt, up, failed) {
				return
			}
		case !warned:
			a.log.Warn("the worker cannot reach Temporal yet; it keeps trying", "error", err)
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
func (a *App) work(w *worker.Worker, halt <-chan struct{}, up chan<- struct{}, failed <-chan error) (halted bool) {
	a.working.Store(true)
	select {
	case up <- struct{}{}:
	default:
	}
	select {
	case <-halt:
		halted = true
	case err := <-failed:
		a.log.Error("the worker has stopped by itself; starting another one", "error", err)
	}
	a.working.Store(false)
	w.Stop()
	return halted
}
