package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
)

// ServeCommand runs API and worker.
type ServeCommand struct {
	config.Config `embed:""`

	UIURL string `env:"EVERPOST_UI_URL" help:"Address of the Temporal Web UI, for links to workflows." name:"ui-url" placeholder:"URL"`
}

// Run runs until a signal.
func (c *ServeCommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, c.UIURL, true, true)
}

// APICommand runs the API alone.
type APICommand struct {
	config.Config `embed:""`

	UIURL string `env:"EVERPOST_UI_URL" help:"Address of the Temporal Web UI, for links to workflows." name:"ui-url" placeholder:"URL"`
}

// Run runs until a signal.
func (c *APICommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, c.UIURL, true, false)
}

// WorkerCommand runs a worker alone.
type WorkerCommand struct {
	config.Config `embed:""`
}

// Run runs until a signal.
func (c *WorkerCommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, "", false, true)
}

func serve(ctx context.Context, p Process, c config.Config, uiURL string, withAPI, withWorker bool) error {
	logger := p.Logger(c.LogLevel)
	if err := c.RequireCluster(true); err != nil {
		return err
	}
	// TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and so on: Temporal's own conventions.
	temporal, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return fmt.Errorf("settings of Temporal: %w", err)
	}
	if err := refuseOpen(temporal.HostPort, temporal.ConnectionOptions.TLS != nil || temporal.ConnectionOptions.TLSDisabled); err != nil {
		return err
	}
	a, err := app.New(ctx, app.Options{
		Config: c, Version: p.Version, Logger: logger, API: withAPI, Worker: withWorker, Temporal: temporal, UIURL: uiURL,
	})
	if err != nil {
		return err
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

// MigrateCommand brings the database up to date.
type MigrateCommand struct {
	DatabaseURL string `env:"EVERPOST_DATABASE_URL" help:"PostgreSQL of the product, as a postgres:// URL." placeholder:"URL" required:""`
	LogLevel    string `default:"info" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Least level of log lines." placeholder:"LEVEL"`
}

// Run migrates.
func (c *MigrateCommand) Run(ctx context.Context, p Process) error {
	if err := app.Migrate(ctx, config.Config{DatabaseURL: c.DatabaseURL}, p.Logger(c.LogLevel)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.Stdout, "the database is up to date")
	return err //nolint:wrapcheck // standard output
}

// VersionCommand prints the version.
type VersionCommand struct{}

// Run prints it.
func (VersionCommand) Run(p Process) error {
	_, err := fmt.Fprintln(p.Stdout, "everpost "+p.Version)
	return err //nolint:wrapcheck // standard output
}

// refuseOpen is an error when Temporal would be spoken to in the clear over a network.
// settled says that it is not, or that somebody has asked for it.
func refuseOpen(address string, settled bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if settled || host == "" || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("TEMPORAL_ADDRESS: %s would be spoken to without TLS; set TEMPORAL_TLS=true, or =false where the network may be trusted", address)
}
