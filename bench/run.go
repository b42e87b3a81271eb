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
	runs     int
	quick    bool
	profiles string // directory for profiles; empty: none
	size     size
	progress io.Writer
}

// size is how much work is done.
type size struct {
	warmUp  int // events
	events  int // one endpoint, and the ceiling
	fanOut  int // events, each to ten endpoints
	batched int
	retried int
	broken  int // retried, with the circuit breaker on
	paces   []pace
	waiting int
	growth  grown
	rounds  int           // of throughput before and beside the waiting
	rest    time.Duration // how long nothing is done, to see what that costs

	settle   time.Duration // after the warm-up: what a server does in its first seconds is not measured
	linger   time.Duration // after the last arrival, for duplicates and late work
	stall    time.Duration // without a single arrival: nothing more is expected
	patience time.Duration // for posting all, and for all arrivals after that
	profile  time.Duration
	report   time.Duration // between two lines of how far a long work is
}

func fullSize() size {
	return size{
		warmUp: 500, events: 5000, fanOut: 500, batched: 20000, retried: 5000, broken: 500,
		paces: []pace{{50, 20}, {200, 20}, {2000, 60}}, waiting: 100000, rounds: 3, rest: 20 * time.Second,
		growth: grown{days: 10, perDay: 200000, beside: pace{200, 20}, removing: pace{200, 60}, turns: 6},
		settle: 8 * time.Second, linger: 2 * time.Second,
		stall: 90 * time.Second, patience: 30 * time.Minute, profile: 30 * time.Second, report: 30 * time.Second,
	}
}

func quickSize() size {
	s := fullSize()
	s.warmUp, s.events, s.fanOut, s.batched, s.retried, s.broken = 100, 1000, 100, 2000, 500, 50
	s.paces = []pace{{50, 5}, {200, 5}, {2000, 5}}
	s.growth = grown{days: 2, perDay: 10000, beside: pace{200, 5}, removing: pace{200, 5}, turns: 1}
	s.waiting, s.rounds, s.rest = 1000, 1, 5*time.Second
	s.settle, s.linger, s.profile = time.Second, time.Second, 5*time.Second
	return s
}

// scenario is one piece of work; it may have several rows.
type scenario struct {
	name string
	run  func(context.Context, *bench) ([]row, error)
	once bool // not in every round: it takes long, and makes medians of its own
}

// scenarios are all there are, in the order in which they are done. The ceiling comes
// first: the others are set against it.
func scenarios() []scenario {
	return []scenario{
		{name: ceilingName, run: ceiling},
		{name: "throughput", run: throughput},
		{name: "fan-out", run: fanOut},
		{name: "batch", run: batch},
		{name: "latency", run: latency},
		{name: "retries", run: retries},
		{name: "start", run: start},
		{name: "waiting", run: waiting, once: true},
		{name: "growth", run: growth, once: true},
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// choose returns the scenarios with the given names, all when there are none. The ceiling
// is always among them.
func choose(names []string) ([]scenario, error) {
	all := scenarios()
	for _, name := range names {
		if !slices.Contains(scenarioNames(), name) {
			return nil, fmt.Errorf("-only: there is no %q; there are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return s.name != ceilingName && !slices.Contains(names, s.name) }), nil
}

// bench is a run.
type bench struct {
	options

	receiver *receiver
	padding  string
	machine  installation.Machine
	ledgers  int     // made so far
	round    int     // from 1
	ceiling  float64 // deliveries/s of the plain loop in this round
}

// row is what one piece of work came to, in one round.
type row struct {
	name    string
	about   string
	figures figures
}

// sayf tells who waits what is going on.
func (b *bench) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "  "+format+"\n", args...)
}

// measureAll does everything that the options ask for. The result holds what was measured
// also when there is an error.
func measureAll(ctx context.Context, o options) (_ *result, err error) {
	chosen, err := choose(o.only)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, padding: newPadding()}
	if b.machine, err = installation.Describe(ctx, o.binary); err != nil {
		return nil, err
	}
	if b.receiver, err = startReceiver(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.receiver.stop()) }()

	r := &result{At: time.Now().UTC().Truncate(time.Second), Quick: o.quick, Runs: o.runs, Settings: o.settings, Machine: &b.machine}
	var failures []error
	for b.round = 1; b.round <= o.runs; b.round++ {
		b.ceiling = 0
		for _, s := range chosen {
			if s.once && b.round > 1 {
				continue
			}
			_, _ = fmt.Fprintf(o.progress, "run %d of %d: %s\n", b.round, o.runs, s.name)
			rows, err := s.run(ctx, b)
			for _, one := range rows {
				r.add(one)
			}
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return r, fmt.Errorf("stopped during %s: %w", s.name, err)
			case errors.Is(err, errNoBatch):
				b.sayf("skipped: %v", err)
				r.skip(s.name, err)
			default:
				b.sayf("failed: %v", err)
				failures = append(failures, fmt.Errorf("%s: %w", s.name, err))
			}
		}
	}
	if n := b.receiver.strange.Load(); n > 0 {
		b.sayf("%d requests arrived when their work was over, or were never asked for", n)
	}
	return r, errors.Join(failures...)
}
