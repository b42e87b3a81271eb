package main

import (
	"context"
	"errors"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

const fairnessName = "fairness"

const (
	quietRate  = 20.0 // events per second of the measured tenant
	burstConns = 16   // connections of the other tenant
	fairMore   = 50.0 // allowed increase of p99 by the burst, in ms
)

// fairness: one tenant posts a burst while another posts few events.
func fairness(ctx context.Context, l *lab, r *report) (err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	receivers := map[string]*receiver{}
	for _, name := range []string{"busy", "quiet"} {
		to, err := in.receive(ctx, answers)
		if err != nil {
			return err
		}
		if err := in.tenant(ctx, name); err != nil {
			return err
		}
		if _, err := in.endpoint(ctx, name, fields{"url": to.base}); err != nil {
			return err
		}
		receivers[name] = to
	}
	if err := in.warmUp(ctx, "busy", "a.warm"); err != nil {
		return err
	}
	warm := len(receivers["busy"].soFar())
	l.sayf("20/s of the one tenant, alone")
	before, err := l.run(ctx, flow{rate: quietRate, lasts: l.size.base, one: in.poster("quiet", "a.few")})
	if err != nil {
		return err
	}
	l.sayf("the same beside %d events of the other, all at once", l.size.burst)
	var (
		during, many []post
		ended        = make(chan struct{})
		started      = time.Now()
		cost         = in.begin()
	)
	err = concurrently(ctx,
		func(ctx context.Context) (err error) {
			during, err = l.run(ctx, flow{rate: quietRate, lasts: l.size.patience, stop: ended, one: in.poster("quiet", "a.few")})
			return err
		},
		func(ctx context.Context) (err error) {
			defer close(ended)
			if many, err = in.burst(ctx, "busy", "a.many", l.size.burst, burstConns); err != nil {
				return err
			}
			r.figure("the burst was accepted after", time.Since(started).Seconds(), "s")
			_, err = wait(ctx, l.size.patience, func() bool { return len(receivers["busy"].soFar())-warm >= len(many) })
			r.figure("the burst was delivered after", time.Since(started).Seconds(), "s")
			return err
		})
	if err != nil {
		return err
	}
	cost.report(r, "during")
	if _, err := wait(ctx, l.size.patience, func() bool { return match(during, receivers["quiet"].soFar()).missing == 0 }); err != nil {
		return err
	}
	burst := match(many, receivers["busy"].soFar()[warm:])
	r.exactly("the burst: lost", burst.missing, 0, "events")
	quiet, beside := match(before, receivers["quiet"].soFar()), match(during, receivers["quiet"].soFar())
	r.figure("the other tenant's events during the burst", float64(len(during)), "")
	r.compare("the other tenant, end to end", &quiet, &beside, 0, fairMore)
	if _, most, ok := installation.MemoryOf(in.Pid()); ok {
		r.figure("RSS, at most", most, "MiB")
	}
	return nil
}
