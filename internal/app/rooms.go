package app

import (
	"context"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/intake"
	"github.com/everpost/everpost/internal/monitor"
	"github.com/everpost/everpost/internal/recovery"
)

func (a *App) engineConfig() engine.Config {
	o := a.options
	c := engine.Config{
		Client: a.client, Namespace: o.Temporal.Namespace, Logger: a.log, Converter: a.converter,
		LocalWorker:    o.Worker && !o.Config.WorkerVersioning,
		MaxPerWorkflow: o.Config.MaxPerWorkflow, MaxEventIDs: o.MaxEventIDs, KeepDeadLetters: o.Config.DeadLetterRetention,
		Tracer: a.tracer, Now: a.store.Now,
	}
	if a.overAll {
		c.Rows = a.store.Outbox
	}
	return c
}

// makeRooms makes what uses the engine: the activities, the intake, the monitor, which accepts events of its own, and the view of health.
func (a *App) makeRooms() {
	a.sender = newSender(&a.options, a.guard, a.roots)
	a.startStatistics()
	if a.options.Worker {
		a.makeActivities()
	}
	a.intake = intake.New(a.intakeConfig())
	var own monitor.Admission // nil without a worker
	if a.admission != nil {
		own = endpointStates{a.admission, a.store.Now}
		a.monitor = monitor.New(monitor.Config{
			Notes: a.notes, Admission: own, Endpoints: a.store.Endpoints.Cache(), Failures: a.store.EndpointHealth, Events: a.store.Operational,
			Starter: takeOver{a.intake, a.engine.Commands, a.engine.Replays}, Replays: a.store.Replays, Shared: a.store.EndpointHealth,
			Metrics: a.metrics, Logger: a.log, Now: a.store.Now,
			Process: a.options.Process, ShareEvery: a.options.shareHealthEvery,
		})
	}
	var owners monitor.Owners
	if a.fleet != nil {
		owners = a.fleet
	}
	a.health = monitor.NewView(a.store.EndpointHealth, own, owners, a.options.Process)
}

// takeOver is what takes over from the API and the monitor when they have stored something.
type takeOver struct {
	*intake.Intake
	*engine.Commands
	*engine.Replays
}

// sharedAdmission is the admission of this process, or of all that share the limits of endpoints.
type sharedAdmission interface {
	activities.Admission
	intake.Admission
	recovery.Admission
}

// admits returns the admission. There is none without a worker.
func (a *App) admits() sharedAdmission {
	if a.fleet != nil {
		return a.fleet
	}
	return a.admission
}

func (a *App) intakeConfig() intake.Config {
	o := a.options
	c := intake.Config{
		Engine: a.engine, Logger: a.log, StartLoops: o.Config.StartSlots, QueueLength: o.Config.QueueLength, Now: a.store.Now,
	}
	if a.overAll {
		c.Outbox = a.store.Outbox
	}
	if o.Worker {
		c.Requests, c.Fresh, c.Admission, c.Faults = a.activities.Eager, a.fresh, a.admits(), a.faults
	}
	if a.fleet != nil {
		c.Forwarder = countedForwards{a.fleet, a.metrics}
	}
	return c
}

// recoveryLoops are the loops that go on with what nothing goes on with. A process that may not read the deliveries of all tenants runs
// none, and only one with a worker releases held deliveries.
func (a *App) recoveryLoops() (loops []func(context.Context)) {
	if !a.overAll {
		return nil
	}
	loops = append(loops,
		recovery.NewRelay(recovery.RelayConfig{Engine: a.engine, Outbox: a.store.Outbox, Replays: a.store.Replays, Logger: a.log}).Run,
		recovery.NewReconciler(recovery.ReconcilerConfig{
			Engine: a.engine, Overdue: a.store.Deliveries, Deletions: a.store.Tenants, Logger: a.log,
			Every: a.options.Config.ReconcileEvery,
		}).Run)
	if !a.options.Worker {
		return loops
	}
	return append(loops,
		recovery.NewChecks(a.faults, a.activities.Checks, a.log).Run,
		recovery.NewExpiry(a.engine, a.store.Releases, a.log).Run,
		recovery.NewRelease(recovery.ReleaseConfig{
			Engine: a.engine, Faults: a.faults, Store: a.store.Releases, Admission: a.admits(), Intake: a.intake, Logger: a.log,
		}).Run)
}

// startRooms starts the check of Temporal, the intake and the recovery, which stop together.
func (a *App) startRooms() {
	life := a.engine.Lifetime
	a.engine.Start()
	a.intake.Start()
	for _, run := range a.recoveryLoops() {
		life.Go(func() { run(life.Stopping()) })
	}
	a.push(phaseStarts, func(context.Context) { life.Stop() })
}
