package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/telemetry"
)

// countPatience bounds the queries of a scrape.
const countPatience = 2 * time.Second

// depths are the counts of the store for the metrics.
type depths interface {
	OutboxDepth(ctx context.Context) (int64, time.Time, error)
	HeldDepth(ctx context.Context) (int64, time.Time, error)
	RetryDepth(ctx context.Context) (deliveries.RetryDepth, error)
	ReplayRate(ctx context.Context) (running, perMinute int64, err error)
}

// countingStores are the stores that count.
type countingStores struct {
	*deliveries.Outbox
	*deliveries.Held
	*deliveries.Deliveries
	*replays.Replays
}

// retryCountAge is how long a count of retrying deliveries is used: it reads the table, not only an index.
const retryCountAge = 30 * time.Second

// storeCollector reads each count once per scrape, for all metrics that need it: a count is work
// for PostgreSQL.
type storeCollector struct {
	life  context.Context //nolint:containedctx // a scrape has none
	store depths

	depth, age, held, heldAge, replays, replay, retrying, retryingLong, retryLargest *prometheus.Desc

	mu      sync.Mutex
	retries deliveries.RetryDepth // as counted last
	counted time.Time
}

func newStoreCollector(life context.Context, store depths) *storeCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+"; -1 when PostgreSQL does not answer.", nil, nil)
	}
	return &storeCollector{
		life: life, store: store,
		depth:    desc("everpost_outbox_deliveries", "Deliveries that were stored and have no first attempt or claim, or are released and not yet begun"),
		age:      desc("everpost_outbox_age_seconds", "Age of the oldest delivery in the outbox"),
		held:     desc("everpost_held_deliveries", "Deliveries that are held; 100001 stands for more than 100,000"),
		heldAge:  desc("everpost_held_age_seconds", "Age of the oldest held delivery since its event was accepted"),
		replays:  desc("everpost_replays_running", "Replays that are running"),
		replay:   desc("everpost_replay_rate_per_minute", "Deliveries that the running replays release in a minute, together"),
		retrying: desc("everpost_retrying_deliveries", "Deliveries that wait for a retry; 100001 stands for more than 100,000"),
		retryingLong: desc("everpost_retrying_deliveries_over_24h",
			"Deliveries that wait for a retry, were not replayed, and were accepted more than 24 hours ago"),
		retryLargest: desc("everpost_retrying_deliveries_of_largest_endpoint", "Deliveries that wait for a retry at the endpoint that has most of them"),
	}
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.depth, c.age, c.held, c.heldAge, c.replays, c.replay, c.retrying, c.retryingLong, c.retryLargest,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.life, countPatience)
	defer cancel()
	const unknown = -1
	send := func(err error, values map[*prometheus.Desc]float64) {
		for d, value := range values {
			if err != nil {
				value = unknown
			}
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
		}
	}
	waiting, oldest, err := c.store.OutboxDepth(ctx)
	send(err, map[*prometheus.Desc]float64{c.depth: float64(waiting), c.age: telemetry.Age(oldest)})
	held, oldestHeld, err := c.store.HeldDepth(ctx)
	send(err, map[*prometheus.Desc]float64{c.held: float64(held), c.heldAge: telemetry.Age(oldestHeld)})
	running, rate, err := c.store.ReplayRate(ctx)
	send(err, map[*prometheus.Desc]float64{c.replays: float64(running), c.replay: float64(rate)})
	retries, err := c.countRetries(ctx)
	send(err, map[*prometheus.Desc]float64{
		c.retrying: float64(retries.Deliveries), c.retryingLong: float64(retries.OverDay), c.retryLargest: float64(retries.Largest),
	})
}

// countRetries counts, or returns a count that is not older than retryCountAge.
func (c *storeCollector) countRetries(ctx context.Context) (deliveries.RetryDepth, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.counted) > retryCountAge {
		depth, err := c.store.RetryDepth(ctx)
		if err != nil {
			return deliveries.RetryDepth{}, err
		}
		c.retries, c.counted = depth, now
	}
	return c.retries, nil
}
