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
	warmUp   int // events
	events   int // one endpoint, and the ceiling
	fanOut   int // events, each to ten endpoints
	batched  int
	retried  int
	broken   int // retried, with the circuit breaker on
	replayed int
	paces    []pace
	waiting  int
	growth   grown
	pages    pages
	rounds   int           // of throughput before and during the waiting
	rest     time.Duration // idle time whose cost is measured

	settle   time.Duration // after the warm-up: the server's first seconds are not measured
	linger   time.Duration // after the last arrival, for duplicates and late work
	stall    time.Duration // without an arrival, after which none is expected
	patience time.Duration // timeout for posting, and for the arrivals after that
	profile  time.Duration
	report   time.Duration // between two progress lines of a long work
}

func fullSize() size {
	return size{
		warmUp: 500, events: 5000, fanOut: 500, batched: 20000, retried: 5000, broken: 500, replayed: 10000,
		paces: []pace{{50, 20}, {200, 20}, {2000, 60}}, waiting: 100000, rounds: 3, rest: 20 * time.Second,
		growth: grown{history{days: 10, perDay: 200000, payload: payloadSize}, pace{200, 20}, pace{200, 60}, 6},
		pages: pages{
			history: history{days: 20, perDay: 500000, payload: 256, deadEvery: 200}, endpoints: 5000, waiting: 20000, busy: 200,
			looks: 100, watchers: 10, beside: pace{200, 20}, turns: 6,
		},
		settle: 8 * time.Second, linger: 2 * time.Second,
		stall: 90 * time.Second, patience: 30 * time.Minute, profile: 30 * time.Second, report: 30 * time.Second,
	}
}

func quickSize() size {
	s := fullSize()
	s.warmUp, s.events, s.fanOut, s.batched, s.retried, s.broken, s.replayed = 100, 1000, 100, 2000, 500, 50, 500
	s.paces = []pace{{50, 5}, {200, 5}, {2000, 5}}
	s.growth.days, s.growth.perDay, s.growth.beside, s.growth.removing, s.growth.turns = 2, 10000, pace{200, 5}, pace{200, 5}, 1
	s.pages.days, s.pages.perDay, s.pages.endpoints, s.pages.waiting, s.pages.looks, s.pages.turns = 2, 10000, 100, 500, 10, 1
	s.waiting, s.rounds, s.rest = 1000, 1, 5*time.Second
	s.settle, s.linger, s.profile = time.Second, time.Second, 5*time.Second
	return s
}

// scenario is one measurement; it may have several rows.
type scenario struct {
	name string
	run  func(context.Context, *bench) ([]row, error)
	once bool // in the first round only: it takes long, and computes medians itself
}

// scenarios returns all scenarios in their order. The ceiling is first, because the others
// are compared with it.
func scenarios() []scenario {
	return []scenario{
		{name: ceilingName, run: ceiling},
		{name: "throughput", run: throughput},
		{name: "fan-out", run: fanOut},
		{name: "batch", run: batch},
		{name: "latency", run: latency},
		{name: "retries", run: retries},
		{name: "replay", run: replay},
		{name: "start", run: start},
		{name: "waiting", run: waiting, once: true},
		{name: "growth", run: growth, once: true},
		{name: "pages", run: lookAtPages, once: true},
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// choose returns the scenarios with the given names and the ceiling, or all when no names
// are given.
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

// row is the result of one work in one round.
type row struct {
	name    string
	about   string
	figures figures
}

// sayf prints progress.
func (b *bench) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "  "+format+"\n", args...)
}

// measureAll runs the chosen scenarios. After an error the result contains what was
// measured.
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
	if n := b.receiver.unexpected.Load(); n > 0 {
		b.sayf("%d requests arrived after the end of their work, or for events that were never posted", n)
	}
	return r, errors.Join(failures...)
}
