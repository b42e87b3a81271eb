// Package app puts the parts of one process together: the store, the API, the intake, the engine, the recovery,
// the worker, the endpoint monitor and the admin listener. It is the only package that
// imports them all.
package app

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/codec"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/fleet"
	"github.com/everpost/everpost/internal/intake"
	"github.com/everpost/everpost/internal/monitor"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/recovery"
	"github.com/everpost/everpost/internal/statistics"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
)

// Options configure a process.
type Options struct {
	Config  config.Config
	Version string
	Logger  *slog.Logger

	// API and Worker say which parts this process runs.
	API    bool
	Worker bool

	// Temporal says how to reach Temporal.
	Temporal client.Options
	// MaxEventIDs is how many events a shared workflow can be found by; see engine.Config.
	MaxEventIDs int
	// UIURL is the address of the Temporal Web UI; without it, deliveries show no workflow_url.
	UIURL string
	// UISession: the Web UI asks for the session of an operator in the console, which gets a cookie for it.
	UISession bool
	// WorkflowsKept is for how long the Web UI shows a workflow that has ended. Defaults to the
	// retention of the namespace, as Temporal says it; while that is not known, deliveries always show
	// a workflow_url.
	WorkflowsKept time.Duration

	// DataDir is the data directory of a standalone installation with a PostgreSQL of its own; "" for others.
	DataDir string

	// Process is the name under which this process claims attempts. A process takes over the
	// claims of an earlier one with the same name at once, and what that was about to start. So a
	// process with a name must have its database to itself. Defaults to a random name.
	Process string

	// Listeners are further listeners of the installation in this process: Temporal's and its Web UI's. Requests to receivers go
	// to none.
	Listeners []netip.AddrPort

	// Clock is this process's clock, which may be wrong in tests. Defaults to time.Now.
	Clock func() time.Time

	// Register registers workflows and activities. Defaults to worker.Register; tests pass
	// that of another release.
	Register func(worker.Registry, *activities.Activities)

	// Exempt is the receiver of the demonstration: the egress guard allows its loopback
	// address, for one URL of one tenant.
	Exempt Exemption

	// shareHealthEvery is monitor.Config.ShareEvery, in tests.
	shareHealthEvery time.Duration
}

// Exemption is a receiver that the egress guard allows although its address is not public.
type Exemption = egress.Exemption

// App is a running process. Start it once, Stop it once.
type App struct {
	options Options
	log     *slog.Logger
	metrics *telemetry.Metrics
	tracer  *tracing.Tracer // nil without traces

	store      *stores.DB
	admission  *admission.Controller // nil without a worker
	fleet      *fleet.Fleet          // nil if this process sends, and counts the limits of endpoints for itself
	notes      *monitor.Notes        // nil without a worker, as monitor
	monitor    *monitor.Monitor
	statistics *statistics.Recorder
	health     *monitor.View
	guard      *egress.Guard
	roots      *x509.CertPool // to verify receivers; nil for the system's
	client     client.Client
	sender     *egress.Client
	activities *activities.Activities
	engine     *engine.Engine
	intake     *intake.Intake
	fresh      *intake.Fresh           // nil without a worker
	faults     *recovery.Faults        // nil without a worker
	working    atomic.Bool             // the worker polls its task queues
	keys       *vault.Vault            // nil without a key
	codec      *codec.Codec            // nil without a key
	converter  converter.DataConverter // of the client; nil for the default
	keyService keyService
	workflows  *workflowPages
	overAll    bool // this process may read the deliveries of all tenants: see takeRoles
	alone      bool // no other process uses the database: see Options.Process

	server                   *api.Server      // nil without the API
	console                  *console.Console // nil without one
	portal                   console.PortalLook
	apiListener, adminListen net.Listener
	laneListener             net.Listener // nil if this process owns no lanes; the fleet closes it

	stops

	life    context.Context //nolint:containedctx // of background work; ended by Stop
	end     context.CancelFunc
	started chan struct{}

	newWorker func(client.Client, *activities.Activities, func(error)) (*worker.Worker, error) // worker.Start, except in tests
}

// New checks the options and opens what needs no waiting. An error means that the
// configuration is unusable. Nothing is served before Start.
func New(ctx context.Context, o Options) (*App, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	if err := CheckDatabase(o.Config.DatabaseURL); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = failpoint.Clock()
	}
	alone := o.Process != ""
	if !alone {
		o.Process = rand.Text()
	}
	keys, err := loadVault(o.Config.KEKs)
	if err != nil {
		return nil, err
	}
	roots, err := o.Config.RootCAs()
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_CA_FILE: %w", err)
	}
	look, err := portalLook(o)
	if err != nil {
		return nil, err
	}
	a := &App{
		portal: look,
		roots:  roots, options: o, log: o.Logger, metrics: telemetry.NewMetrics(o.Version), keys: keys, alone: alone,
		stops: stops{log: o.Logger, patience: StopTime}, started: make(chan struct{}),
		keyService: keyService{keys: keys, every: keyServiceEvery, log: o.Logger},
	}
	a.life, a.end = context.WithCancel(context.WithoutCancel(ctx))
	a.startTracer(ctx)
	a.newWorker = newSDKWorker(&a.options, a.tracer)

	// The client before the store: whatever writes to the store stops first (R11).
	temporal := o.Temporal
	temporal.Logger = log.NewStructuredLogger(TemporalLogger(o.Logger))
	a.encryptHistories(&temporal)
	temporal.MetricsHandler = a.metrics.Temporal()
	if temporal.Identity == "" {
		temporal.Identity = "everpost " + o.Version
	}
	// By default the SDK compresses every request. In one data centre that is a waste of CPU.
	temporal.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	a.client, err = client.NewLazyClient(temporal)
	if err != nil {
		a.end()
		a.unwind() //nolint:contextcheck // stops although ctx has ended
		return nil, fmt.Errorf("open the Temporal client: %w", err)
	}
	a.push(phaseClient, func(context.Context) { a.client.Close() })
	a.workflows = &workflowPages{ui: o.UIURL, namespace: NamespaceName(o.Temporal), client: a.client, log: o.Logger, always: o.WorkflowsKept}
	var forget func(webhook.EndpointID)
	if o.Worker {
		a.notes, a.faults, a.fresh = monitor.NewNotes(a.metrics, o.Logger), recovery.NewFaults(o.Logger), intake.NewFresh()
		a.admission = admission.New(admission.Config{
			OnCircuitChange: circuits{a.metrics, a.notes, o.Logger}.changed, MaxInFlightPerHost: o.Config.MaxInFlightPerHost,
		})
		forget = failures{a.notes, a.admission, a.faults}.forget
	}
	a.store, err = stores.Open(ctx, stores.Config{
		URL: o.Config.DatabaseURL, MaxConns: storeConns(o.Config.DBConnections), Sealer: sealer{keys}, MakeSecret: makeSecret, EndpointMoved: forget,
		OperatorTenant: o.Config.OperatorTenant, KnownTypesOnly: o.Config.EventTypes == "known",
		Limits: tenantLimits(o.Config), RetryPolicy: o.Config.RetryPolicy.Policy, Sends: o.Worker,
		RunningReplays: o.Config.RunningReplays,
		Now:            o.Clock, Logger: o.Logger, Flushes: a.metrics,
	})
	if err != nil {
		a.end()
		a.unwind() //nolint:contextcheck // stops although ctx has ended
		return nil, fmt.Errorf("EVERPOST_DATABASE_URL: %w", err)
	}
	a.push(phaseStore, func(context.Context) {
		a.store.Close()
		if keys != nil {
			keys.Close()
		}
	})
	a.push(phaseBackground, func(context.Context) { a.end() })
	return a, nil
}

// storeConns is the size of the pool that serves tenants and operators, so that all pools of the process have so many
// connections at most. A worker's pool has half of it; nine are those of the group commits (six), of the listener, of
// readiness, and of what is done with the login's own rights.
func storeConns(all int) int32 {
	return int32((all - 9) * 2 / 3) //nolint:gosec,mnd // see above; bounded by the setting
}

// Start starts the parts in the reverse order of an event's path, so that the API accepts
// nothing that cannot be processed.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() { //nolint:contextcheck // stops although ctx has ended
		if err != nil {
			a.unwind()
		}
	}()
	err = a.store.CheckSessions(ctx)
	if err == nil {
		err = a.store.Ready(ctx)
	}
	if err != nil {
		return fmt.Errorf("PostgreSQL cannot be used: %w", err)
	}
	if err := a.store.Migrated(ctx); err != nil {
		return err
	}
	if err := a.takeRoles(ctx); err != nil {
		return err
	}
	if err := checkKeys(ctx, &a.options.Config, a.keys, a.store.Encryption); err != nil {
		return err
	}
	if a.alone {
		if err := a.store.Outbox.MakeRecentDue(ctx); err != nil {
			return fmt.Errorf("PostgreSQL cannot be used: %w", err)
		}
	}
	if err := a.makeFleet(ctx); err != nil {
		return err
	}
	if a.fleet != nil {
		a.push(phaseLanes, a.fleet.Stop)
	}
	a.meterFleet()
	a.engine = engine.New(a.engineConfig())
	a.maintain() //nolint:contextcheck // outlives the context of Start, here and below
	if err := a.listen(); err != nil {
		return err
	}
	if err := a.makeGuard(ctx); err != nil {
		return err
	}
	a.makeRooms()
	a.store.Listen(a.life) //nolint:contextcheck // see above
	if a.monitor != nil {
		a.push(phaseMonitor, func(ctx context.Context) { a.monitor.Stop(ctx) })
		a.monitor.Start(a.life) //nolint:contextcheck // see above
	}
	if err := a.startNotifier(); err != nil {
		return err
	}
	a.push(phaseSender, func(context.Context) { a.sender.Close() })
	if err := a.startFleet(ctx); err != nil {
		return err
	}
	if a.options.Worker {
		a.startWorker()
	}
	a.startRooms() //nolint:contextcheck // has a deadline of its own, within that of Stop
	if a.options.API {
		a.startAPI() //nolint:contextcheck // see above
	}
	close(a.started)
	return nil
}

// takeRoles reads which roles the database's login may take. A process whose login is only
// for the API does no work for all tenants, such as the relay and retention: the workers do.
func (a *App) takeRoles(ctx context.Context) error {
	serves, err := a.store.May(ctx, postgres.RoleAPI)
	if err != nil {
		return err
	}
	if a.overAll, err = a.store.May(ctx, postgres.RoleWorker); err != nil {
		return err
	}
	const needs = "EVERPOST_DATABASE_URL: the login is not a member of the role %s: see docs/security-database.md"
	switch {
	case a.options.API && !serves:
		return fmt.Errorf(needs, postgres.RoleAPI)
	case a.options.Worker && !a.overAll:
		return fmt.Errorf(needs, postgres.RoleWorker)
	}
	return nil
}

// maintain makes partitions and removes days past their retention, in the background.
func (a *App) maintain() {
	ctx, end := context.WithCancel(a.life)
	var loops sync.WaitGroup
	if a.overAll {
		loops.Go(func() { a.store.Retention.Maintain(ctx) })
		loops.Go(func() { a.store.Retention.WatchGrowth(ctx) })
		loops.Go(func() { retainer{a.store, &a.options.Config, a.log}.run(ctx) })
	}
	if a.keys != nil && usesKeyService(&a.options.Config.KEKs) {
		loops.Go(func() { a.keyService.watch(ctx) })
	}
	if a.options.API {
		loops.Go(func() { a.workflows.watch(ctx) })
	}
	a.push(phaseMaintenance, func(context.Context) {
		end()
		loops.Wait()
	})
}
