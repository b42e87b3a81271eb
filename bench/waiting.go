package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// waiting measures the cost of deliveries that wait for a retry: the idle installation and
// its throughput for another endpoint, empty and with many deliveries that wait for 12
// hours.
func waiting(ctx context.Context, b *bench) (_ []row, err error) {
	in, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	about := fmt.Sprintf("%s, median of %d", b.throughputWork().describe(), b.size.rounds)
	before, err := b.idleAndBusy(ctx, in)
	if err != nil {
		return nil, err
	}
	rows := []row{{"waiting-before", about + ", on the empty system", before}}
	started := time.Now()
	if err := b.fill(ctx, in); err != nil {
		return rows, err
	}
	filled := time.Since(started)
	b.sayf("%d wait after %s; now at rest", b.size.waiting, filled.Round(time.Second))
	beside, err := b.idleAndBusy(ctx, in)
	if err != nil {
		return rows, err
	}
	beside.set(fillTime, filled.Seconds())
	beside.set(acceptRatio, beside[acceptedPerSecond]/before[acceptedPerSecond])
	beside.set(throughputRatio, beside[deliveriesPerSecond]/before[deliveriesPerSecond])
	return append(rows, row{"waiting-beside", fmt.Sprintf("%s, beside %d deliveries that wait for 12 h", about, b.size.waiting), beside}), nil
}

// fill creates deliveries that fail once and wait for a long time, and returns when all of
// them are recorded as retrying.
func (b *bench) fill(ctx context.Context, in *instance) error {
	w := work{
		name: "filling", events: b.size.waiting, endpoints: 1, connections: 16, batch: batchSize, fails: always,
		settings: map[string]any{
			"retry_policy":    map[string]any{"strategy": "fixed", "base": "12h", "jitter": "none"},
			"circuit_breaker": map[string]any{"enabled": false},
			"auto_disable":    false,
		},
	}
	l, err := b.post(ctx, in, w)
	if errors.Is(err, errNoBatch) {
		w.batch, w.connections = 1, 64
		l, err = b.post(ctx, in, w)
	}
	if err != nil {
		return err
	}
	defer b.receiver.close(l)
	if f := l.figures(); f[lost] > 0 || f[duplicates] > 0 {
		return fmt.Errorf("of %d deliveries that were to wait %.0f were not tried, and %.0f times one was tried again", w.events, f[lost], f[duplicates])
	}
	end := time.Now().Add(b.size.patience)
	for {
		n, err := in.api.count(ctx, l.endpointIDs[0], 1, "pending", "held", "delivered", "dead_lettered", "cancelled", "discarded")
		if err != nil || n == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("some of the deliveries that were to wait are still not retrying %s after their attempts", b.size.patience)
		}
		if err := installation.Pause(ctx, 10*pollInterval); err != nil {
			return err
		}
	}
}

// post is open and deliver with progress lines.
func (b *bench) post(ctx context.Context, in *instance, w work) (*ledger, error) {
	l, err := b.open(ctx, in, w)
	if err != nil {
		return nil, err
	}
	reporting, stop := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	started := time.Now()
	reporter.Go(func() {
		for installation.Pause(reporting, b.size.report) == nil {
			b.sayf("%s: %d of %d after %s", w.name, l.done.Load(), w.deliveries(), time.Since(started).Round(time.Second))
		}
	})
	defer reporter.Wait()
	defer stop()
	if err := b.deliver(ctx, in, l); err != nil {
		b.receiver.close(l)
		return nil, err
	}
	return l, nil
}

// idleAndBusy waits until the installation is idle, measures its idle usage, and then the
// medians of several throughput works.
func (b *bench) idleAndBusy(ctx context.Context, in *instance) (figures, error) {
	rest := figures{}
	started := time.Now()
	if err := b.settle(ctx, in); err != nil {
		return nil, err
	}
	rest.set(settleTime, time.Since(started).Seconds())
	used, known, err := in.Over(ctx, b.size.rest)
	if err != nil {
		return nil, err
	}
	if known {
		rest.set(restGo, 100*used.Process)
		rest.set(restPostgres, 100*used.Below)
	}
	if now, _, ok := installation.MemoryOf(in.Pid()); ok {
		rest.set(rssRest, now)
	}
	var rounds []figures
	for range b.size.rounds {
		f, err := b.measure(ctx, in, b.throughputWork())
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, f)
	}
	all := median(rounds)
	maps.Copy(all, rest)
	return all, nil
}

// settle waits until background work is done: until the CPU usage of three samples in a row
// differs by less than 3 % of a core and is below half a core. It gives up after the
// timeout.
func (b *bench) settle(ctx context.Context, in *instance) error {
	const same, busy, looks = 0.03, 0.5, 3
	end := time.Now().Add(b.size.patience)
	var seen []float64
	for time.Now().Before(end) {
		used, known, err := in.Over(ctx, b.size.rest/4)
		if err != nil || !known {
			return err
		}
		seen = append(seen, used.Process+used.Below)
		if len(seen) < looks {
			continue
		}
		seen = seen[len(seen)-looks:]
		if most := slices.Max(seen); most < busy && most-slices.Min(seen) < same {
			return nil
		}
	}
	return nil
}
