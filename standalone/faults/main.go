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
	"sync"
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
	atOnce  int // installations
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
	atOnce := flags.Int("parallel", 1, "installations to run at a time")
	results := flags.String("results", "", "directory to append the runs to; those in it are not run again")
	previous := flags.String("previous", "", "`commit` that the classes previous-* take for the previous release; without it they are left out")
	source := flags.String("source", ".", "root of the source to build and test")
	report := flags.String("report", "", "write the ledger of -results into this page, and run nothing")
	planted := flags.String("planted", "", "run the planted bugs with these names instead (all: every one), and write -results")
	soaking := flags.Duration("soak", 0, "keep the first of the shapes under load for so long, with a fault a minute, and check that nothing grows")
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
	o := options{budget: *budget, atOnce: max(1, *atOnce), results: *results}
	var err error
	if o.classes, err = selected(*names); err != nil {
		return err
	}
	if o.classes, err = runnable(o.classes, *previous, *names != "all", stdout); err != nil {
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
	if *previous != "" {
		if b.previous, err = buildPrevious(ctx, *source, *previous, work); err != nil {
			return err
		}
	}
	o.commit = commitOf(ctx, *source)
	if *soaking > 0 {
		return o.soak(ctx, b, o.shapes[0], *soaking, stdout)
	}
	return o.run(ctx, b, stdout)
}

// runnable are those classes that can be run here. It says which are left out; that is an error if they were asked for.
func runnable(all []class, previous string, asked bool, stdout io.Writer) ([]class, error) {
	var failed []error
	all = slices.DeleteFunc(all, func(c class) bool {
		what := c.lacks(previous)
		switch {
		case what != "" && asked:
			failed = append(failed, fmt.Errorf("class %s needs %s", c.name, what))
		case what != "":
			fmt.Fprintf(stdout, "class %s is left out: it needs %s\n", c.name, what)
		}
		return what != ""
	})
	return all, errors.Join(failed...)
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

// buildPrevious makes the binary of a cluster from an earlier commit of a source tree, with failpoints.
func buildPrevious(ctx context.Context, source, commit, into string) (string, error) {
	tree, out := filepath.Join(into, "previous"), filepath.Join(into, "everpost-previous")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	for _, line := range [][]string{
		{"git", "-C", source, "archive", "--output", tree + ".tar", commit},
		{"tar", "--extract", "--file", tree + ".tar", "--directory", tree},
		{"go", "build", "-C", tree, "-buildvcs=false", "-tags", "failpoint", "-o", out, "./cmd/everpost"},
	} {
		if text, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build commit %s: %w\n%s", commit, err, text)
		}
	}
	return out, nil
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

// task is a run that is to be made.
type task struct {
	class class
	seed  uint64
}

// tasks are the runs on a shape that earlier ones have not made.
func (o options) tasks(s shape, earlier []result) []task {
	known := map[string]bool{}
	for _, r := range earlier {
		known[fmt.Sprint(r.Shape, r.Class, r.Seed)] = true
	}
	var all []task
	for _, seed := range o.seeds {
		for _, c := range o.classes {
			if slices.Contains(c.shapes, s.name) && !known[fmt.Sprint(s.name, c.name, seed)] {
				all = append(all, task{c, seed})
			}
		}
	}
	return all
}

// run makes all runs, shape by shape. Each installation of a shape makes many runs, as long as none fails.
func (o options) run(ctx context.Context, b binaries, stdout io.Writer) error {
	earlier, err := readResults(o.results)
	if err != nil {
		return err
	}
	begun := time.Now()
	out := &output{to: stdout, results: o.results, commit: o.commit}
	for _, s := range o.shapes {
		tasks := make(chan task)
		ended, end := context.WithCancelCause(ctx)
		var hosts sync.WaitGroup
		for range o.atOnce {
			hosts.Go(func() {
				h := &host{shape: s, binaries: b}
				for t := range tasks {
					r, said, err := h.run(ended, t)
					if err = errors.Join(err, out.add(r, said)); err != nil {
						end(err)
						break
					}
				}
				if err := h.end(); err != nil {
					end(err)
				}
			})
		}
	distribute:
		for _, t := range o.tasks(s, earlier) {
			if time.Since(begun) > o.budget {
				break
			}
			select {
			case tasks <- t:
			case <-ended.Done():
				break distribute
			}
		}
		close(tasks)
		hosts.Wait()
		err := context.Cause(ended)
		end(nil)
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%d runs in %s, %d failed\n", out.runs, time.Since(begun).Round(time.Second), out.failures)
	if out.failures > 0 {
		return errFailed
	}
	return nil
}

// output is where the results of runs go. It is safe for concurrent use.
type output struct {
	to      io.Writer
	results string // directory; "" for none
	commit  string

	mu             sync.Mutex
	runs, failures int
}

// add adds a run, and what is to be said of it.
func (o *output) add(r result, said string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := io.WriteString(o.to, said); err != nil {
		return fmt.Errorf("print a result: %w", err)
	}
	if r.Class == "" {
		return nil // the run was not made
	}
	r.Commit = o.commit
	o.runs++
	if r.failed() {
		o.failures++
	}
	if o.results == "" {
		return nil
	}
	return appendResult(o.results, r)
}

// host keeps an installation of a shape for many runs.
type host struct {
	shape    shape
	binaries binaries
	in       *installation
}

// run makes one run and describes it. After a failure the next run gets a new installation.
func (h *host) run(ctx context.Context, t task) (found result, said string, err error) {
	if h.in == nil {
		in, err := install(ctx, h.binaries, h.shape)
		if err != nil {
			return result{}, "", err
		}
		h.in = in
	}
	begin := h.in.logSize()
	r := run{class: t.class, seed: t.seed, in: h.in}
	if found, err = r.do(ctx); err != nil {
		return result{}, "", fmt.Errorf("%w\n%s\nrepeat it: %s", err, h.in.logFrom(begin), r.repeat())
	}
	said = fmt.Sprintf("%-32s %-10s seed %-4d acknowledged %d, duplicates %v, recovery %.1f s%s, run %.1f s%s\n",
		t.class.name, h.shape.name, t.seed, found.Acknowledged, found.Duplicates, found.Recovery, found.latest, found.Seconds,
		map[bool]string{true: ", missed"}[found.Missed])
	if found.failed() {
		return found, said + r.report(found) + h.in.logFrom(begin), h.end()
	}
	return found, said, nil
}

func (h *host) end() error {
	if h.in == nil {
		return nil
	}
	in := h.in
	h.in = nil
	return in.remove()
}
