package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// options are what a run is asked to do.
type options struct {
	binary   string            // to measure
	dir      string            // where installations live; empty: the system's temporary directory
	settings map[string]string // further ones of the installation
	only     []string          // names of scenarios; empty: all
	pictures string            // directory; empty: none are drawn
	size     size
	progress io.Writer
}

// size is how much is done.
type size struct {
	base time.Duration // a flow before the trouble, and beside it

	backlog   int // of the receiver that hangs
	endpoints int // one in a hundred is dead

	outage   time.Duration // of recovery
	after    time.Duration // of recovery: the flow goes on for so long
	pause    time.Duration
	resumed  time.Duration // of pause: the flow goes on for so long
	cooldown time.Duration // of circuits, where the scenario is not about the default
	flapping time.Duration
	burst    int // events of one tenant at once

	patience time.Duration // for what is to arrive in the end
}

func fullSize() size {
	return size{
		base: 30 * time.Second, backlog: 2000, endpoints: 10000, outage: time.Minute, after: 2 * time.Minute,
		pause: 30 * time.Second, resumed: time.Minute, cooldown: 30 * time.Second, flapping: 2 * time.Minute,
		burst: 50000, patience: 5 * time.Minute,
	}
}

func quickSize() size {
	return size{
		base: 5 * time.Second, backlog: 300, endpoints: fewestEndpoints, outage: 6 * time.Second, after: 15 * time.Second,
		pause: 4 * time.Second, resumed: 8 * time.Second, cooldown: 2 * time.Second, flapping: 12 * time.Second,
		burst: 2000, patience: 2 * time.Minute,
	}
}

// steady is the flow that is watched: events per second, whatever becomes of them.
const steady = 50.0

// scenario is one question with its criteria.
type scenario struct {
	name  string
	about string
	run   func(ctx context.Context, l *lab, r *report) error
}

// scenarios are all there are, in the order in which they are done.
func scenarios() []scenario {
	return []scenario{
		{hangName, "one receiver accepts connections and never answers; its neighbour's events", hang},
		{deadName, "one endpoint in a hundred is dead: refuses, hangs, or answers 503; the others' events", dead},
		{recoveryName, "a receiver answers 503 for a while and comes back, with admission and without", recovery},
		{pauseName, "an endpoint is paused under load, and resumed", pause},
		{breakerName, "a circuit opens, is probed and closes; a receiver that flaps; answers that do not open it", breaker},
		{fairnessName, "one tenant posts very much at once; another tenant's events", fairness},
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// lab is a run. Times are since its beginning.
type lab struct {
	options

	began time.Time
}

func (l *lab) since() time.Duration { return time.Since(l.began) }

// sayf tells who waits what is going on.
func (l *lab) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(l.progress, "  "+format+"\n", args...)
}

// measureAll does everything that the options ask for. The result holds what was measured
// also when there is an error.
func measureAll(ctx context.Context, o options) (*result, error) {
	for _, name := range o.only {
		if !slices.Contains(scenarioNames(), name) {
			return nil, fmt.Errorf("-only: there is no %q; there are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	machine, err := installation.Describe(ctx, o.binary)
	if err != nil {
		return nil, err
	}
	l := &lab{options: o, began: time.Now()}
	all := &result{At: time.Now().UTC().Truncate(time.Second), Settings: o.settings, Machine: machine}
	var failures []error
	for _, s := range scenarios() {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		_, _ = fmt.Fprintln(o.progress, s.name)
		r := &report{Name: s.name, About: s.about}
		all.Reports = append(all.Reports, r)
		switch err := s.run(ctx, l, r); {
		case err == nil:
		case ctx.Err() != nil:
			return all, fmt.Errorf("stopped during %s: %w", s.name, err)
		default:
			l.sayf("failed: %v", err)
			failures = append(failures, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return all, errors.Join(failures...)
}

// place is an installation with the receivers of one scenario.
type place struct {
	*installation.Instance

	lab       *lab
	receivers []*receiver
}

// fresh is a started installation that nothing was done with. End it.
func (l *lab) fresh(ctx context.Context) (*place, error) {
	in, err := installation.New(l.dir, l.binary, l.settings)
	if err != nil {
		return nil, err
	}
	if _, err := in.Start(ctx); err != nil {
		return nil, errors.Join(err, in.End())
	}
	return &place{Instance: in, lab: l}, nil
}

// End stops the receivers, so that nobody waits for one that hangs, and the installation.
func (p *place) End() error {
	var faults []error
	for _, r := range p.receivers {
		faults = append(faults, r.stop())
	}
	return errors.Join(append(faults, p.Instance.End())...)
}

// work is what a stretch of time has cost.
type work struct {
	place  *place
	before installation.Usage
	known  bool
	begun  time.Time
}

func (p *place) begin() work {
	u, ok := p.Usage()
	return work{p, u, ok, time.Now()}
}

// report adds what the installation used since the beginning, in cores, to a report.
func (w work) report(r *report, when string) {
	after, ok := w.place.Usage()
	if !ok || !w.known {
		return
	}
	used, took := after.Minus(w.before), time.Since(w.begun).Seconds()
	r.figure("CPU "+when, (used.Process+used.Below)/took, "cores")
	r.Others = max(r.Others, used.Others()/took)
}

// look is how often a condition is looked at that nothing announces.
const look = 20 * time.Millisecond

// wait returns true when the condition holds, false when the patience ends before.
func wait(ctx context.Context, patience time.Duration, holds func() bool) (bool, error) {
	end := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(end) {
			return false, nil
		}
		if err := installation.Pause(ctx, look); err != nil {
			return false, err
		}
	}
	return true, nil
}
