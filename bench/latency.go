package main

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/bench/internal/installation"
)

// pace is a rate of events and its duration.
type pace struct{ rate, seconds int }

// latency posts at fixed rates, with one installation for each. The plain loop runs first
// at the same rates, to show the machine's part of the latency.
func latency(ctx context.Context, b *bench) ([]row, error) {
	var loops []work
	for _, p := range b.size.paces {
		loops = append(loops, b.loopWork(p))
	}
	rows, err := b.plain(ctx, loops...)
	if err != nil {
		return rows, err
	}
	for i, p := range b.size.paces {
		one, err := b.alone(ctx, p.work())
		for _, r := range one {
			if loop := rows[i].figures[endToEndP50]; loop > 0 {
				r.figures.set(ofLoop, r.figures[endToEndP50]/loop)
			}
		}
		rows = append(rows, one...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// loopWork is the plain loop at a pace, for half of the time.
func (b *bench) loopWork(p pace) work {
	w := b.throughputWork()
	w.name, w.events, w.rate = fmt.Sprintf("%s-%d", ceilingName, p.rate), p.rate*p.seconds/2, float64(p.rate)
	return w
}

// work has more connections than requests under way, unless the API is too slow for the
// rate.
func (p pace) work() work {
	return work{
		name: fmt.Sprintf("latency-%d", p.rate), events: p.rate * p.seconds, endpoints: 1,
		connections: installation.MaxConnections, batch: 1, rate: float64(p.rate),
	}
}
