package app

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// countedOutbox counts how often it is asked.
type countedOutbox struct{ asked int }

func (c *countedOutbox) OutboxDepth(context.Context) (int64, time.Time, error) {
	c.asked++
	return 3, time.Time{}, nil
}

// Counting the outbox is work for PostgreSQL: once for both metrics.
func TestScrapeCountsTheOutboxOnce(t *testing.T) {
	t.Parallel()
	outbox, registry := &countedOutbox{}, prometheus.NewRegistry()
	registry.MustRegister(newOutboxCollector(t.Context(), outbox))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	require.Equal(t, 1, outbox.asked)
}
