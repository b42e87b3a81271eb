package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/telemetry"
)

// outboxPatience bounds the look into the outbox when the metrics are read.
const outboxPatience = 2 * time.Second

// depthOf counts what waits for its first record, and since when the oldest does.
type depthOf interface {
	OutboxDepth(ctx context.Context) (int64, time.Time, error)
}

// outboxCollector reads the outbox once for both of its metrics: a count is work
// for PostgreSQL, and the two belong together.
type outboxCollector struct {
	life       context.Context //nolint:containedctx // a scrape has none
	outbox     depthOf
	depth, age *prometheus.Desc
}

func newOutboxCollector(life context.Context, outbox depthOf) *outboxCollector {
	return &outboxCollector{
		life: life, outbox: outbox,
		depth: prometheus.NewDesc("everpost_outbox_deliveries",
			"Deliveries that were stored and have no first record; -1 when PostgreSQL does not answer.", nil, nil),
		age: prometheus.NewDesc("everpost_outbox_age_seconds",
			"Age of the oldest delivery in the outbox; -1 when PostgreSQL does not answer.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *outboxCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.depth
	to <- c.age
}

// Collect implements prometheus.Collector.
func (c *outboxCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.life, outboxPatience)
	defer cancel()
	depth, age := -1.0, -1.0
	if n, oldest, err := c.outbox.OutboxDepth(ctx); err == nil {
		depth, age = float64(n), telemetry.Age(oldest)
	}
	to <- prometheus.MustNewConstMetric(c.depth, prometheus.GaugeValue, depth)
	to <- prometheus.MustNewConstMetric(c.age, prometheus.GaugeValue, age)
}
