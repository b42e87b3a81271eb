package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// grown is an installation's history, and the steady work that is measured on top of it.
type grown struct {
	history

	beside   pace
	removing pace // while retention removes the history
	turns    int  // how often each work runs on both installations
}

// growth measures whether an installation becomes slower with its history, and whether
// retention disturbs it. It alternates with an empty installation, so that changes in the
// machine's speed affect both.
func growth(ctx context.Context, b *bench) (_ []row, err error) {
	empty, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.End()) }()
	grown, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, grown.End()) }()
	both := [2]*instance{empty, grown}
	b.sayf("writing %d finished deliveries of the last %d days", b.size.growth.deliveries(), b.size.growth.days)
	started := time.Now()
	if err := b.grow(ctx, grown); err != nil {
		return nil, err
	}
	b.sayf("written after %s", time.Since(started).Round(time.Second))
	for _, in := range both {
		if err := b.restart(ctx, in); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, measured := range []struct {
		name string
		work work
	}{{"growth", b.throughputWork()}, {"growth-steady", b.size.growth.beside.work()}} {
		alone, beside, err := b.alternate(ctx, both, measured.work)
		if err != nil {
			return rows, err
		}
		about := fmt.Sprintf("%s, median of %d", measured.work.describe(), b.size.growth.turns)
		rows = append(rows, row{measured.name + "-empty", about + ", in turns with the next", alone},
			row{measured.name + "-beside", fmt.Sprintf("%s, beside %d finished deliveries", about, b.size.growth.deliveries()), beside})
	}
	if err := empty.Stop(); err != nil { // not used any more
		return rows, fmt.Errorf("stop: %w", err)
	}
	removing, err := b.whileRetained(ctx, grown)
	if err != nil {
		return rows, err
	}
	return append(rows, row{"growth-retention", b.size.growth.removing.work().describe() + ", while these are removed", removing}), nil
}

// grow writes the history.
func (b *bench) grow(ctx context.Context, in *instance) error {
	past, err := openPast(ctx, in)
	if err != nil {
		return err
	}
	defer past.close(ctx)
	return past.write(ctx, b.size.growth.history)
}

// restart restarts an installation: a process that has worked for a minute differs from a
// new one.
func (b *bench) restart(ctx context.Context, in *instance) error {
	if err := in.Stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if _, err := in.Start(ctx); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	in.api = client{in.API}
	return b.warmUp(ctx, in)
}

// alternate measures a work on both installations, as medians of several turns. The order
// changes with each turn. Ratios are of the same turn.
func (b *bench) alternate(ctx context.Context, both [2]*instance, w work) (empty, beside figures, err error) {
	var all [2][]figures
	for turn := range b.size.growth.turns {
		for i := range both {
			which := (turn + i) % 2
			f, err := b.measure(ctx, both[which], w)
			if err != nil {
				return nil, nil, err
			}
			all[which] = append(all[which], f)
		}
		was, is := all[0][turn], all[1][turn]
		b.sayf("%s, turn %d of %d: empty and grown %.0f and %.0f/s, p50 %.1f and %.1f ms, p99 %.1f and %.1f ms", w.name, turn+1, b.size.growth.turns,
			was[deliveriesPerSecond], is[deliveriesPerSecond], was[endToEndP50], is[endToEndP50], was[endToEndP99], is[endToEndP99])
		if w.rate > 0 {
			is.set(latencyRatio, is[endToEndP50]/was[endToEndP50])
			continue
		}
		is.set(acceptRatio, is[acceptedPerSecond]/was[acceptedPerSecond])
		is.set(throughputRatio, is[deliveriesPerSecond]/was[deliveriesPerSecond])
	}
	return median(all[0]), median(all[1]), nil
}

// whileRetained measures the steady work while the worker's retention runs.
func (b *bench) whileRetained(ctx context.Context, in *instance) (figures, error) {
	past, err := openPast(ctx, in)
	if err != nil {
		return nil, err
	}
	defer past.close(ctx)
	if err := past.killOne(ctx); err != nil {
		return nil, err
	}
	retained := make(chan error, 1)
	took := time.Duration(0)
	go func() {
		started := time.Now()
		err := past.retain(ctx, b.size.growth.history)
		took = time.Since(started)
		retained <- err
	}()
	f, err := b.measure(ctx, in, b.size.growth.removing.work())
	if err := errors.Join(err, <-retained); err != nil {
		return nil, err
	}
	f.set(retainTime, took.Seconds())
	return f, nil
}
