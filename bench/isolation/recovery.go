package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const recoveryName = "recovery"

// gated names the measurement with the default admission.
const gated = "with admission"

// climb is how long after the recovery the peak is determined.
const climb = time.Minute

// outage is what one receiver measured around its failure.
type outage struct {
	from, until time.Duration // relative to the flow's start: when it failed, when it recovered
	healed      time.Duration // the first 200 after that
	curve       curve
	posts       []post
	arrivals    []arrival // by the lab's clock
	outcome     outcome
	deadLetters int
	calm        time.Duration // from the recovery until all had arrived
}

// recovery: the same receiver fails and recovers under the same load, with the default
// admission, and with the circuit breaker off and a high max_in_flight.
func recovery(ctx context.Context, l *lab, r *report) error {
	l.sayf("with admission")
	with, err := l.fail(ctx, r, gated, fields{
		"circuit_breaker": fields{"cooldown": l.size.cooldown.String()}, "retry_policy": fields{"preset": "fast", "max_attempts": 16},
	})
	if err != nil {
		return err
	}
	l.sayf("without")
	without, err := l.fail(ctx, r, "without", fields{
		"circuit_breaker": fields{"enabled": false}, "retry_policy": fields{"preset": "fast", "max_attempts": 16}, "max_in_flight": 1000,
	})
	if err != nil {
		return err
	}
	r.Curves = []curve{with.curve, without.curve}
	// No rate limit is set here: the peak is compared with the rate before the failure.
	end := max(with.healed, with.until) + climb
	r.atMost(gated+": arrivals per second until a minute after the first 200", float64(busiest(with.seconds(with.until, end))), 2*steady, "/s")
	r.exactly(gated+": neither delivered nor given up", with.outcome.missing-with.deadLetters, 0, "events")
	r.exactly(gated+": given up", with.deadLetters, 0, "events")
	r.exactly(gated+": never posted", with.outcome.unexpected, 0, "arrivals")
	r.figure(gated+": answered 200 more than once", float64(with.outcome.again), "times")
	if l.pictures == "" {
		return nil
	}
	if err := os.MkdirAll(l.pictures, 0o755); err != nil { //nolint:gosec // documentation is for everyone
		return fmt.Errorf("draw the picture: %w", err)
	}
	path := filepath.Join(l.pictures, recoveryName+".svg")
	text := picture{from: with.from, until: with.until, usual: steady, curves: r.Curves}.draw()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // as above
		return fmt.Errorf("draw the picture: %w", err)
	}
	return nil
}

// seconds counts the arrivals in each second between two times since the flow began.
func (o *outage) seconds(from, to time.Duration) []int {
	return perSecond(o.arrivals, o.posts[0].due+from, o.posts[0].due+to)
}

// fail makes a receiver succeed, fail and succeed again under a steady flow, and waits
// until everything has arrived, or nothing more can.
func (l *lab) fail(ctx context.Context, r *report, name string, settings fields) (_ *outage, err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	if err := in.tenant(ctx, "acme"); err != nil {
		return nil, err
	}
	to, _, err := in.against(ctx, answers, "a.flow", settings)
	if err != nil {
		return nil, err
	}
	o := &outage{from: l.size.base, until: l.size.base + l.size.outage}
	cost, started := in.begin(), l.since()
	err = concurrently(ctx,
		func(ctx context.Context) (err error) {
			o.posts, err = l.run(ctx, flow{rate: steady, lasts: o.until + l.size.after, one: in.poster("acme", "a.flow")})
			return err
		},
		func(ctx context.Context) error {
			for _, turn := range []struct {
				at time.Duration
				m  manner
			}{{o.from, fails}, {o.until, answers}} {
				if _, err := l.until(ctx, started+turn.at, nil); err != nil {
					return err
				}
				to.become(turn.m, 0)
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	if _, err := wait(ctx, l.size.patience, func() bool {
		if goodOnes(to.soFar()) == len(o.posts) {
			return true
		}
		open, err := in.count(ctx, "acme", "state=pending&state=retrying&state=held", 1)
		return err == nil && open == 0
	}); err != nil {
		return nil, err
	}
	cost.report(r, name)
	if o.deadLetters, err = in.count(ctx, "acme", "state=dead_lettered", len(o.posts)); err != nil {
		return nil, err
	}
	o.see(name, to.soFar())
	o.report(r, name)
	return o, nil
}

// see evaluates the arrivals.
func (o *outage) see(name string, arrivals []arrival) {
	o.arrivals, o.outcome = arrivals, match(o.posts, arrivals)
	began := o.posts[0].due
	last := began + o.until
	for _, a := range arrivals {
		if a.good {
			last = max(last, a.at)
			if o.healed == 0 && a.at-began > o.until {
				o.healed = a.at - began
			}
		}
	}
	o.curve = curve{name, o.seconds(0, last-began+time.Second)}
	o.calm = drained(o.posts, arrivals, began+o.until) - began - o.until
}

func (o *outage) report(r *report, name string) {
	r.figure(name+": requests while it failed", float64(len(between(o.arrivals, o.posts[0].due+o.from, o.posts[0].due+o.until))), "")
	r.figure(name+": busiest second while it failed", float64(busiest(o.seconds(o.from, o.until))), "/s")
	r.figure(name+": busiest second in the minute after its return", float64(busiest(o.seconds(o.until, o.until+climb))), "/s")
	r.figure(name+": busiest second after its return", float64(busiest(o.curve.Counts[min(len(o.curve.Counts), int(o.until/time.Second)):])), "/s")
	r.figure(name+": first 200 after its return", (o.healed - o.until).Seconds(), "s")
	r.figure(name+": what was due before had all arrived after", o.calm.Seconds(), "s")
	r.figure(name+": of so many events", float64(len(o.posts)), "")
	if name != gated {
		r.figure(name+": given up", float64(o.deadLetters), "deliveries")
	}
}
