package tracing

import "context"

// Flush sends what has ended.
func (t *Tracer) Flush(ctx context.Context) { _ = t.provider.ForceFlush(ctx) }
