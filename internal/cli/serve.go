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

// temporalSettings is the part of the help on Temporal's settings, which come from the
// environment only and are not Everpost's.
const temporalSettings = `Where Temporal is, by its own conventions, from the environment:

  TEMPORAL_ADDRESS         host:port (default localhost:7233)
  TEMPORAL_NAMESPACE       namespace (default "default")
  TEMPORAL_API_KEY         API key, of Temporal Cloud
  TEMPORAL_TLS             true or false; required for another machine
  TEMPORAL_TLS_SERVER_CA_CERT_PATH, TEMPORAL_TLS_SERVER_NAME
                           certificates to trust, and the name in the server's
  TEMPORAL_TLS_CLIENT_CERT_PATH, TEMPORAL_TLS_CLIENT_KEY_PATH
                           certificate and key of this client
  TEMPORAL_CONFIG_FILE, TEMPORAL_PROFILE
                           a file of Temporal's with all of this, and a profile in it

GOGC and GOMEMLIMIT tune the garbage collector, as in every Go program.`

// ServeCommand runs API and worker.
type ServeCommand struct {
	config.Config `embed:""`
	config.WebUI  `embed:""`
}

// Help returns the help that the flags do not contain.
func (*ServeCommand) Help() string { return temporalSettings }

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
func (*APICommand) Help() string { return temporalSettings }

// Run runs until a signal.
func (c *APICommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, c.UIURL, true, false)
}

// WorkerCommand runs a worker alone.
type WorkerCommand struct {
	config.Config `embed:""`
}

// Help returns the help that the flags do not contain.
func (*WorkerCommand) Help() string { return temporalSettings }

// Run runs until a signal.
func (c *WorkerCommand) Run(ctx context.Context, p Process) error {
	return serve(ctx, p, c.Config, "", false, true)
}

func serve(ctx context.Context, p Process, c config.Config, uiURL string, withAPI, withWorker bool) error {
	logger := p.Logger(c.LogLevel)
	if err := c.RequireCluster(true); err != nil {
		return Usage(err)
	}
	// TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and so on: Temporal's own conventions.
	temporal, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return usagef("settings of Temporal: %w", err)
	}
	if err := requireTemporalTLS(temporal.HostPort, temporal.ConnectionOptions.TLS != nil || temporal.ConnectionOptions.TLSDisabled); err != nil {
		return Usage(err)
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
	LogLevel    string `default:"info" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Least level of log lines." placeholder:"LEVEL"`
}

// Run migrates.
func (c *MigrateCommand) Run(ctx context.Context, p Process) error {
	if err := checkDatabase(c.DatabaseURL); err != nil {
		return err
	}
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

// requireTemporalTLS returns an error when the connection to Temporal would be unencrypted
// over a network. settled reports that TLS is on, or that the operator has turned it off
// explicitly.
func requireTemporalTLS(address string, settled bool) error {
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
