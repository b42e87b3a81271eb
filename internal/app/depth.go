package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/telemetry"
)

// countPatience bounds each look into the record when the metrics are read.
const countPatience = 2 * time.Second

// depths are what the record counts for the metrics.
type depths interface {
	OutboxDepth(ctx context.Context) (int64, time.Time, error)
	HeldDepth(ctx context.Context) (int64, error)
	ReplayRate(ctx context.Context) (running, perMinute int64, err error)
}

// countingStores are the stores that count.
type countingStores struct {
	*deliveries.Outbox
	*deliveries.Held
	*replays.Replays
}

// recordCollector reads each of the record's counts once for the metrics that it
// serves: a count is work for PostgreSQL, and what is read together belongs together.
type recordCollector struct {
	life                              context.Context //nolint:containedctx // a scrape has none
	record                            depths
	depth, age, held, replays, replay *prometheus.Desc
}

func newRecordCollector(life context.Context, record depths) *recordCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+"; -1 when PostgreSQL does not answer.", nil, nil)
	}
	return &recordCollector{
		life: life, record: record,
		depth:   desc("everpost_outbox_deliveries", "Deliveries that were stored and have no first record, or are released and not yet begun"),
		age:     desc("everpost_outbox_age_seconds", "Age of the oldest delivery in the outbox"),
		held:    desc("everpost_held_deliveries", "Deliveries that are held; 100001 stands for more than 100,000"),
		replays: desc("everpost_replays_running", "Replays that are running"),
		replay:  desc("everpost_replay_rate_per_minute", "Deliveries that the running replays release in a minute, together"),
	}
}

// Describe implements prometheus.Collector.
func (c *recordCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.age, c.held, c.replays, c.replay} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *recordCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.life, countPatience)
	defer cancel()
	tell := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	const unknown = -1
	if n, oldest, err := c.record.OutboxDepth(ctx); err == nil {
		tell(c.depth, float64(n))
		tell(c.age, telemetry.Age(oldest))
	} else {
		tell(c.depth, unknown)
		tell(c.age, unknown)
	}
	if n, err := c.record.HeldDepth(ctx); err == nil {
		tell(c.held, float64(n))
	} else {
		tell(c.held, unknown)
	}
	if running, rate, err := c.record.ReplayRate(ctx); err == nil {
		tell(c.replays, float64(running))
		tell(c.replay, float64(rate))
	} else {
		tell(c.replays, unknown)
		tell(c.replay, unknown)
	}
}
