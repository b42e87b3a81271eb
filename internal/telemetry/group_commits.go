package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// commitMetrics are those of the group commits.
type commitMetrics struct {
	items    *prometheus.HistogramVec
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newCommitMetrics(r registry) commitMetrics {
	return commitMetrics{
		items: r.histograms("everpost_group_commit_items",
			"Items in one flush of a group commit: requests with events, steps of deliveries, or claims.",
			[]float64{1, 2, 5, 10, 20, 50, 100, 200}, "writer"),
		duration: r.histograms("everpost_group_commit_duration_seconds",
			"How long one flush of a group commit took, to the commit or to the error.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}, "writer"),
		failures: r.counters("everpost_group_commit_failures_total",
			"Flushes of a group commit that were not committed; most are repeated, whole or in parts.", "writer"),
	}
}

// Flushed counts a flush of a group commit. writer is a constant.
func (m *Metrics) Flushed(writer string, items int, took time.Duration, err error) {
	m.commits.items.WithLabelValues(writer).Observe(float64(items))
	m.commits.duration.WithLabelValues(writer).Observe(took.Seconds())
	if err != nil {
		m.commits.failures.WithLabelValues(writer).Inc()
	}
}
