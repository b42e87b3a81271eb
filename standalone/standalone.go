package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/hosts"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/standalone/internal/temporald"
	"github.com/everpost/everpost/standalone/internal/webui"
	"github.com/everpost/everpost/workflows"
)

const (
	startTimeout = 2 * time.Minute // a first start on a slow machine, with room

	// stopTimeout is for all of a stop, of which 40 s are promised: the product first,
	// then engineTime for the Web UI, Temporal and PostgreSQL, and of it databaseTime
	// for PostgreSQL alone. uiTime is for the Web UI's requests, which may wait for
	// half a minute and lose nothing.
	stopTimeout  = app.StopTime + engineTime
	engineTime   = 5 * time.Second
	databaseTime = 2 * time.Second
	uiTime       = 500 * time.Millisecond

	// garbageTarget trades memory for CPU: most of what a delivery allocates is dead
	// a moment later. memoryLimit makes the collector work harder before it costs more.
	// GOGC and GOMEMLIMIT override them. What a burst has taken is given back to the
	// system when a while passes without a collection.
	garbageTarget = 400
	memoryLimit   = 480 << 20
	idleAfter     = 30 * time.Second
)

// standaloneCommand runs everything in one process tree.
type standaloneCommand struct {
	config.Config     `embed:""`
	config.Standalone `embed:""`
}

// Run runs until a signal, or until a part that cannot be replaced has failed.
func (c *standaloneCommand) Run(ctx context.Context, p cli.Process) error {
	logger := p.Logger(c.LogLevel)
	c.AddOwn(config.OwnKEKFile(c.DataDir))
	if err := errors.Join(c.Config.Validate(), c.Standalone.Validate(), c.AllowDev(&c.Config, p.Environ)); err != nil {
		return cli.Usage(err)
	}
	if c.DatabaseURL != "" {
		if err := app.CheckDatabase(c.DatabaseURL); err != nil {
			return cli.Usage(err)
		}
	}
	if c.Dev {
		logger.WarnContext(ctx, "for trying out (EVERPOST_DEV): every tenant may have endpoints on this machine, over http and on any port")
	}
	tuneCollector()
	go trimWhenIdle(ctx)
	i := &instance{command: c, process: p, log: logger}
	defer i.stop(ctx)
	if err := i.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while starting
		}
		return err
	}
	if err := i.announce(ctx); err != nil {
		logger.WarnContext(ctx, "standard output is closed", "error", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-i.failed:
		return err
	}
}

func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageTarget)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// trimWhenIdle gives memory back to the system, once, after each burst: Go itself
// keeps as much as its next collection would find, which after a burst is a lot.
func trimWhenIdle(ctx context.Context) {
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	var before, trimmed uint32
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		if stats.NumGC == before && stats.NumGC != trimmed {
			debug.FreeOSMemory()
			trimmed = stats.NumGC + 1 // it is a collection itself
		}
		before = stats.NumGC
	}
}

// instance is a running installation.
type instance struct {
	command *standaloneCommand
	process cli.Process
	log     *slog.Logger

	private  bool // the database is this instance's own
	temporal *temporald.Server
	ui       *webui.UI
	app      *app.App
	demo     *demonstration

	failed chan error
	stops  []func(context.Context) // in the order of starting
}

func (i *instance) push(stop func(context.Context)) { i.stops = append(i.stops, stop) }

// stop ends the parts in the reverse order of their starting: the product, the Web
// UI, Temporal, PostgreSQL, all against one deadline. It does so although ctx has ended.
func (i *instance) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, stop := range slices.Backward(i.stops) {
		stop(ctx)
	}
}

func (i *instance) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	i.failed = make(chan error, 4)
	lock, err := i.openDataDir(ctx)
	if err != nil {
		return err
	}
	if err := i.startDatabase(ctx, lock); err != nil {
		return err
	}
	if err := i.startEngine(ctx); err != nil {
		return err
	}
	if err := i.prepareKeys(ctx); err != nil {
		return err
	}
	return i.startProduct(ctx)
}

// openDataDir makes the data directory and takes its lock, so that no other
// instance uses it.
func (i *instance) openDataDir(ctx context.Context) (*localpg.Lock, error) {
	lock, err := localpg.LockDir(ctx, i.command.DataDir, i.log)
	if err != nil {
		return nil, err
	}
	i.push(func(context.Context) { lock.Release() })
	return lock, nil
}

// startDatabase starts the private PostgreSQL, unless there is another one to use,
// and brings the product's tables up to date.
func (i *instance) startDatabase(ctx context.Context, lock *localpg.Lock) error {
	i.private = i.command.DatabaseURL == ""
	if i.private {
		cluster, err := i.startCluster(ctx, localpg.Options{Dir: i.command.DataDir, Lock: lock, Log: i.log})
		if err != nil {
			return err
		}
		i.push(func(ctx context.Context) {
			if err := cluster.Stop(ctx); err != nil {
				i.log.ErrorContext(ctx, "PostgreSQL did not stop in good order", "error", err)
			}
		})
		i.command.DatabaseURL = cluster.URL(localpg.Database)
	}
	if err := i.lockDatabase(ctx); err != nil {
		return fmt.Errorf("PostgreSQL cannot be used: %w", err)
	}
	if err := app.Migrate(ctx, i.command.Config, i.log); err != nil {
		return fmt.Errorf("PostgreSQL cannot be used: %w", err)
	}
	return nil
}

// lockDatabase keeps other standalone installations away. They would run a second Temporal on the
// databases of the first, and take each other's history shards and workflows. Temporal's database is
// locked, because a PostgreSQL has one, whatever the product's is called. Processes that run the
// roles apart are free to use the product's.
func (i *instance) lockDatabase(ctx context.Context) error {
	temporalURL, err := temporald.CreateDatabases(ctx, i.command.DatabaseURL)
	if err != nil {
		return err
	}
	lock, err := app.TakeSoleUse(ctx, temporalURL, i.log)
	if err != nil {
		return err
	}
	i.push(func(context.Context) { lock.Release() })
	go func() {
		<-lock.Done()
		if err := lock.Err(); err != nil {
			i.failed <- fmt.Errorf("PostgreSQL cannot be used any more: %w", err)
		}
	}()
	return nil
}

// startCluster starts the private PostgreSQL, which is started again whenever it
// dies, after installing it if it is not there.
func (i *instance) startCluster(ctx context.Context, o localpg.Options) (*localpg.Supervised, error) {
	cluster, err := localpg.Supervise(ctx, o)
	if errors.Is(err, localpg.ErrNotInstalled) {
		i.log.InfoContext(ctx, "PostgreSQL is not installed; installing it")
		if err := localpg.Install(ctx); err != nil {
			return nil, err
		}
		cluster, err = localpg.Supervise(ctx, o)
	}
	return cluster, err
}

// startEngine starts Temporal and its Web UI.
func (i *instance) startEngine(ctx context.Context) error {
	attributes := map[string]enumspb.IndexedValueType{}
	for _, name := range workflows.KeywordAttributes() {
		attributes[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	for _, name := range workflows.KeywordListAttributes() {
		attributes[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST
	}
	var err error
	i.temporal, err = temporald.Start(ctx, temporald.Options{
		DatabaseURL: i.command.DatabaseURL, Listen: i.command.TemporalListen, Namespace: client.DefaultNamespace, Retention: i.command.TemporalRetention,
		Shards: int(i.command.Shards), SearchAttributes: attributes, Logger: i.log,
		PruneVisibilityIndexes: i.private,
	})
	if err != nil {
		return namePort("EVERPOST_TEMPORAL_LISTEN", err)
	}
	i.push(func(ctx context.Context) {
		end, _ := ctx.Deadline()
		ctx, cancel := context.WithDeadline(ctx, end.Add(-databaseTime))
		defer cancel()
		if err := i.temporal.Stop(ctx); err != nil {
			i.log.ErrorContext(ctx, "Temporal did not stop in good order", "error", err)
		}
	})
	go func() {
		<-i.temporal.Done()
		i.failed <- fmt.Errorf("the embedded Temporal ended: %w", i.temporal.Err())
	}()
	i.ui, err = webui.Start(ctx, webui.Options{
		Listen: i.command.UIListen, Hosts: hosts.Allowed(i.command.UIHosts),
		Temporal: i.temporal.Address(), Namespace: client.DefaultNamespace, Logger: i.log,
	})
	if err != nil {
		return namePort("EVERPOST_UI_LISTEN", err)
	}
	i.push(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, uiTime)
		defer cancel()
		if err := i.ui.Stop(ctx); err != nil {
			i.log.ErrorContext(ctx, "the Web UI did not stop in good order", "error", err)
		}
	})
	return nil
}

// namePort adds to the error of a port that is taken which setting to change.
func namePort(setting string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err // says what it did
	}
	return fmt.Errorf("%s: %w; is another process using it? Choose another address, or port 0 for a free one", setting, err)
}

// startProduct starts API and worker on one Temporal client, and the receiver of
// the demonstration before them: it may have deliveries waiting.
func (i *instance) startProduct(ctx context.Context) error {
	var err error
	exists := func(ctx context.Context) (bool, error) { return app.DemoExists(ctx, i.command.Config, i.log) }
	if i.demo, err = openDemonstration(ctx, i.command.DataDir, i.command.Demo, exists, i.log); err != nil {
		return err
	}
	i.push(func(context.Context) { i.demo.stop() })
	i.app, err = app.New(ctx, app.Options{
		Config: i.command.Config, Version: i.process.Version, Logger: i.log, API: true, Worker: true,
		Temporal: client.Options{HostPort: i.temporal.Address(), Namespace: client.DefaultNamespace},
		UIURL:    i.ui.URL(), WorkflowsKept: i.command.TemporalRetention,
		EventIDs: temporald.AttributeBytes / workflows.EventIDBytes, Exempt: i.demo.exemption(), Owner: i.owner(), SoleWorker: i.private,
	})
	if err != nil {
		return err
	}
	if err := i.app.Start(ctx); err != nil {
		return err
	}
	i.push(func(context.Context) { i.app.Stop() }) //nolint:contextcheck // has a deadline of its own, within this one
	return nil
}

// owner names the process in claims. The lock on the data directory lets one
// instance at a time use the private database, so what an instance before this one
// has claimed can be taken over at once.
func (i *instance) owner() string {
	if i.private {
		return "standalone"
	}
	return ""
}

// announce says that all is up, and shows the demonstration.
func (i *instance) announce(ctx context.Context) error {
	_, err := fmt.Fprintf(i.process.Stdout, "ready api=http://%s admin=http://%s ui=%s temporal=%s key_file=%s\n",
		i.app.APIAddr(), i.app.AdminAddr(), i.ui.URL(), i.temporal.Address(), i.keyFile())
	if err != nil {
		return err //nolint:wrapcheck // standard output
	}
	return i.demo.show(ctx, i.process.Stdout, i.app, "http://"+i.app.APIAddr(), i.keyFile())
}
