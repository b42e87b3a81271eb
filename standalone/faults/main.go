package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var err error
	if args := os.Args[1:]; len(args) > 0 && args[0] == temporalCommand {
		err = runTemporal(ctx, args[1:], os.Stdout, os.Stderr)
	} else {
		err = runFaults(ctx, args, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// options are what is to be run.
type options struct {
	classes []class
	shapes  []shape
	seeds   []uint64
	budget  time.Duration
	results string
	commit  string
}

func runFaults(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	names := flags.String("classes", "all", "classes to run, separated by commas; * at the end of a name stands for the rest")
	shapeNames := flags.String("shapes", "standalone,split,fleet,serve", "shapes to run them on")
	seeds := flags.Int("seeds", 1, "seeds of each class on each shape, from 1 on")
	seed := flags.Uint64("seed", 0, "run this seed only, and print its plan")
	budget := flags.Duration("budget", time.Hour, "start no run after this time")
	results := flags.String("results", "", "directory to append the runs to; those in it are not run again")
	source := flags.String("source", ".", "root of the source to build and test")
	report := flags.String("report", "", "write the ledger of -results into this page, and run nothing")
	planted := flags.String("planted", "", "run the planted bugs with these names instead (all: every one), and write -results")
	list := flags.Bool("list", false, "list the classes, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		return listClasses(stdout)
	}
	if *report != "" {
		return writeLedger(*results, *report)
	}
	if *planted != "" {
		return runPlanted(ctx, *planted, *source, *results, stdout)
	}
	o := options{budget: *budget, results: *results}
	var err error
	if o.classes, err = selected(*names); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*shapeNames, ",") {
		s, err := shapeNamed(name)
		if err != nil {
			return err
		}
		o.shapes = append(o.shapes, s)
	}
	for n := range *seeds {
		o.seeds = append(o.seeds, uint64(n)+1)
	}
	if *seed != 0 {
		o.seeds = []uint64{*seed}
		fmt.Fprint(stdout, newPlan(*seed))
	}
	work, err := os.MkdirTemp("", "everpost-faults-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(work)
	b, err := build(ctx, *source, work)
	if err != nil {
		return err
	}
	o.commit = commitOf(ctx, *source)
	return o.run(ctx, b, stdout)
}

func listClasses(stdout io.Writer) error {
	for _, c := range classes() {
		if _, err := fmt.Fprintf(stdout, "%-32s %s\n", c.name, strings.Join(c.shapes, " ")); err != nil {
			return fmt.Errorf("list the classes: %w", err)
		}
	}
	return nil
}

// build makes the binaries of a source tree, with failpoints.
func build(ctx context.Context, source, into string, flags ...string) (b binaries, err error) {
	if b.self, err = os.Executable(); err != nil {
		return b, fmt.Errorf("find this program: %w", err)
	}
	b.standalone, b.cluster = filepath.Join(into, "everpost"), filepath.Join(into, "everpost-cluster")
	for out, from := range map[string][2]string{b.standalone: {"standalone", "."}, b.cluster: {".", "./cmd/everpost"}} {
		args := append([]string{"build", "-C", filepath.Join(source, from[0]), "-buildvcs=false", "-tags", "failpoint", "-o", out}, flags...)
		command := exec.CommandContext(ctx, "go", append(args, from[1])...)
		if text, err := command.CombinedOutput(); err != nil {
			return b, fmt.Errorf("build %s: %w\n%s", from[1], err, text)
		}
	}
	return b, nil
}

// commitOf names the source, "" if git does not know it.
func commitOf(ctx context.Context, source string) string {
	text, err := exec.CommandContext(ctx, "git", "-C", source, "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// errFailed says that the checks of a run failed.
var errFailed = errors.New("runs have failed")

// run makes all runs, shape by shape: the runs of a shape share an installation as long as none fails.
func (o options) run(ctx context.Context, b binaries, stdout io.Writer) (err error) {
	earlier, err := readResults(o.results)
	if err != nil {
		return err
	}
	begun, failures, made := time.Now(), 0, 0
	for _, s := range o.shapes {
		h := &host{shape: s, binaries: b}
		for _, n := range o.seeds {
			for _, c := range o.classes {
				known := slices.ContainsFunc(earlier, func(r result) bool { return r.Class == c.name && r.Shape == s.name && r.Seed == n })
				if !slices.Contains(c.shapes, s.name) || known || ctx.Err() != nil || time.Since(begun) > o.budget {
					continue
				}
				found, err := h.run(ctx, c, n, stdout)
				if err != nil {
					return errors.Join(err, h.end())
				}
				found.Commit = o.commit
				made++
				if found.failed() {
					failures++
				}
				if o.results != "" {
					if err := appendResult(o.results, found); err != nil {
						return errors.Join(err, h.end())
					}
				}
			}
		}
		if err := h.end(); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%d runs in %s, %d failed\n", made, time.Since(begun).Round(time.Second), failures)
	if failures > 0 {
		return errFailed
	}
	return ctx.Err()
}

// host keeps an installation of a shape for many runs.
type host struct {
	shape    shape
	binaries binaries
	in       *installation
}

// run makes one run. After a failure, its log is shown and the next run gets a new installation.
func (h *host) run(ctx context.Context, c class, seed uint64, stdout io.Writer) (result, error) {
	if h.in == nil {
		in, err := install(ctx, h.binaries, h.shape)
		if err != nil {
			return result{}, err
		}
		h.in = in
	}
	begin := h.in.logSize()
	r := run{class: c, seed: seed, in: h.in}
	found, err := r.do(ctx)
	if err != nil {
		return result{}, fmt.Errorf("%w\n%s\nrepeat it: %s", err, h.in.logFrom(begin), r.repeat())
	}
	fmt.Fprintf(stdout, "%-32s %-10s seed %-4d acknowledged %d, duplicates %v, recovery %.1f s, run %.1f s%s\n",
		c.name, h.shape.name, seed, found.Acknowledged, found.Duplicates, found.Recovery, found.Seconds, map[bool]string{true: ", missed"}[found.Missed])
	if found.failed() {
		fmt.Fprintf(stdout, "%s%s", r.report(found), h.in.logFrom(begin))
		return found, h.end()
	}
	return found, nil
}

func (h *host) end() error {
	if h.in == nil {
		return nil
	}
	in := h.in
	h.in = nil
	return in.remove()
}
