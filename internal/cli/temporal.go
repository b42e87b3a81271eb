package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/temporalconn"
)

// temporalSettings is the part of the help on Temporal's settings, which come from the
// environment only and are not Everpost's, except TEMPORAL_API_KEY_FILE.
const temporalSettings = `Where Temporal is, by its own conventions, from the environment:

  TEMPORAL_ADDRESS         host:port (default localhost:7233)
  TEMPORAL_NAMESPACE       namespace (default "default")
  TEMPORAL_API_KEY, TEMPORAL_API_KEY_FILE
                           API key, of Temporal Cloud; or a file with it
  TEMPORAL_TLS             true or false; required for another machine
  TEMPORAL_TLS_SERVER_CA_CERT_PATH, TEMPORAL_TLS_SERVER_NAME
                           certificates to trust, and the name in the server's
  TEMPORAL_TLS_CLIENT_CERT_PATH, TEMPORAL_TLS_CLIENT_KEY_PATH
                           certificate and key of this client; these files, the one
                           above and the API key's are read again when they are replaced
  TEMPORAL_CONFIG_FILE, TEMPORAL_PROFILE
                           a file of Temporal's with all of this, and a profile in it
`

// temporalOptions returns how to reach Temporal.
func temporalOptions(logger *slog.Logger) (client.Options, error) {
	o, err := temporalconn.Load(nil, logger)
	if err != nil {
		return o, Usage(err)
	}
	return o, nil
}

// SetupTemporalCommand sets up Everpost's namespace in Temporal.
type SetupTemporalCommand struct {
	Retention   time.Duration `help:"How long Temporal keeps workflows that have ended, 1h or more. Without it, a new namespace keeps them 24h, and an existing one stays as it is." placeholder:"DURATION"` //nolint:lll // a struct tag cannot be wrapped
	MakeCurrent bool          `help:"Instead, make this release the current version of the workers (EVERPOST_WORKER_VERSIONING), as soon as one polls."`
	Wait        time.Duration `default:"2m" help:"How long to wait for Temporal." placeholder:"DURATION"`
	LogLevel    string        `default:"warn" enum:"debug,info,warn,error" env:"EVERPOST_LOG_LEVEL" help:"Lowest level of log lines." placeholder:"LEVEL"`
}

// Help returns the help that the flags do not contain.
func (*SetupTemporalCommand) Help() string {
	return "Creates the namespace and Everpost's search attributes as far as they are missing, and changes nothing else. " +
		"Run it once before the first start, and after an upgrade. " +
		"With --make-current it sets up nothing, and makes this release the current version of the workers.\n\n" + temporalSettings
}

// Run sets up the namespace and prints what it did.
func (c *SetupTemporalCommand) Run(ctx context.Context, p Process) error {
	if c.Retention != 0 && c.Retention < time.Hour {
		return usagef("--retention: %s: Temporal keeps workflows for 1h or more", c.Retention)
	}
	if c.MakeCurrent && c.Retention != 0 {
		return usage("--make-current: sets up nothing, so --retention has no effect; leave one of them out")
	}
	if c.Wait <= 0 {
		return usage("--wait: must be positive")
	}
	logger := p.Logger(c.LogLevel)
	o, err := temporalOptions(logger)
	if err != nil {
		return err
	}
	if c.MakeCurrent {
		before, err := app.MakeCurrent(ctx, o, p.Version, c.Wait, logger)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Stdout, "workers: %s is the current version (before: %s)\n", p.Version, cmp.Or(before, "without a version"))
		return err
	}
	done, err := app.SetupNamespace(ctx, o, c.Retention, c.Wait, logger)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Stdout, describeSetup(app.NamespaceName(o), done))
	return err
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
