package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/replays"
)

// countedRecord counts its calls, and returns an error.
type countedRecord struct {
	asked atomic.Int32 // the groups are read concurrently
	err   error
}

func (c *countedRecord) OutboxDepth(context.Context) (int64, time.Time, error) {
	c.asked.Add(1)
	return 3, time.Time{}, c.err
}

func (c *countedRecord) HeldDepth(context.Context) (int64, time.Time, error) {
	c.asked.Add(1)
	return 4, time.Time{}, c.err
}

func (c *countedRecord) ReleaseDepth(context.Context) (int64, time.Time, error) {
	c.asked.Add(1)
	return 9, time.Time{}, c.err
}

func (c *countedRecord) RetryDepth(context.Context) (deliveries.RetryDepth, error) {
	c.asked.Add(1)
	return deliveries.RetryDepth{Deliveries: 7, OverDay: 2, Largest: 6}, c.err
}

func (c *countedRecord) ReplayRate(context.Context) (replays.Rate, error) {
	c.asked.Add(1)
	return replays.Rate{Running: 5, Queued: 8, PerMinute: 600}, c.err
}

// Counting is work for PostgreSQL: once for all metrics that a count serves. What cannot be counted has its last value, whose age shows that;
// -1 if there is none.
func TestScrapeCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record, registry := &countedRecord{}, prometheus.NewRegistry()
		for _, group := range storeGauges(t.Context(), record) {
			registry.MustRegister(group)
		}
		gather := func() (values, ages map[string]float64) {
			t.Helper()
			families, err := registry.Gather()
			require.NoError(t, err)
			values, ages = map[string]float64{}, map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == "everpost_count_age_seconds" {
						ages[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
						continue
					}
					values[f.GetName()] = m.GetGauge().GetValue()
				}
			}
			return values, ages
		}
		all := map[string]float64{
			"everpost_outbox_deliveries": 3, "everpost_outbox_age_seconds": 0, "everpost_held_deliveries": 4,
			"everpost_releases_running": 9, "everpost_release_lag_seconds": 0,
			"everpost_replays_running": 5, "everpost_replays_queued": 8, "everpost_replay_rate_per_minute": 600, "everpost_held_age_seconds": 0,
			"everpost_retrying_deliveries": 7, "everpost_retrying_deliveries_over_24h": 2, "everpost_retrying_deliveries_of_largest_endpoint": 6,
		}
		none := map[string]float64{}
		for name := range all {
			none[name] = -1
		}

		record.err = errors.New("away")
		values, ages := gather()
		require.Equal(t, none, values)
		require.Equal(t, map[string]float64{"outbox": -1, "held": -1, "releases": -1, "replays": -1, "retries": -1}, ages)
		require.EqualValues(t, 5, record.asked.Load())

		record.err = nil
		<-time.After(retryCountAge)
		values, ages = gather()
		require.Equal(t, all, values)
		require.Equal(t, map[string]float64{"outbox": 0, "held": 0, "releases": 0, "replays": 0, "retries": 0}, ages)
		require.EqualValues(t, 10, record.asked.Load())

		<-time.After(time.Second)
		gather()
		require.EqualValues(t, 14, record.asked.Load(), "what reads many rows is not counted again at once")

		record.err = errors.New("away")
		<-time.After(retryCountAge)
		values, ages = gather()
		require.Equal(t, all, values)
		require.Equal(t, map[string]float64{"outbox": 30, "held": 30, "releases": 30, "replays": 30, "retries": 31}, ages)
		require.EqualValues(t, 19, record.asked.Load())
		<-time.After(time.Second)
		gather()
		require.EqualValues(t, 23, record.asked.Load(), "nor is that tried again at once")
	})
}

// What took long, because much waits or PostgreSQL is slow, is not counted with each scrape.
func TestACountThatTakesLongIsUsedForLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, takes := 0, time.Second
		c := &count{life: t.Context(), last: []float64{-1}, read: func(ctx context.Context) ([]float64, error) {
			asked++
			select {
			case <-time.After(takes):
				return []float64{float64(asked)}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		require.Equal(t, []float64{1, 0}, c.values())
		<-time.After(18 * time.Second)
		require.Equal(t, []float64{1, 18}, c.values())
		<-time.After(time.Second)
		takes = time.Hour
		require.Equal(t, []float64{1, 21}, c.values(), "it is cut off")
		<-time.After(countShare*countPatience - countPatience - time.Second)
		require.Equal(t, 2, asked)
		c.values()
		require.Equal(t, 2, asked)
		<-time.After(time.Second)
		takes = time.Millisecond
		require.Equal(t, []float64{3, 0}, c.values())
		<-time.After(time.Second)
		require.Equal(t, []float64{4, 0}, c.values())
	})
}
