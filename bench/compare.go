package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/everpost/everpost/bench/internal/installation"
)

// tolerance is how much the CPU per delivery may differ between two runs of the same code.
// On a shared machine elapsed time varies more, CPU time less.
const tolerance = 0.20

// errRegression reports that a run took more CPU than the tolerance allows.
var errRegression = errors.New("more CPU per delivery than before")

// comparison compares one row of two runs.
type comparison struct {
	name        string
	before, now float64 // CPU per delivery, Go and PostgreSQL, ms
	why         string  // why it cannot be compared; empty if it can
}

// change is the relative increase in CPU, 0.1 for a tenth.
func (v comparison) change() float64 { return v.now/v.before - 1 }

func (v comparison) String() string {
	switch {
	case v.why != "":
		return v.why
	case v.change() > tolerance:
		return "WORSE"
	case v.change() < -tolerance:
		return "better"
	default:
		return "same"
	}
}

// compareCommand is `bench compare [-results dir] [-print] [old [new]]`. new defaults to the newest
// stored run, old to the stored run before it.
func compareCommand(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("results", resultsDir, "`directory` of the kept runs")
	printOnly := flags.Bool("print", false, "compare runs of different machines, too, and exit with 0 whatever the figures")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(stderr, "bench compare [-results dir] [-print] [old.json [new.json]]\n"+
			"By CPU per delivery, Go and PostgreSQL; beyond +%.0f %% the exit code is 1.\n", 100*tolerance)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return installation.ErrUsage
	}
	paths := flags.Args()
	if len(paths) < 2 {
		all, err := kept(*dir)
		if err != nil {
			return err
		}
		all = all[max(0, len(all)-(2-len(paths))):]
		if paths = append(paths, all...); len(paths) < 2 {
			return fmt.Errorf("there are not two runs to compare in %s", *dir)
		}
	}
	if len(paths) > 2 {
		return errors.New("compare: two runs at a time")
	}
	old, err := load(paths[0])
	if err != nil {
		return err
	}
	recent, err := load(paths[1])
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "before: %s\n        %s\nnow:    %s\n        %s\n\n", paths[0], old.Machine, paths[1], recent.Machine); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if err := compare(old, recent, *printOnly, stdout); !*printOnly || !errors.Is(err, errRegression) {
		return err
	}
	return nil
}

// compare prints both runs side by side. It returns errRegression when one work takes more
// CPU than the tolerance allows, another error when there is nothing to compare. With anywhere the machines may differ, and the
// plain loop is shown, which says how.
func compare(old, recent *result, anywhere bool, stdout io.Writer) error {
	if old.Quick != recent.Quick {
		return errors.New("one of them is a quick run: they cannot be compared")
	}
	if !old.Machine.SameHardware(*recent.Machine) && !anywhere {
		return errors.New("they ran on different machines: they cannot be compared")
	}
	text := &strings.Builder{}
	lines := [][]string{{"CPU per delivery, ms", "before", "now", "change", ""}}
	var worse []string
	compared := 0
	for _, v := range comparisons(old, recent, anywhere) {
		if v.why != "" {
			lines = append(lines, []string{v.name, "–", "–", "–", v.String()})
			continue
		}
		compared++
		lines = append(lines, []string{
			v.name, fmt.Sprintf("%.2f", v.before), fmt.Sprintf("%.2f", v.now), fmt.Sprintf("%+.0f %%", 100*v.change()), v.String(),
		})
		if v.change() > tolerance {
			worse = append(worse, v.name)
		}
	}
	writeAligned(text, lines)
	if _, err := io.WriteString(stdout, text.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	switch {
	case len(worse) > 0:
		return fmt.Errorf("%w: %s", errRegression, strings.Join(worse, ", "))
	case compared == 0:
		return errors.New("no work is in both runs with its CPU")
	default:
		return nil
	}
}

// comparisons compares the rows of two runs, in the order of the later one. It leaves out
// the rows of the plain loop unless they are wanted.
func comparisons(old, recent *result, loop bool) []comparison {
	var all []comparison
	for _, m := range recent.Rows {
		now, ok := m.cpu()
		if !ok || !loop && strings.HasPrefix(m.Name, ceilingName) {
			continue
		}
		v := comparison{name: m.Name, now: now}
		was := old.row(m.Name)
		if was == nil {
			v.why = "not in the run before"
		} else if v.before, ok = was.cpu(); !ok {
			v.why = "not measured before"
		} else if was.About != m.About {
			v.why = "was other work: " + was.About
		}
		all = append(all, v)
	}
	return all
}

// cpu is the CPU per delivery of Go and PostgreSQL, in ms.
func (m *measured) cpu() (float64, bool) {
	inGo, ok := m.Median[cpuGo]
	sum := inGo + m.Median[cpuPostgres]
	return sum, ok && sum > 0
}
