// Package app puts the parts together: the record, the API, the dispatcher, the
// worker and the admin listener of one process. It is the only place that knows
// them all.
package app

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/dispatch"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/worker"
)

// Options say which process this is.
type Options struct {
	Config  config.Config
	Version string
	Logger  *slog.Logger

	// API and Worker are what this process does.
	API    bool
	Worker bool

	// Temporal is where the engine is.
	Temporal client.Options
	// EventIDs is how many events a shared workflow can be found by; see dispatch.Config.
	EventIDs int
	// UIURL is the address of the Temporal Web UI; without it, deliveries show no workflow_url.
	UIURL string
	// WorkflowsKept is how long a workflow that has ended can be looked at there; 0: not known,
	// and its address is shown all the same.
	WorkflowsKept time.Duration

	// Owner is the name under which attempts are claimed. A process that takes the
	// place of one with the same name takes over its claims at once, so there must
	// never be two at a time. Defaults to a name of its own for each process.
	Owner string

	// Clock is this process's clock, in tests a wrong one. Defaults to time.Now.
	Clock func() time.Time

	// SoleWorker says that no other process runs workflows as long as this one does: then
	// first requests need not wait for them.
	SoleWorker bool

	// Register makes known what the worker runs. Defaults to worker.Register; another release's
	// in a test.
	Register func(worker.Registry, *activities.Activities)

	// Exempt is the one address on loopback that may be sent to although the guard
	// refuses it, for one URL of one tenant: the demonstration's receiver.
	Exempt Exemption
}

// Exemption lets one tenant's endpoints with one URL through to one address.
type Exemption struct {
	TenantID string
	URL      string
	Addr     netip.AddrPort
}

// App is a running process. Start it once, Stop it once.
type App struct {
	options Options
	log     *slog.Logger
	metrics *telemetry.Metrics

	store      *postgres.Store
	gate       *admission.Controller // nil without a worker
	watch      *watch                // nil without a worker
	guard      *egress.Guard
	roots      *x509.CertPool // that verify receivers; nil for the system's
	client     client.Client
	sender     *egress.Client
	activities *activities.Activities
	dispatcher *dispatch.Dispatcher
	working    atomic.Bool  // the worker serves its queues
	keys       *vault.Vault // nil without a key
	keyService atomic.Pointer[string]
	overAll    bool // this process may look after all tenants' deliveries: see takeRoles

	api, admin               *http.Server
	apiListener, adminListen net.Listener

	life     context.Context //nolint:containedctx // of what runs in the background; ended by Stop
	end      context.CancelFunc
	phases   []phase // of stopping, in the order of starting; run in the reverse one
	started  chan struct{}
	stopping atomic.Bool

	// Others in tests: StopTime, shareEvery, closingsEvery, keyServiceEvery and worker.Start.
	stopTime        time.Duration
	shareEvery      time.Duration
	closingsEvery   time.Duration
	keyServiceEvery time.Duration
	newWorker       func(client.Client, *activities.Activities, func(error)) (*worker.Workers, error)
}

// New checks the options and opens what needs no waiting: an error is one of the
// configuration. Nothing is served before Start.
func New(ctx context.Context, o Options) (*App, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	if err := CheckDatabase(o.Config.DatabaseURL); err != nil {
		return nil, err
	}
	if o.Owner == "" {
		o.Owner = processName()
	}
	keys, err := loadVault(o.Config.KEKs)
	if err != nil {
		return nil, err
	}
	roots, err := o.Config.RootCAs()
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_CA_FILE: %w", err)
	}
	guard := newGuard(o.Config)
	if err := guard.LearnOwnAddrs(); err != nil {
		return nil, fmt.Errorf("no request may go to this machine's own addresses, and they are not known: %w", err)
	}
	a := &App{guard: guard, roots: roots, options: o, log: o.Logger, metrics: telemetry.NewMetrics(o.Version), keys: keys, started: make(chan struct{})}
	a.stopTime, a.shareEvery, a.closingsEvery, a.keyServiceEvery, a.newWorker = StopTime, shareEvery, closingsEvery, keyServiceEvery, worker.Start
	if o.Register != nil {
		a.newWorker = func(c client.Client, runs *activities.Activities, fatal func(error)) (*worker.Workers, error) {
			return worker.StartWith(c, func(r worker.Registry) { o.Register(r, runs) }, fatal)
		}
	}
	a.life, a.end = context.WithCancel(context.WithoutCancel(ctx))

	// The client before the record: what writes the record is stopped first (R11).
	temporal := o.Temporal
	temporal.Logger = log.NewStructuredLogger(o.Logger)
	if temporal.Identity == "" {
		temporal.Identity = "everpost " + o.Version
	}
	// The SDK gzips every request otherwise; between neighbours that is CPU for nothing.
	temporal.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	a.client, err = client.NewLazyClient(temporal)
	if err != nil {
		a.end()
		return nil, fmt.Errorf("open the Temporal client: %w", err)
	}
	a.push(phaseClient, func(context.Context) { a.client.Close() })
	if o.Worker {
		a.gate = admission.New(admission.Config{OnCircuitChange: a.circuitChanged, MaxInFlightPerHost: o.Config.MaxInFlightPerHost})
	}
	a.store, err = postgres.Open(ctx, postgres.Config{
		URL: o.Config.DatabaseURL, MaxConns: storeConns, Sealer: sealer{keys}, MakeSecret: makeSecret, EndpointMoved: a.endpointMoved,
		OperatorTenant: o.Config.OperatorTenant, Limits: tenantLimits(o.Config), RetryPolicy: o.Config.RetryPolicy.Policy, Sends: o.Worker,
		Now: o.Clock, Logger: o.Logger,
	})
	if err != nil {
		a.end()
		a.unwind() //nolint:contextcheck // stops although ctx has ended
		return nil, fmt.Errorf("EVERPOST_DATABASE_URL: %w", err)
	}
	a.push(phaseRecord, func(context.Context) {
		a.store.Close()
		if keys != nil {
			keys.Close()
		}
	})
	a.push(phaseBackground, func(context.Context) { a.end() })
	forDispatch := dispatch.Config{
		Client: a.client, Namespace: temporal.Namespace, Record: a.store, Replays: a.store, Logger: o.Logger,
		StartSlots: o.Config.StartSlots, QueueLength: o.Config.QueueLength, LocalWorker: o.Worker, SoleWorker: o.SoleWorker,
		Width: o.Config.MaxPerWorkflow, EventIDs: o.EventIDs,
		Overdue: a.store, ReconcileEvery: o.Config.ReconcileEvery, KeepDeadLetters: o.Config.DeadLetterRetention, Backlog: a.store,
		Forgotten: a.store, Now: a.store.Now,
	}
	if a.gate != nil {
		forDispatch.Gate, forDispatch.FaultyBacklog = startForecast{a.gate}, a.store
	}
	a.dispatcher = dispatch.New(forDispatch)
	if a.gate != nil {
		a.watch = newWatch(a.store, a.dispatcher, a.gate, a.metrics, o.Logger)
	}
	return a, nil
}

// storeConns is the size of the product's pool: the flushes of the group commits,
// and reads beside them.
const storeConns = 24

// Start brings everything up, in the order in which an event passes through from
// its end to its door, so that nothing is let in that cannot be carried on.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() { //nolint:contextcheck // stops although ctx has ended
		if err != nil {
			a.unwind()
		}
	}()
	if err := a.store.Ready(ctx); err != nil {
		return fmt.Errorf("PostgreSQL cannot be used: %w", err)
	}
	if err := a.store.Migrated(ctx); err != nil {
		return err
	}
	if err := a.takeRoles(ctx); err != nil {
		return err
	}
	if err := a.checkKeys(ctx); err != nil {
		return err
	}
	a.store.Listen(a.life) //nolint:contextcheck // what Start brings up outlives its context, here and below
	a.maintain()           //nolint:contextcheck // see above
	if err := a.listen(); err != nil {
		return err
	}
	if a.options.Worker {
		a.push(phaseWatch, func(ctx context.Context) { a.watch.stop(ctx) })
		a.makeActivities()
		a.watch.start(a.life) //nolint:contextcheck // see above
		a.startWorker()
		a.dispatcher.Start(a.activities)
	} else {
		a.startSender()
		a.dispatcher.Start(nil)
	}
	a.push(phaseDispatcher, func(context.Context) { a.dispatcher.Stop() })
	if a.options.API {
		a.startAPI() //nolint:contextcheck // see above
	}
	close(a.started)
	return nil
}

// takeRoles finds out what the database's login may do. One that is only for the API does
// not relay, maintain or count over all tenants: the workers do.
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
	case !a.overAll:
		a.dispatcher.OnlyStart()
	}
	return nil
}

// maintain makes partitions and removes what is past its retention, in the background.
func (a *App) maintain() {
	ctx, end := context.WithCancel(a.life)
	var loops sync.WaitGroup
	if a.overAll {
		loops.Go(func() { a.store.Maintain(ctx) })
		loops.Go(func() { a.retain(ctx) })
	}
	if a.gate != nil {
		loops.Go(func() { a.shareHealth(ctx) })
		loops.Go(func() { a.watchClosings(ctx) })
	}
	if a.usesKeyService() {
		loops.Go(func() { a.watchKeyService(ctx) })
	}
	a.push(phaseMaintenance, func(context.Context) {
		end()
		loops.Wait()
	})
}

// listen takes both ports, so that one that is taken is known at once.
func (a *App) listen() error {
	var err error
	if a.adminListen, err = listen(a.life, "EVERPOST_ADMIN_LISTEN", a.options.Config.AdminListen); err != nil {
		return err
	}
	a.push(phaseAdmin, func(context.Context) { _ = a.adminListen.Close() })
	a.registerGauges()
	a.admin = &http.Server{
		Handler:           a.adminHandler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: time.Minute, // after the seconds that a profile is asked to take
		IdleTimeout:  time.Minute,
	}
	a.serve(phaseAdmin, a.admin, a.adminListen, time.Second)
	if !a.options.API {
		return nil
	}
	if a.apiListener, err = listen(a.life, "EVERPOST_LISTEN", a.options.Config.Listen); err != nil {
		return err
	}
	a.push(phaseListener, func(context.Context) { _ = a.apiListener.Close() })
	return nil
}

func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot be listened on (%w); is another process using it? Choose another address, or port 0 for a free one",
			setting, address, cause(err))
	}
	return l, nil
}

func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// serve runs a server until Stop; patience is how long it waits then for requests
// under way.
func (a *App) serve(name string, s *http.Server, l net.Listener, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("a listener ended", "address", l.Addr().String(), "error", err)
		}
	}()
	a.push(name, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			_ = s.Close()
		}
		<-done
	})
}

func (a *App) startAPI() {
	tests := activities.NewTests(sender{a.sender, a.options.Exempt})
	tests.Now = a.store.Now
	endpoints := checkup{a.store, a.gate, a.options.Owner, tests}
	server := api.New(api.Config{
		Tenants: a.store, Keys: a.store, Endpoints: a.store, EndpointSecrets: a.store, Events: counted{a.store, a.metrics},
		Deliveries: a.store, EndpointSwitch: a.store, UsualRate: a.usualRate, Health: endpoints, Circuits: endpoints, Tests: endpoints,
		Replays: a.store, Dispatcher: a.dispatcher,
		URLs: urls{a.guard}, Audit: a.store, Limits: a.store, TenantUpdates: a.store, Logger: a.log, Metrics: a.metrics,
		WorkflowURL: a.workflowURL, WorkflowURLForTenants: a.options.Config.WorkflowURLForTenants, WorkflowsKept: a.options.WorkflowsKept,
		TrustedProxies: a.options.Config.TrustedProxies, Version: a.options.Version, OperatorKey: a.options.Config.OperatorKey,
		RetryPolicy: a.options.Config.RetryPolicy.Policy, Now: a.store.Now,
	})
	a.metrics.Gauge("everpost_api_body_bytes", "Bytes that the bodies of the API's requests under way hold.",
		func() float64 { return float64(server.BodyBytes()) })
	a.api = server.HTTPServer(server.Handler())
	a.serve(phaseDoor, a.api, a.apiListener, 5*time.Second)
}

// workflowURL is a workflow's page in the Web UI.
func (a *App) workflowURL(id string) string {
	if a.options.UIURL == "" {
		return ""
	}
	namespace := a.options.Temporal.Namespace
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	return a.options.UIURL + "/namespaces/" + url.PathEscape(namespace) + "/workflows/" + url.PathEscape(id)
}

// APIAddr is the address the API is served on, "" without one.
func (a *App) APIAddr() string {
	if a.apiListener == nil {
		return ""
	}
	return a.apiListener.Addr().String()
}

// AdminAddr is the address of health checks and metrics.
func (a *App) AdminAddr() string { return a.adminListen.Addr().String() }

// processName is what claims are made under: another one for each process.
func processName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}
