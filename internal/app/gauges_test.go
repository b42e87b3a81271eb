package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
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

func (c *countedRecord) RetryDepth(context.Context) (deliveries.RetryDepth, error) {
	c.asked.Add(1)
	return deliveries.RetryDepth{Deliveries: 7, OverDay: 2, Largest: 6}, c.err
}

func (c *countedRecord) ReplayRate(context.Context) (running, perMinute int64, err error) {
	c.asked.Add(1)
	return 5, 600, c.err
}

// Counting is work for PostgreSQL: once for all metrics that a count serves. What
// cannot be counted is -1, and no reason for the others to be left out.
func TestScrapeCountsOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want map[string]float64
	}{
		{nil, map[string]float64{
			"everpost_outbox_deliveries": 3, "everpost_outbox_age_seconds": 0, "everpost_held_deliveries": 4,
			"everpost_replays_running": 5, "everpost_replay_rate_per_minute": 600, "everpost_held_age_seconds": 0,
			"everpost_retrying_deliveries": 7, "everpost_retrying_deliveries_over_24h": 2, "everpost_retrying_deliveries_of_largest_endpoint": 6,
		}},
		{errors.New("away"), map[string]float64{
			"everpost_outbox_deliveries": -1, "everpost_outbox_age_seconds": -1, "everpost_held_deliveries": -1,
			"everpost_replays_running": -1, "everpost_replay_rate_per_minute": -1, "everpost_held_age_seconds": -1,
			"everpost_retrying_deliveries": -1, "everpost_retrying_deliveries_over_24h": -1, "everpost_retrying_deliveries_of_largest_endpoint": -1,
		}},
	} {
		record, registry := &countedRecord{err: c.err}, prometheus.NewRegistry()
		for _, group := range storeGauges(t.Context(), record) {
			registry.MustRegister(group)
		}
		families, err := registry.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		require.Equal(t, c.want, got)
		require.EqualValues(t, 4, record.asked.Load())

		// What reads the table is not counted again at once, unless it failed.
		_, err = registry.Gather()
		require.NoError(t, err)
		require.EqualValues(t, map[bool]int{true: 8, false: 7}[c.err != nil], record.asked.Load())
	}
}
