package main

import "context"

// throughput measures one endpoint that responds at once, with 64 callers that each post
// the next event after the response to the last.
func throughput(ctx context.Context, b *bench) ([]row, error) {
	return b.alone(ctx, b.throughputWork())
}

func (b *bench) throughputWork() work {
	return work{name: "throughput", events: b.size.events, endpoints: 1, connections: 64, batch: 1}
}
