package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/telemetry"
)

// countPatience bounds each query of a scrape.
const countPatience = 2 * time.Second

// depths are the counts of the store for the metrics.
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

// storeCollector reads each count once per scrape, for all metrics that need it: a count is work
// for PostgreSQL.
type storeCollector struct {
	life                              context.Context //nolint:containedctx // a scrape has none
	store                             depths
	depth, age, held, replays, replay *prometheus.Desc
}

func newStoreCollector(life context.Context, store depths) *storeCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+"; -1 when PostgreSQL does not answer.", nil, nil)
	}
	return &storeCollector{
		life: life, store: store,
		depth:   desc("everpost_outbox_deliveries", "Deliveries that were stored and have no first attempt or claim, or are released and not yet begun"),
		age:     desc("everpost_outbox_age_seconds", "Age of the oldest delivery in the outbox"),
		held:    desc("everpost_held_deliveries", "Deliveries that are held; 100001 stands for more than 100,000"),
		replays: desc("everpost_replays_running", "Replays that are running"),
		replay:  desc("everpost_replay_rate_per_minute", "Deliveries that the running replays release in a minute, together"),
	}
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.age, c.held, c.replays, c.replay} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.life, countPatience)
	defer cancel()
	send := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	const unknown = -1
	if n, oldest, err := c.store.OutboxDepth(ctx); err == nil {
		send(c.depth, float64(n))
		send(c.age, telemetry.Age(oldest))
	} else {
		send(c.depth, unknown)
		send(c.age, unknown)
	}
	if n, err := c.store.HeldDepth(ctx); err == nil {
		send(c.held, float64(n))
	} else {
		send(c.held, unknown)
	}
	if running, rate, err := c.store.ReplayRate(ctx); err == nil {
		send(c.replays, float64(running))
		send(c.replay, float64(rate))
	} else {
		send(c.replays, unknown)
		send(c.replay, unknown)
	}
}
