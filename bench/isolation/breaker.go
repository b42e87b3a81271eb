package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

const breakerName = "breaker"

const (
	// opensAfter is how many requests, half of them failed, open a circuit.
	opensAfter = 20
	// mostOpenings bounds how often a minute the circuit of a flapping receiver opens with
	// the default cooldown.
	mostOpenings = 2.0
	flap         = 2 * time.Second
	// noMore is how long nothing must arrive until nothing more is expected.
	noMore = 2 * time.Second
)

// breaker measures when circuits open and close.
func breaker(ctx context.Context, l *lab, r *report) (err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	if err := in.tenant(ctx, "acme"); err != nil {
		return err
	}
	for _, part := range []func(context.Context, *report) error{in.opening, in.probing, in.flapping, in.refusing} {
		if err := part(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// opening: every second request fails, one at a time.
func (p *place) opening(ctx context.Context, r *report) error {
	p.lab.sayf("every second request fails")
	to, _, err := p.against(ctx, alternate, "a.alternate", fields{"retry_policy": fields{"strategy": "fixed", "base": "1h"}})
	if err != nil {
		return err
	}
	for i := range 2 * opensAfter {
		if _, err := p.poster("acme", "a.alternate")(ctx, i); err != nil {
			return err
		}
		if arrived, err := wait(ctx, noMore, func() bool { return len(to.soFar()) > i }); !arrived || err != nil {
			break // nothing is sent any more
		}
	}
	r.exactly("requests until the circuit opens, every second of them failing", len(to.soFar()), opensAfter, "")
	return ctx.Err()
}

// probing: a receiver takes a second for each 503, and recovers later.
func (p *place) probing(ctx context.Context, r *report) error {
	p.lab.sayf("all requests fail, slowly")
	cooldown := min(p.lab.size.cooldown, 2*time.Second)
	to, _, err := p.against(ctx, fails, "a.slow", fields{
		"circuit_breaker": fields{"cooldown": cooldown.String()}, "retry_policy": fields{"strategy": "fixed", "base": "1s", "max_attempts": 100},
	})
	if err != nil {
		return err
	}
	to.become(fails, time.Second/2)
	before, err := p.openings(ctx)
	if err != nil {
		return err
	}
	posts, err := p.burst(ctx, "acme", "a.slow", 2*batchSize, 1)
	if err != nil {
		return err
	}
	opened, err := wait(ctx, p.lab.size.patience, func() bool {
		now, err := p.openings(ctx)
		return err == nil && now > before && to.underWay() == 0
	})
	if err != nil {
		return err
	}
	if !opened {
		return fmt.Errorf("the circuit did not open after %d requests", len(to.soFar()))
	}
	to.resetMost()
	seen := len(to.soFar())
	if err := installation.Pause(ctx, 10*cooldown); err != nil {
		return err
	}
	most, _ := to.atOnce()
	r.exactly("requests at once while it is open", most, 1, "")
	r.figure("probes that failed", float64(len(to.soFar())-seen), fmt.Sprintf("in %.0f s", (10*cooldown).Seconds()))
	back := to.become(answers, 0)
	if _, err := wait(ctx, p.lab.size.patience, func() bool { return goodOnes(to.soFar()) == len(posts) }); err != nil {
		return err
	}
	o := match(posts, to.soFar())
	r.complete("a receiver that failed and is back", &o)
	r.figure("from its return until all had arrived", (drained(posts, to.soFar(), back) - back).Seconds(), "s")
	return nil
}

// flapping: a receiver alternates between two seconds up and two seconds down.
func (p *place) flapping(ctx context.Context, r *report) error {
	p.lab.sayf("a receiver is up for 2 s and down for 2 s, for %s", p.lab.size.flapping)
	to, _, err := p.against(ctx, answers, "a.flap", fields{
		"circuit_breaker": fields{"cooldown": p.lab.size.cooldown.String()}, "retry_policy": fields{"preset": "fast"},
	})
	if err != nil {
		return err
	}
	before, err := p.openings(ctx)
	if err != nil {
		return err
	}
	err = concurrently(ctx,
		func(ctx context.Context) error {
			_, err := p.lab.run(ctx, flow{rate: steady, lasts: p.lab.size.flapping, one: p.poster("acme", "a.flap")})
			return err
		},
		func(ctx context.Context) error {
			for i := range int(p.lab.size.flapping / flap) {
				to.become([]manner{answers, fails}[i%2], 0)
				if err := installation.Pause(ctx, flap); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	after, err := p.openings(ctx)
	if err != nil {
		return err
	}
	// The bound is for the number of cooldowns in the measured time.
	limit := mostOpenings * p.lab.size.flapping.Minutes() * float64(fullSize().cooldown) / float64(p.lab.size.cooldown)
	r.atMost(fmt.Sprintf("openings in %s for a receiver that comes and goes", p.lab.size.flapping), after-before, limit, "")
	return nil
}

// refusing: a 4xx does not count as a failure of the receiver.
func (p *place) refusing(ctx context.Context, r *report) error {
	p.lab.sayf("all requests are answered 400")
	to, _, err := p.against(ctx, refuses, "a.refused", fields{})
	if err != nil {
		return err
	}
	before, err := p.openings(ctx)
	if err != nil {
		return err
	}
	posts, err := p.burst(ctx, "acme", "a.refused", 2*batchSize, 1)
	if err != nil {
		return err
	}
	if _, err := wait(ctx, p.lab.size.patience, func() bool { return len(to.soFar()) >= len(posts) }); err != nil {
		return err
	}
	after, err := p.openings(ctx)
	if err != nil {
		return err
	}
	r.exactly("requests of events that are answered 400", len(to.soFar()), len(posts), "")
	r.exactly("openings after 400", int(after-before), 0, "")
	return nil
}

// openings reads from the metrics how often circuits have opened.
func (p *place) openings(ctx context.Context) (float64, error) {
	response, err := p.Admin(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return metric(response.Body, `everpost_circuit_changes_total{to="open"}`)
}

// metric reads a sample in Prometheus' text format; 0 when it is missing.
func metric(page io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("read the metric %s: %w", name, err)
			}
			return n, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the metrics: %w", err)
	}
	return 0, nil
}
