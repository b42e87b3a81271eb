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

	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/hosts"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/standalone/internal/temporald"
	"github.com/everpost/everpost/standalone/internal/webui"
	"github.com/everpost/everpost/workflows"
)

const (
	startTimeout = 2 * time.Minute // enough for a first start on a slow machine

	// stopTimeout bounds the whole stop, for which 40 s are documented: first the
	// application, then engineTime for the Web UI, Temporal and PostgreSQL, of which
	// databaseTime is for PostgreSQL alone. uiTime is for the Web UI's requests, which may
	// be long polls of half a minute and lose nothing when cut off.
	stopTimeout  = app.StopTime + engineTime
	engineTime   = 5 * time.Second
	databaseTime = 2 * time.Second
	uiTime       = 500 * time.Millisecond

	// garbageTarget trades memory for CPU: most of what a delivery allocates is garbage a
	// moment later. memoryLimit makes the collector run more often near the limit. GOGC and
	// GOMEMLIMIT override them. Memory of a burst is returned to the system after idleAfter
	// without a collection.
	garbageTarget = 400
	memoryLimit   = 480 << 20
	idleAfter     = 30 * time.Second
)

// standaloneCommand runs everything in one process tree.
type standaloneCommand struct {
	config.Config     `embed:""`
	config.Standalone `embed:""`
}

// Run runs until a signal, or until an essential part has failed.
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
			return nil // stopped by a signal during the start
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

// trimWhenIdle returns memory to the system once after each burst: Go itself keeps as much
// as its next collection may need, which after a burst is a lot.
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
			trimmed = stats.NumGC + 1 // FreeOSMemory runs a collection
		}
		before = stats.NumGC
	}
}

// instance is a running installation.
type instance struct {
	command *standaloneCommand
	process cli.Process
	log     *slog.Logger

	private  bool // PostgreSQL is this instance's own
	temporal *temporald.Server
	uiAt     *webui.Bound
	ui       *webui.UI
	app      *app.App
	demo     *demonstration

	failed chan error
	stops  []func(context.Context) // in the order of starting
}

func (i *instance) push(stop func(context.Context)) { i.stops = append(i.stops, stop) }

// stop stops the parts in the reverse order of their start within one deadline: the
// Web UI, the application, Temporal, PostgreSQL. It also runs when ctx is done.
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

// openDataDir creates and locks the data directory.
func (i *instance) openDataDir(ctx context.Context) (*localpg.Lock, error) {
	lock, err := localpg.LockDir(ctx, i.command.DataDir, i.log)
	if err != nil {
		return nil, err
	}
	i.push(func(context.Context) { lock.Release() })
	return lock, nil
}

// startDatabase starts the private PostgreSQL, unless a database URL is set, and migrates
// Everpost's tables.
func (i *instance) startDatabase(ctx context.Context, lock *localpg.Lock) error {
	i.private = i.command.DatabaseURL == ""
	if i.private {
		cluster, err := i.startCluster(ctx, localpg.Options{Dir: i.command.DataDir, Lock: lock, Log: i.log})
		if err != nil {
			return err
		}
		i.push(func(ctx context.Context) {
			if err := cluster.Stop(ctx); err != nil {
				i.log.ErrorContext(ctx, "PostgreSQL did not stop cleanly", "error", err)
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

// lockDatabase keeps other standalone installations from using the same PostgreSQL. They
// would run a second Temporal on the databases of the first, and take its history shards
// and workflows. The lock is on Temporal's database, because there is one for each
// PostgreSQL, whatever the name of Everpost's. Processes of the cluster binary may use
// Everpost's database.
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

// startCluster starts the private PostgreSQL under supervision. If PostgreSQL is missing,
// it installs it first.
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

// startEngine starts Temporal, and opens the listener of its Web UI.
func (i *instance) startEngine(ctx context.Context) error {
	var err error
	i.temporal, err = temporald.Start(ctx, temporald.Options{
		DatabaseURL: i.command.DatabaseURL, Listen: i.command.TemporalListen, Namespace: client.DefaultNamespace, Retention: i.command.TemporalRetention,
		Shards: int(i.command.Shards), SearchAttributes: namespace.WorkflowAttributes(), Logger: app.TemporalLogger(i.log),
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
			i.log.ErrorContext(ctx, "Temporal did not stop cleanly", "error", err)
		}
	})
	go func() {
		<-i.temporal.Done()
		i.failed <- fmt.Errorf("the embedded Temporal ended: %w", i.temporal.Err())
	}()
	if i.uiAt, err = webui.Listen(ctx, i.command.UIListen); err != nil {
		return namePort("EVERPOST_UI_LISTEN", err)
	}
	i.push(func(context.Context) { _ = i.uiAt.Close() })
	return nil
}

// startUI starts the Web UI. Beyond loopback it asks for the console's session, so the application runs by now.
func (i *instance) startUI(ctx context.Context) error {
	o := webui.Options{
		Bound: i.uiAt, Hosts: hosts.Allowed(i.command.UIHosts),
		Temporal: i.temporal.Address(), Namespace: client.DefaultNamespace, Logger: app.TemporalLogger(i.log),
	}
	if !i.uiAt.Loopback() {
		o.Authorize = i.app.IsConsoleOperator
	}
	var err error
	if i.ui, err = webui.Start(ctx, o); err != nil {
		return err
	}
	i.push(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, uiTime)
		defer cancel()
		if err := i.ui.Stop(ctx); err != nil {
			i.log.ErrorContext(ctx, "the Web UI did not stop cleanly", "error", err)
		}
	})
	return nil
}

// namePort adds to the error of an occupied port the setting that changes the port.
func namePort(setting string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err // already describes the failure
	}
	return fmt.Errorf("%s: %w; is another process using it? Choose another address, or port 0 for a free one", setting, err)
}

// startProduct starts the API and the worker with one Temporal client. The demonstration's
// receiver starts before them: deliveries to it may be waiting.
func (i *instance) startProduct(ctx context.Context) error {
	var err error
	exists := func(ctx context.Context) (bool, error) { return app.DemoExists(ctx, i.command.Config, i.log) }
	if i.demo, err = openDemonstration(ctx, i.command.DataDir, i.command.Demo, exists, i.log); err != nil {
		return err
	}
	i.push(func(context.Context) { i.demo.stop() })
	if i.command.LaneListen == config.LaneAuto {
		i.command.LaneListen = config.LaneOff // there is one process
	}
	i.app, err = app.New(ctx, app.Options{
		Config: i.command.Config, Version: i.process.Version, Logger: i.log, API: true, Worker: true,
		Temporal: client.Options{HostPort: i.temporal.Address(), Namespace: client.DefaultNamespace},
		UIURL:    i.uiAt.URL(), UISession: !i.uiAt.Loopback(), WorkflowsKept: i.command.TemporalRetention,
		MaxEventIDs: temporald.AttributeBytes / workflows.EventIDBytes, Exempt: i.demo.exemption(), Process: i.processName(),
		DataDir: i.ownDataDir(), Listeners: append(i.temporal.Listeners(), i.uiAt.AddrPort()),
	})
	if err != nil {
		return err
	}
	if err := i.app.Start(ctx); err != nil {
		return err
	}
	i.push(func(context.Context) { i.app.Stop() }) //nolint:contextcheck // has a deadline of its own, within this one
	if err := i.startUI(ctx); err != nil {
		return err
	}
	return i.writeAddresses()
}

// ownDataDir is the data directory if it holds the database.
func (i *instance) ownDataDir() string {
	if i.private {
		return i.command.DataDir
	}
	return ""
}

// processName is the process's name in claims. Only one instance at a time uses the private
// database (see openDataDir), so it can take over the claims of its predecessor at once.
func (i *instance) processName() string {
	if i.private {
		return "standalone"
	}
	return ""
}

// announce prints the addresses and shows the demonstration.
func (i *instance) announce(ctx context.Context) error {
	if err := i.announceConsole(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(i.process.Stdout, "ready api=http://%s admin=http://%s ui=%s temporal=%s key_file=%s\n",
		i.app.APIAddr(), i.app.AdminAddr(), i.ui.URL(), i.temporal.Address(), i.keyFile())
	if err != nil {
		return err
	}
	return i.demo.show(ctx, i.process.Stdout, i.app, "http://"+i.app.APIAddr(), i.keyFile())
}

// announceConsole prints a link that opens the console without a key, once, on a terminal. Elsewhere it would be kept in a log, so
// there it says how to get one.
func (i *instance) announceConsole(ctx context.Context) error {
	if !i.process.OnTerminal() {
		if i.command.ConsoleSwitch == "off" {
			return nil
		}
		_, err := fmt.Fprintf(i.process.Stdout, "console http://%s/console ('everpost console-link' makes a link that logs in)\n", i.app.APIAddr())
		return err
	}
	key, err := os.ReadFile(i.keyFile())
	if err != nil {
		return fmt.Errorf("read the operator key: %w", err)
	}
	link, err := i.app.ConsoleLogIn(ctx, credential.Trim(string(key)))
	switch {
	case err != nil:
		i.log.WarnContext(ctx, "there is no link to the console; log in with the operator key", "error", err)
		return nil
	case link == "":
		return nil
	}
	_, err = fmt.Fprintf(i.process.Stdout, "console %s (logs in once, within the hour)\n", link)
	return err
}
