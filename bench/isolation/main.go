// Command isolation measures that an unhealthy receiver does not affect other endpoints and
// is not overloaded when it recovers.
//
// It starts `everpost standalone` on free ports in a temporary directory, one installation
// for each scenario, runs all receivers itself, and prints the figures and whether they
// meet the criteria. It exits with 1 when one is not met.
//
//	isolation [flags]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/everpost/everpost/bench/internal/installation"
)

func main() { installation.Main("isolation", command) }

// command is main with its arguments and outputs as parameters.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, results, err := parse(args, stderr)
	if err != nil {
		return err
	}
	r, err := measureAll(ctx, o)
	if r == nil {
		return err
	}
	if printErr := r.render(stdout); printErr != nil {
		return errors.Join(err, printErr)
	}
	if err == nil && results != "" {
		var path string
		if path, err = r.keep(results); err == nil {
			_, _ = fmt.Fprintln(stderr, "kept as", path)
		}
	}
	return errors.Join(err, r.sound())
}

// parse parses the command line. results is the directory for the figures, empty for none.
func parse(args []string, stderr io.Writer) (o options, results string, err error) {
	o = options{settings: map[string]string{}, size: fullSize(), progress: stderr}
	var (
		only      string
		quick     bool
		endpoints int
	)
	flags := flag.NewFlagSet("isolation", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.binary, "binary", "bin/everpost", "the `file` to measure")
	flags.StringVar(&only, "only", "", "`names` of scenarios, separated by commas: "+strings.Join(scenarioNames(), ", "))
	flags.BoolVar(&quick, "quick", false, "much less of everything: to see that it runs; its figures say little")
	flags.IntVar(&endpoints, "endpoints", 0, "how many there are in "+deadName+", of which one in a hundred is dead (default 10000; 300 with -quick)")
	flags.StringVar(&results, "results", "bench/results", "`directory` to keep the figures in; empty: they are not kept")
	flags.StringVar(&o.pictures, "pictures", "", "`directory` for the picture of "+recoveryName+"; empty: none is drawn")
	flags.StringVar(&o.dir, "dir", "", "`directory` on the disk to measure on (default: the system's for temporary files)")
	installation.SettingsFlag(flags, o.settings)
	if err := flags.Parse(args); err != nil {
		return o, "", installation.ErrUsage
	}
	if flags.NArg() > 0 {
		return o, "", fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	if quick {
		o.size = quickSize()
	}
	switch {
	case endpoints < 0 || endpoints > 0 && endpoints < fewestEndpoints:
		return o, "", fmt.Errorf("-endpoints: is %d, must be at least %d", endpoints, fewestEndpoints)
	case endpoints > 0:
		o.size.endpoints = endpoints
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	return o, results, nil
}
