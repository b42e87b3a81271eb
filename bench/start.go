package main

import (
	"context"
	"errors"
	"time"
)

// start starts an installation on an empty directory, stops it, starts it again and stops it.
func start(ctx context.Context, b *bench) (_ []row, err error) {
	in, err := newInstance(b.dir, b.binary, b.settings)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.end()) }()
	f := figures{}
	for _, m := range []metric{firstStart, secondStart} {
		took, err := in.start(ctx)
		if err != nil {
			return nil, err
		}
		f.set(m, took.Seconds())
		if now, _, ok := memoryOf(in.command.Process.Pid); ok {
			f.set(rssRest, now)
		}
		begun := time.Now()
		if err := in.stop(); err != nil {
			return nil, err
		}
		f.set(stopTime, time.Since(begun).Seconds())
	}
	return []row{{name: "start", about: "start on an empty directory, start again, stop", figures: f}}, nil
}
