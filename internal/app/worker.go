package app

import (
	"context"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/worker"
)

const (
	// workerPatience is how long Start waits for the worker; without a Temporal the
	// rest comes up all the same, and events are accepted.
	workerPatience = 10 * time.Second
	// workerPause is how long after a failure the worker is started again.
	workerPause = time.Second
)

// makeActivities makes what the worker runs. It is there before the first event, ours included.
func (a *App) makeActivities() {
	a.startSender()
	a.activities = activities.New(activities.Config{
		Store: a.store.Deliveries, Targets: a.store.Endpoints.Cache(), Fresh: a.starter.Fresh(), Sender: a.sender,
		Admission: a.admission, Held: a.starter.Held, Starter: a.starter, Faults: a.starter, Replays: a.store.Replays,
		Observer: observer{a.metrics, a.monitor}, Ended: a.monitor.Ended, Logger: a.log, Owner: a.options.Owner,
		KeepDeadLetters: a.options.Config.DeadLetterRetention, Now: a.store.Now,
	})
}

// startWorker runs the worker, and waits a moment for it.
func (a *App) startWorker() {
	halt, halted, up := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(halted)
		a.keepWorking(halt, up)
	}()
	a.push(phaseRequests, func(ctx context.Context) {
		work, cancel := untilCut(ctx)
		defer cancel()
		a.activities.Stop(work)
		// A worker that waited for what was cut off; half of the time is the writers'.
		tell, cancel := context.WithTimeout(ctx, recordTime/2)
		defer cancel()
		await(tell, halted)
	})
	a.push(phaseWorker, func(ctx context.Context) {
		work, cancel := untilCut(ctx)
		defer cancel()
		close(halt)
		await(work, halted)
	})
	// With Temporal there, the worker runs before the first event comes in.
	select {
	case <-up:
	case <-time.After(workerPatience):
	}
}

// keepWorking keeps a worker running until halt is closed, and stops it then: it
// starts it as often as it takes, and puts a new one in the place of one that has
// given up by itself. up gets a value when there is one.
func (a *App) keepWorking(halt <-chan struct{}, up chan<- struct{}) {
	for told := false; ; {
		failed := make(chan error, 1)
		workers, err := a.newWorker(a.client, a.activities, func(err error) {
			select {
			case failed <- err:
			default: // each queue's worker may give up; one is enough
			}
		})
		switch {
		case err == nil:
			told = false
			if a.work(workers, halt, up, failed) {
				return
			}
		case !told:
			a.log.Warn("the worker cannot reach Temporal yet; trying on", "error", err)
			told = true
		}
		select {
		case <-halt:
			return
		case <-time.After(workerPause):
		}
	}
}

// work lets a worker run until it is told to halt, then it is true, or until it has
// given up. The worker has stopped when it returns.
func (a *App) work(workers *worker.Workers, halt <-chan struct{}, up chan<- struct{}, failed <-chan error) (halted bool) {
	a.working.Store(true)
	select {
	case up <- struct{}{}:
	default:
	}
	select {
	case <-halt:
		halted = true
	case err := <-failed:
		a.log.Error("the worker has given up; another takes its place when it has stopped", "error", err)
	}
	a.working.Store(false)
	workers.Stop()
	return halted
}
