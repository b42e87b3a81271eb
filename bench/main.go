// Command bench measures Everpost on the machine that it runs on.
//
// It starts `everpost standalone` on free ports in a temporary directory, posts events to
// it, receives their deliveries, prints a table and stores the figures as JSON. Each work
// has an installation of its own, which is stopped and removed before the next. For
// comparison, the same run measures the ceiling: the plain loop "insert a row with commit,
// POST it", without any engine, and for fixed rates the loop at the same rates.
//
//	bench [flags]              measure
//	bench compare [old [new]]  compare two stored runs by CPU per delivery
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

func main() { installation.Main("bench", command) }

// resultsDir is where runs are stored, relative to the top of the repository.
const resultsDir = "bench/results"

// command is main with its arguments and outputs as parameters.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "compare" {
		return compareCommand(args[1:], stdout, stderr)
	}
	o, results, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return measureCommand(ctx, o, results, stdout, stderr)
}

// parse parses the command line. results is the directory for the figures, empty for none.
func parse(args []string, stderr io.Writer) (o options, results string, err error) {
	o = options{settings: map[string]string{}, size: fullSize(), progress: stderr}
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.binary, "binary", "bin/everpost", "the `file` to measure")
	flags.IntVar(&o.runs, "runs", 3, "how often everything is done; the table shows medians (1 with -quick)")
	flags.StringVar(&only, "only", "", "`names` of what to do, separated by commas: "+strings.Join(scenarioNames(), ", "))
	flags.BoolVar(&o.quick, "quick", false, "much less of everything: to see that it runs, not to compare")
	flags.StringVar(&o.profiles, "profile", "", "`directory` for CPU and allocation profiles of each piece of work, taken after it was measured")
	flags.StringVar(&results, "results", resultsDir, "`directory` to keep the figures in; empty, and with -quick unless it is given: they are not kept")
	flags.StringVar(&o.dir, "dir", "", "`directory` on the disk to measure on (default: the system's for temporary files)")
	installation.SettingsFlag(flags, o.settings)
	if err := flags.Parse(args); err != nil {
		return o, "", installation.ErrUsage
	}
	if flags.NArg() > 0 {
		return o, "", fmt.Errorf("%q is no command; the only other one is compare", flags.Arg(0))
	}
	if o.quick {
		o.size = quickSize()
		given := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["runs"] {
			o.runs = 1
		}
		if !given["results"] {
			results = ""
		}
	}
	if o.runs < 1 {
		return o, "", fmt.Errorf("-runs: is %d, must be at least 1", o.runs)
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	return o, results, nil
}

// measureCommand measures, prints and stores. After a failure or a signal it prints what
// was measured so far and does not store it.
func measureCommand(ctx context.Context, o options, results string, stdout, stderr io.Writer) error {
	r, err := measureAll(ctx, o)
	if r == nil {
		return err
	}
	if printErr := r.render(stdout); printErr != nil {
		return errors.Join(err, printErr)
	}
	if err = errors.Join(err, r.sound()); err != nil || results == "" {
		return err
	}
	path, err := r.keep(results)
	if err == nil {
		_, _ = fmt.Fprintln(stderr, "kept as", path)
	}
	return err
}
