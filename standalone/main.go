// Command everpost is a whole installation in one binary: PostgreSQL (installed on the
// machine), Temporal and its Web UI (embedded), the API and a worker. It also has the
// commands of the cluster binary.
package main

import (
	"os"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/localpg"
)

var version = "dev" // set by the linker

type commandLine struct {
	Standalone   standaloneCommand `cmd:"" help:"Run a whole installation: PostgreSQL, Temporal, Web UI, API and worker."`
	cli.Commands `embed:""`
}

func main() {
	os.Exit(cli.Main(cli.Process{
		Version: version, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
		FindDatabase: func(dataDir string) (string, error) { return localpg.RunningURL(dataDir, localpg.Database) },
	}, os.Args[1:], &commandLine{}))
}
