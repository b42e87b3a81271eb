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

// options configure a run.
type options struct {
	binary   string            // the binary to measure
	dir      string            // where installations live; empty: the system's temporary directory
	settings map[string]string // further ones of the installation
	only     []string          // names of scenarios; empty: all
	pictures string            // directory for pictures; empty: none
	size     size
	progress io.Writer
}

// size is the amount of work.
type size struct {
	base time.Duration // duration of a flow before and during the failure

	backlog   int // of the hanging receiver
	endpoints int // one in a hundred is dead

	outage   time.Duration // of recovery
	after    time.Duration // of recovery: how long the flow continues
	pause    time.Duration
	resumed  time.Duration // of pause: how long the flow continues
	cooldown time.Duration // of circuits, in scenarios that do not measure the default
	flapping time.Duration
	burst    int // events in one tenant's burst

	released  int // endpoints of release-many
	heldOfOne int // deliveries of the endpoint of release-one
	replays   int

	patience time.Duration // timeout for the last arrivals
}

func fullSize() size {
	return size{
		base: 30 * time.Second, backlog: 2000, endpoints: 10000, outage: time.Minute, after: 2 * time.Minute,
		pause: 30 * time.Second, resumed: time.Minute, cooldown: 30 * time.Second, flapping: 2 * time.Minute,
		burst: 50000, released: 1000, heldOfOne: 100_000, replays: 300, patience: 8 * time.Minute,
	}
}

func quickSize() size {
	return size{
		base: 5 * time.Second, backlog: 300, endpoints: fewestEndpoints, outage: 6 * time.Second, after: 15 * time.Second,
		pause: 4 * time.Second, resumed: 8 * time.Second, cooldown: 2 * time.Second, flapping: 12 * time.Second,
		burst: 2000, released: 50, heldOfOne: 2000, replays: 20, patience: 2 * time.Minute,
	}
}

// steady is the rate of the measured flow, in events per second.
const steady = 50.0

// scenario is one measurement with its criteria.
type scenario struct {
	name  string
	about string
	run   func(ctx context.Context, l *lab, r *report) error
}

// scenarios returns all scenarios in their order.
func scenarios() []scenario {
	return []scenario{
		{hangName, "one receiver accepts connections and never answers; its neighbour's events", hang},
		{deadName, "one endpoint in a hundred is dead: refuses, hangs, or answers 503; the others' events", dead},
		{recoveryName, "a receiver answers 503 for a while and comes back, with admission and without", recovery},
		{pauseName, "an endpoint is paused under load, and resumed", pause},
		{breakerName, "a circuit opens, is probed and closes; a receiver that flaps; answers that do not open it", breaker},
		{fairnessName, "one tenant posts very much at once; another tenant's events", fairness},
		{releaseManyName, "many endpoints of one tenant with held deliveries are resumed at once; another tenant's events", releaseMany},
		{releaseOneName, "one endpoint with very many held deliveries is resumed; another tenant's events", releaseOne},
		{replaysName, "one tenant requests very many replays; another tenant's events", replays},
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// lab is a run. Times are relative to its beginning.
type lab struct {
	options

	began time.Time
}

func (l *lab) since() time.Duration { return time.Since(l.began) }

// sayf prints progress.
func (l *lab) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(l.progress, "  "+format+"\n", args...)
}

// measureAll runs the chosen scenarios. After an error the result contains what was
// measured.
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

// fresh returns a started, unused installation. The caller calls End.
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

// End stops the receivers first, so that no request waits for a hanging one, and then the
// installation.
func (p *place) End() error {
	var faults []error
	for _, r := range p.receivers {
		faults = append(faults, r.stop())
	}
	return errors.Join(append(faults, p.Instance.End())...)
}

// work is the resource usage of an interval.
type work struct {
	place   *place
	before  installation.Usage
	known   bool
	started time.Time
}

func (p *place) begin() work {
	u, ok := p.Usage()
	return work{p, u, ok, time.Now()}
}

// report adds the usage since the start of the interval, in cores, to a report.
func (w work) report(r *report, when string) {
	after, ok := w.place.Usage()
	if !ok || !w.known {
		return
	}
	used, took := after.Minus(w.before), time.Since(w.started).Seconds()
	r.figure("CPU "+when, (used.Process+used.Below)/took, "cores")
	r.Others = max(r.Others, used.Others()/took)
}

// pollInterval is how often conditions without a notification are checked.
const pollInterval = 20 * time.Millisecond

// wait returns true when the condition holds, false after the timeout.
func wait(ctx context.Context, patience time.Duration, holds func() bool) (bool, error) {
	end := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(end) {
			return false, nil
		}
		if err := installation.Pause(ctx, pollInterval); err != nil {
			return false, err
		}
	}
	return true, nil
}
