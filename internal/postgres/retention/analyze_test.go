package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Partitioned tables are analyzed once a day, which autovacuum does not do.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	rows := func() []float64 {
		return storetest.Query[float64](t, b.Stores, `
			select reltuples::float8 from pg_class where relname in ('events', 'deliveries', 'attempts', 'statistics_minutes', 'statistics_hours')
			order by relname`)
	}
	require.Equal(t, []float64{-1, -1, -1, -1, -1}, rows())
	require.NoError(t, b.Analyze(t.Context()))
	require.Equal(t, []float64{1, 1, 1, 0, 0}, rows())

	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	require.Eventually(t, func() bool { // the server's statistics are written a moment later
		return storetest.Query[int](t, b.Stores, `select count(last_analyze)::int from pg_stat_all_tables where relname in
			('events', 'deliveries', 'attempts', 'statistics_minutes', 'statistics_hours') and schemaname = current_schema()`)[0] == 5
	}, storetest.Eventually, storetest.Poll)
	require.NoError(t, b.Analyze(t.Context()))
	require.Equal(t, []float64{1, 1, 1, 0, 0}, rows(), "not twice a day")
}

// The drop of a day would wait for an analysis, and everybody else for the drop.
func TestNoDayIsDroppedDuringAnAnalysis(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	analysis, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = analysis.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = analysis.Exec(t.Context(), `select everpost_analyze('deliveries', interval '0')`)
	require.NoError(t, err)
	retained, err := b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
	require.Zero(t, retained.Days)
	require.NoError(t, b.Analyze(t.Context()), "another process does it")
	require.NoError(t, analysis.Rollback(t.Context()))
	retained, err = b.Retain(t.Context(), time.Now().Add(72*time.Hour), 24*time.Hour)
	require.NoError(t, err)
	require.Positive(t, retained.Days)
}
