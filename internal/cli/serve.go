package cli

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
)

// runtimeSettings is the part of the help on the settings of the Go runtime.
const runtimeSettings = `
GOGC and GOMEMLIMIT tune the garbage collector, as in every Go program.`

// ServeCommand runs API and worker.
type ServeCommand struct {
	config.Config `embed:""`
	config.WebUI  `embed:""`
}

// Help returns the help that the flags do not contain.
func (*ServeCommand) Help() string { return temporalSettings + runtimeSettings }

// Run runs until a signal.
func (c *ServeCommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, c.UIURL, true, true)
}

// APICommand runs the API alone.
type APICommand struct {
	config.Config `embed:""`
	config.WebUI  `embed:""`
}

// Help returns the help that the flags do not contain.
func (*APICommand) Help() string { return temporalSettings + runtimeSettings }

// Run runs until a signal.
func (c *APICommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, c.UIURL, true, false)
}

// WorkerCommand runs a worker alone.
type WorkerCommand struct {
	config.Config `embed:""`
}

// Help returns the help that the flags do not contain.
func (*WorkerCommand) Help() string { return temporalSettings + runtimeSettings }

// Run runs until a signal.
func (c *WorkerCommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, "", false, true)
}

func serve(ctx context.Context, p Process, c config.Config, uiURL string, withAPI, withWorker bool) error {
	logger := p.Logger(c.LogLevel)
	if err := c.RequireCluster(true); err != nil {
		return Usage(err)
	}
	temporal, err := temporalOptions(logger)
	if err != nil {
		return err
	}
	a, err := app.New(ctx, app.Options{
		Config: c, Version: p.Version, Logger: logger, API: withAPI, Worker: withWorker, Temporal: temporal, UIURL: uiURL,
	})
	if err != nil {
		return Usage(err) // an error in the configuration: nothing was started
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	ready := "ready"
	if withAPI {
		ready += " api=http://" + a.APIAddr()
	}
	if _, err := fmt.Fprintln(p.Stdout, ready+" admin=http://"+a.AdminAddr()); err != nil {
		logger.WarnContext(ctx, "standard output is closed", "error", err)
	}
	<-ctx.Done()
	a.Stop() //nolint:contextcheck // stops although ctx has ended
	return nil
}

// MigrateCommand migrates the database.
type MigrateCommand struct {
	DatabaseURL string `env:"EVERPOST_DATABASE_URL" help:"PostgreSQL of the product, as a postgres:// URL." placeholder:"URL" required:""`
	Check       bool   `help:"Only check whether the database is up to date; exit with 1 if not."`
	LogLevel    string `default:"info" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Lowest level of log lines." placeholder:"LEVEL"`
}

// Run migrates.
func (c *MigrateCommand) Run(ctx context.Context, p Process) error {
	if err := checkDatabase(&c.DatabaseURL); err != nil {
		return err
	}
	if c.Check {
		if err := app.CheckMigrated(ctx, c.DatabaseURL, p.Logger(c.LogLevel)); err != nil {
			return err
		}
	} else if err := app.Migrate(ctx, config.Config{DatabaseURL: c.DatabaseURL}, p.Logger(c.LogLevel)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.Stdout, "the database is up to date")
	return err
}

// VersionCommand prints the version.
type VersionCommand struct{}

// Run prints it.
func (VersionCommand) Run(p Process) error {
	_, err := fmt.Fprintln(p.Stdout, "everpost "+p.Version)
	return err
}
