package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
)

// checkTimeout bounds one check. Temporal gets half of it: the SDK repeats a call that fails.
const checkTimeout = 10 * time.Second

// Finding is what a check found.
type Finding = console.Finding

// VerdictProblem is the verdict of a check that failed.
const VerdictProblem = console.VerdictProblem

// Installation is what Diagnose checks.
type Installation struct {
	Config  config.Config // valid: see Validate
	Version string        // of this release
	Unknown []string      // EVERPOST_ variables in the environment that no setting has

	// DataDir is that of a standalone installation; "" for others.
	DataDir string
	// DatabaseErr is why the database of a standalone installation was not found.
	DatabaseErr error

	// Admin is the address of the admin listener of the process that runs, and OperatorKey what it may ask for; AdminErr is why that is
	// not known. Without both, the settings are those of the process.
	Admin, OperatorKey string
	AdminErr           error

	Temporal    client.Options
	TemporalErr error // why Temporal's settings cannot be used

	Logger *slog.Logger
}

// diagnosis is one run of the checks.
type diagnosis struct {
	Installation

	store  *stores.DB // nil if the database cannot be used
	facts  postgres.Facts
	engine client.Client // nil if Temporal or its namespace cannot be used
}

// Diagnose checks an installation without changing it. The findings are in the order in which problems should be fixed.
func Diagnose(ctx context.Context, i Installation) []Finding {
	c := &diagnosis{Installation: i}
	defer c.close()
	var all []Finding
	for _, check := range []struct {
		name          string
		run           func(context.Context) Finding
		needsDatabase bool
	}{
		{"settings", c.settings, false}, {"process", c.process, false}, {"database", c.database, false}, {"schema", c.schema, true}, {"roles", c.roles, true},
		{"capacity", c.capacity, true},
		{"clock", c.clock, true}, {"keys", c.keys, false}, {"temporal", c.temporal, false}, {"workers", c.workers, false}, {"lanes", c.lanes, true},
		{"backlog", c.backlog, true}, {"egress", c.egress, false}, {"mail", c.mail, false}, {"disk", c.disk, false},
	} {
		f := skipped("the database cannot be used")
		if !check.needsDatabase || c.store != nil {
			within, cancel := context.WithTimeout(ctx, checkTimeout)
			f = check.run(within)
			cancel()
		}
		f.Check = check.name
		all = append(all, f)
	}
	return all
}

func (c *diagnosis) close() {
	if c.store != nil {
		c.store.Close()
	}
	if c.engine != nil {
		c.engine.Close()
	}
}

func ok(format string, args ...any) Finding {
	return Finding{Verdict: console.VerdictOK, Detail: fmt.Sprintf(format, args...)}
}

func skipped(why string) Finding { return Finding{Verdict: console.VerdictSkipped, Detail: why} }

func problem(detail, remedy string) Finding {
	return Finding{Verdict: VerdictProblem, Detail: detail, Remedy: remedy}
}

func warning(detail, remedy string) Finding {
	return Finding{Verdict: console.VerdictWarning, Detail: detail, Remedy: remedy}
}

// standalone reports whether this is a standalone installation with a PostgreSQL of its own.
func (c *diagnosis) standalone() bool { return c.DataDir != "" }

// oneLine is an error in one line: joined errors, and some of the driver's, have several.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
