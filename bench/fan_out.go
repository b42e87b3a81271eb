package main

import "context"

// fanOut posts each event to ten endpoints.
func fanOut(ctx context.Context, b *bench) ([]row, error) { return b.alone(ctx, b.fanOutWork()) }

func (b *bench) fanOutWork() work {
	return work{name: "fan-out-10", events: b.size.fanOut, endpoints: 10, connections: 64, batch: 1}
}
