package main

import "context"

// throughput is the plainest work: one endpoint that answers at once, and 64 callers that
// each post the next event when they have the answer to the last.
func throughput(ctx context.Context, b *bench) ([]row, error) {
	return b.alone(ctx, b.throughputWork())
}

func (b *bench) throughputWork() work {
	return work{name: "throughput", events: b.size.events, endpoints: 1, connections: 64, batch: 1}
}
