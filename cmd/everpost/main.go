// Command everpost runs Everpost against a given PostgreSQL and Temporal: API, worker, or
// both. The standalone binary, which includes both, has the same commands and the command
// standalone.
package main

import (
	"os"

	"github.com/everpost/everpost/internal/cli"
)

var version = "dev" // set by the linker

func main() {
	os.Exit(cli.Main(cli.Process{Version: version, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}, os.Args[1:], &cli.Commands{}))
}
