package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
	"github.com/everpost/everpost/internal/telemetry"
)

const (
	// countPatience bounds the queries of a scrape.
	countPatience = 2 * time.Second
	// retryCountAge is how long a count of retrying deliveries is used, or is not tried again: it reads up to 100,001 of them.
	retryCountAge = 30 * time.Second
	// countShare is how much longer than it took a count is used: so it keeps PostgreSQL busy for a twentieth of the time at most.
	countShare = 20
)

// gauges are metrics whose values are read together, once per scrape.
type gauges struct {
	descs []*prometheus.Desc
	read  func() []float64
}

type gauge struct{ name, help string }

func newGauges(read func() []float64, all ...gauge) gauges {
	g := gauges{read: read}
	for _, one := range all {
		g.descs = append(g.descs, prometheus.NewDesc(one.name, one.help, nil, nil))
	}
	return g
}

// Describe implements prometheus.Collector.
func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	for i, value := range g.read() {
		to <- prometheus.MustNewConstMetric(g.descs[i], prometheus.GaugeValue, value)
	}
}

func admissionGauges(c *admission.Controller) gauges {
	return newGauges(
		func() []float64 {
			t := c.Totals()
			return []float64{float64(t.Endpoints), float64(t.InFlight), float64(t.Waiting), float64(t.Reserved), float64(t.NotClosed)}
		},
		gauge{"everpost_admission_endpoints", "Endpoints that this process keeps state of."},
		gauge{"everpost_admission_in_flight", "Requests to receivers under way in this process."},
		gauge{"everpost_admission_waiting", "Attempts that wait in memory for a permit."},
		gauge{"everpost_admission_reserved", "Deliveries that are deferred with a reservation in this process."},
		gauge{"everpost_admission_circuits_not_closed", "Endpoints whose circuit is open or half open."},
	)
}

// depths are the counts of the store for the metrics.
type depths interface {
	deliveryDepths
	ReplayRate(ctx context.Context) (replays.Rate, error)
	ReleaseDepth(ctx context.Context) (running int64, due time.Time, err error)
}

// deliveryDepths count deliveries.
type deliveryDepths interface {
	OutboxDepth(ctx context.Context) (int64, time.Time, error)
	HeldDepth(ctx context.Context) (int64, time.Time, error)
	RetryDepth(ctx context.Context) (deliveries.RetryDepth, error)
}

// countingStores are the stores that count.
type countingStores struct {
	*deliveries.Outbox
	*deliveries.Releases
	*deliveries.Deliveries
	*replays.Replays
}

// storeGauges are the counts of the store, in groups that one query reads each: a count is work for PostgreSQL.
func storeGauges(life context.Context, store depths) []gauges {
	group := func(name string, every time.Duration, read func(context.Context) ([]float64, error), all ...gauge) gauges {
		for i := range all {
			all[i].help += "; the last count if PostgreSQL does not answer, -1 without any."
		}
		c := &count{life: life, every: every, read: read, last: make([]float64, len(all))}
		for i := range c.last {
			c.last[i] = -1
		}
		g := newGauges(c.values, all...)
		g.descs = append(g.descs, prometheus.NewDesc("everpost_count_age_seconds",
			"Time since PostgreSQL has last counted this; -1 if it never has.", nil, prometheus.Labels{"count": name}))
		return g
	}
	return []gauges{
		group("outbox", 0, func(ctx context.Context) ([]float64, error) {
			waiting, oldest, err := store.OutboxDepth(ctx)
			return []float64{float64(waiting), telemetry.Age(oldest)}, err
		},
			gauge{"everpost_outbox_deliveries", "Deliveries that were stored and have no first attempt or claim, or are released and not yet begun"},
			gauge{"everpost_outbox_age_seconds", "Age of the oldest delivery in the outbox"}),
		group("held", 0, func(ctx context.Context) ([]float64, error) {
			held, oldest, err := store.HeldDepth(ctx)
			return []float64{float64(held), telemetry.Age(oldest)}, err
		},
			gauge{"everpost_held_deliveries", "Deliveries that are held; 100001 stands for more than 100,000"},
			gauge{"everpost_held_age_seconds", "Age of the oldest held delivery since its event was accepted"}),
		group("releases", 0, func(ctx context.Context) ([]float64, error) {
			running, due, err := store.ReleaseDepth(ctx)
			return []float64{float64(running), telemetry.Age(due)}, err
		},
			gauge{"everpost_releases_running", "Endpoints whose held deliveries are being released; 10001 stands for more than 10,000"},
			gauge{"everpost_release_lag_seconds", "How late the turn of a release is that waits longest; 0 for none"}),
		group("replays", 0, func(ctx context.Context) ([]float64, error) {
			r, err := store.ReplayRate(ctx)
			return []float64{float64(r.Running), float64(r.Queued), float64(r.PerMinute)}, err
		},
			gauge{"everpost_replays_running", "Replays that are running"},
			gauge{"everpost_replays_queued", "Replays that wait until fewer run; 10001 stands for more than 10,000"},
			gauge{"everpost_replay_rate_per_minute", "Deliveries that the running replays release in a minute, together"}),
		group("retries", retryCountAge, func(ctx context.Context) ([]float64, error) {
			depth, err := store.RetryDepth(ctx)
			return []float64{float64(depth.Deliveries), float64(depth.OverDay), float64(depth.Largest)}, err
		},
			gauge{"everpost_retrying_deliveries", "Deliveries that wait for a retry; 100001 stands for more than 100,000"},
			gauge{
				"everpost_retrying_deliveries_over_24h",
				"Deliveries that wait for a retry, were not replayed, and were accepted more than 24 hours ago",
			},
			gauge{"everpost_retrying_deliveries_of_largest_endpoint", "Deliveries that wait for a retry at the endpoint that has most of them"}),
	}
}

// count keeps the values that a query has counted last: alerts must not lose them because PostgreSQL is slow for a while.
type count struct {
	life  context.Context //nolint:containedctx // a scrape has none
	every time.Duration   // counts are not older than this, and a failed one is not repeated before
	read  func(context.Context) ([]float64, error)

	mu             sync.Mutex
	last           []float64
	tried, counted time.Time
	took           time.Duration // the last try
}

// values counts, or returns what was counted last; and the time since.
func (c *count) values() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.tried) >= max(c.every, countShare*c.took) {
		c.tried = time.Now()
		ctx, cancel := context.WithTimeout(c.life, countPatience)
		defer cancel()
		values, err := c.read(ctx)
		if c.took = time.Since(c.tried); err == nil {
			c.last, c.counted = values, time.Now()
		}
	}
	age := -1.0
	if !c.counted.IsZero() {
		age = time.Since(c.counted).Seconds()
	}
	return append(slices.Clone(c.last), age)
}
