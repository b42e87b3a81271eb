package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

const pauseName = "pause"

const (
	// underWay is how long requests may still arrive after the response to the pause.
	underWay = time.Second
	// releaseRate is the requested release rate of held deliveries per second.
	releaseRate = 50
	// pacedOver is the window of the mean rate in seconds: held deliveries are released
	// once a second, and timers are late.
	pacedOver = 5
)

// pause: an endpoint is paused and resumed under a steady flow.
func pause(ctx context.Context, l *lab, r *report) (err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	if err := in.tenant(ctx, "acme"); err != nil {
		return err
	}
	to, id, err := in.against(ctx, answers, "a.flow", fields{})
	if err != nil {
		return err
	}
	var (
		posts                        []post
		paused, resuming             time.Duration
		first, second                = l.size.base / 3, l.size.base/3 + l.size.pause
		started, endpoint, lastsLong = l.since(), tenantPath("acme", "/endpoints/"+id), l.size.base/3 + l.size.pause + l.size.resumed
	)
	l.sayf("50/s for %s; paused after %s for %s", lastsLong, first, l.size.pause)
	cost := in.begin()
	err = concurrently(ctx,
		func(ctx context.Context) (err error) {
			posts, err = l.run(ctx, flow{rate: steady, lasts: lastsLong, one: in.poster("acme", "a.flow")})
			return err
		},
		func(ctx context.Context) error {
			if _, err := l.until(ctx, started+first, nil); err != nil {
				return err
			}
			if err := in.action(ctx, endpoint+"/pause", `{}`); err != nil {
				return err
			}
			paused = l.since()
			if _, err := l.until(ctx, started+second, nil); err != nil {
				return err
			}
			resuming = l.since()
			return in.action(ctx, endpoint+"/resume", `{"rate_per_minute":3000}`)
		})
	if err != nil {
		return err
	}
	if _, err := wait(ctx, l.size.patience, func() bool { return goodOnes(to.soFar()) == len(posts) }); err != nil {
		return err
	}
	if err := installation.Pause(ctx, underWay); err != nil { // for duplicates
		return err
	}
	cost.report(r, "in all")
	arrivals := to.soFar()
	o := match(posts, arrivals)
	r.complete("the endpoint", &o)
	r.exactly("arrivals from a second after the pause to the resume", len(between(arrivals, paused+underWay, resuming)), 0, "")
	r.figure("arrivals within a second after the pause was answered", float64(len(between(arrivals, paused, paused+underWay))), "")
	late := between(arrivals, resuming, l.since())
	if len(late) == 0 {
		return errors.New("nothing arrived after the resume")
	}
	counts := perSecond(late, resuming, late[len(late)-1].at+1)
	r.Curves = []curve{{"arrivals since the resume", counts}}
	// For a minute the rate is the requested one; it may be doubled then.
	counts = counts[:min(len(counts), 60)]
	r.figure("busiest second in the minute after the resume", float64(busiest(counts)), "/s")
	means := smooth(counts, min(pacedOver, len(counts)))
	r.atMost("busiest 5 s in the minute after the resume, per second", slices.Max(means), steady*1.1+releaseRate*1.2, "/s")
	r.figure("from the resume until what was held had arrived", (drained(posts, arrivals, resuming) - resuming).Seconds(), "s")
	return nil
}

// drained returns when the last event arrived that was due before a time.
func drained(posts []post, arrivals []arrival, before time.Duration) time.Duration {
	early := map[string]bool{}
	for _, p := range posts {
		if p.due < before {
			early[p.event] = true
		}
	}
	last := before
	for _, a := range arrivals {
		if a.good && early[a.event] {
			last = max(last, a.at)
		}
	}
	return last
}
