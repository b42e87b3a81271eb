package main

import (
	"context"
	"errors"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// start measures the first start on an empty directory, a stop, a second start and a stop.
func start(ctx context.Context, b *bench) (_ []row, err error) {
	in, err := newInstance(b.dir, b.binary, b.settings)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	f := figures{}
	for _, m := range []metric{firstStart, secondStart} {
		took, err := in.Start(ctx)
		if err != nil {
			return nil, err
		}
		f.set(m, took.Seconds())
		if now, _, ok := installation.MemoryOf(in.Pid()); ok {
			f.set(rssRest, now)
		}
		started := time.Now()
		if err := in.Stop(); err != nil {
			return nil, err
		}
		f.set(stopTime, time.Since(started).Seconds())
	}
	return []row{{name: "start", about: "start on an empty directory, start again, stop", figures: f}}, nil
}
