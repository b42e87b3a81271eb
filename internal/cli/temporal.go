package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/everpost/everpost/internal/app"
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
`

// temporalOptions returns how to reach Temporal: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and so
// on, Temporal's own conventions.
func temporalOptions() (client.Options, error) {
	o, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return o, usagef("settings of Temporal: %w", err)
	}
	if err := requireTemporalTLS(o.HostPort, o.ConnectionOptions.TLS != nil || o.ConnectionOptions.TLSDisabled); err != nil {
		return o, Usage(err)
	}
	return o, nil
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
	return fmt.Errorf("TEMPORAL_ADDRESS: the connection to %s would not be encrypted; "+
		"set TEMPORAL_TLS=true, or =false where the network may be trusted", address)
}

// SetupTemporalCommand sets up Everpost's namespace in Temporal.
type SetupTemporalCommand struct {
	Retention time.Duration `help:"How long Temporal keeps workflows that have ended, 1h or more. Without it, a new namespace keeps them 24h, and an existing one stays as it is." placeholder:"DURATION"` //nolint:lll // a struct tag cannot be wrapped
	Wait      time.Duration `default:"2m" help:"How long to wait for Temporal." placeholder:"DURATION"`
	LogLevel  string        `default:"warn" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Lowest level of log lines." placeholder:"LEVEL"`
}

// Help returns the help that the flags do not contain.
func (*SetupTemporalCommand) Help() string {
	return "Creates the namespace and Everpost's search attributes as far as they are missing, and changes nothing else. " +
		"Run it once before the first start, and after an upgrade.\n\n" + temporalSettings
}

// Run sets up the namespace and prints what it did.
func (c *SetupTemporalCommand) Run(ctx context.Context, p Process) error {
	if c.Retention != 0 && c.Retention < time.Hour {
		return usagef("--retention: %s: Temporal keeps workflows for 1h or more", c.Retention)
	}
	if c.Wait <= 0 {
		return usage("--wait: must be positive")
	}
	o, err := temporalOptions()
	if err != nil {
		return err
	}
	done, err := app.SetupNamespace(ctx, o, c.Retention, c.Wait, p.Logger(c.LogLevel))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Stdout, describeSetup(app.NamespaceName(o), done))
	return err //nolint:wrapcheck // standard output
}

// describeSetup says what was created and changed, and that the rest was there.
func describeSetup(name string, done app.NamespaceSetup) string {
	state := "exists"
	if done.Created {
		state = "created"
	}
	text := fmt.Sprintf("namespace %s: %s, keeps workflows that have ended for %s", name, state, hours(done.Retention))
	if done.OldRetention != 0 {
		text += fmt.Sprintf(" (before: %s)", hours(done.OldRetention))
	}
	if len(done.Added) > 0 {
		return text + "\nsearch attributes: created " + strings.Join(done.Added, ", ")
	}
	return text + "\nsearch attributes: all exist"
}

// hours formats a retention, in hours if it is whole ones.
func hours(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return d.String()
}
