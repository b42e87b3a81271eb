package main

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/bench/internal/installation"
)

// pace is a rate of events, and for how long.
type pace struct{ rate, seconds int }

// latency posts at fixed rates, one installation for each.
func latency(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, p := range b.size.paces {
		one, err := b.alone(ctx, p.work(), nil)
		rows = append(rows, one...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// work has more connections than are under way at a time, unless the door is too slow for
// the rate.
func (p pace) work() work {
	return work{
		name: fmt.Sprintf("latency-%d", p.rate), events: p.rate * p.seconds, endpoints: 1,
		connections: installation.MaxConnections, batch: 1, rate: float64(p.rate),
	}
}
