package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/printable"
)

// DoctorCommand checks an installation.
type DoctorCommand struct {
	config.Config `embed:""`

	DataDir        string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Data directory of 'everpost standalone'." placeholder:"DIR"`
	TemporalListen string `env:"EVERPOST_TEMPORAL_LISTEN" help:"Address of its embedded Temporal. Without one: of the one that runs in the data directory, or else 127.0.0.1:7233." placeholder:"HOST:PORT"` //nolint:lll // a struct tag cannot be wrapped
	JSON           bool   `help:"Print JSON." name:"json"`
}

// Help returns the help that the flags do not contain.
func (*DoctorCommand) Help() string {
	return "Run it with the same settings as the process to check: 'everpost serve', 'api', 'worker' or 'standalone'. " +
		"It asks that process for its settings, and names those that differ. It changes nothing. " +
		"The exit code is 1 if it finds a problem.\n\n" + temporalSettings
}

// errProblems is the error when a check finds a problem.
var errProblems = errors.New("there are problems: see above")

// Run checks the installation and prints the findings.
func (c *DoctorCommand) Run(ctx context.Context, p Process) error {
	logger := p.Logger("error")
	installation := app.Installation{Version: p.Version, Unknown: config.Unknown(p.Environ, Settings()), Logger: logger}
	if c.DatabaseURL == "" && p.FindDatabase != nil {
		c.findStandalone(p, &installation)
	} else {
		installation.Temporal, installation.TemporalErr = temporalOptions(logger)
		installation.Admin, installation.AdminErr = c.adminAddress()
	}
	installation.Config = c.Config
	findings := app.Diagnose(ctx, installation)
	problems := 0
	for _, f := range findings {
		if f.Verdict == app.VerdictProblem {
			problems++
		}
	}
	if err := c.print(p, findings, problems == 0); err != nil {
		return err
	}
	if problems > 0 {
		return errProblems
	}
	return nil
}

// defaultTemporal is the address of the Temporal of an installation that was started without settings.
const defaultTemporal = "127.0.0.1:7233"

// findStandalone sets where a standalone installation has its database, its key and its Temporal.
func (c *DoctorCommand) findStandalone(p Process, i *app.Installation) {
	i.DataDir = c.DataDir
	if absolute, err := filepath.Abs(c.DataDir); err == nil {
		i.DataDir = absolute
	}
	c.DatabaseURL, i.DatabaseErr = p.FindDatabase(i.DataDir)
	c.AddOwn(config.OwnKEKFile(i.DataDir))
	if i.Admin, i.AdminErr = runningAt(i.DataDir, adminAddressFile, ""); i.Admin == "" && i.AdminErr == nil {
		i.AdminErr = errors.New("no process runs in the data directory")
	}
	i.OperatorKey, _ = readLine(filepath.Join(i.DataDir, operatorKeyFile)) // without one, a listener beyond loopback says nothing
	i.Temporal.HostPort = c.TemporalListen
	if c.TemporalListen == "" || strings.HasSuffix(c.TemporalListen, ":0") { // a free port
		i.Temporal.HostPort, i.TemporalErr = runningAt(i.DataDir, temporalAddressFile, defaultTemporal)
	}
}

// adminAddress is where a process with the same settings answers.
func (c *DoctorCommand) adminAddress() (string, error) {
	if strings.HasSuffix(c.AdminListen, ":0") {
		return "", errors.New("EVERPOST_ADMIN_LISTEN is a free port: its number is not known here")
	}
	return dialable(c.AdminListen)
}

func (c *DoctorCommand) print(p Process, findings []app.Finding, healthy bool) error {
	if c.JSON {
		text, err := json.Marshal(struct {
			Version string        `json:"version"`
			OK      bool          `json:"ok"`
			Checks  []app.Finding `json:"checks"`
		}{p.Version, healthy, findings})
		if err == nil {
			_, err = fmt.Fprintln(p.Stdout, string(text))
		}
		return err
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", f.Verdict, f.Check, printable.Text(f.Detail))
		if f.Remedy != "" {
			_, _ = fmt.Fprintf(table, "\t\t→ %s\n", printable.Text(f.Remedy))
		}
	}
	return table.Flush()
}
