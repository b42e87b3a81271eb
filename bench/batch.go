package main

import "context"

// batchSize is the API's maximum for one request.
const batchSize = 100

// batch posts events in requests of batchSize, to one endpoint.
func batch(ctx context.Context, b *bench) ([]row, error) { return b.alone(ctx, b.batchWork()) }

func (b *bench) batchWork() work {
	return work{name: "batch-100", events: b.size.batched, endpoints: 1, connections: 16, batch: batchSize}
}
