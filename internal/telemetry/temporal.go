package telemetry

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// temporalPrefix is that of the SDK's own names. Others are not taken.
const temporalPrefix = "temporal_"

// temporalLabels are the labels of the SDK's metrics that are kept. Others, such as the namespace, are the
// same for all metrics of a process, or have no bound. The values of these come from the SDK and from what
// this process registers.
func temporalLabels() []string {
	return []string{
		"operation", "status_code", "cause", "task_queue", "worker_type", "poller_type", "workflow_type", "activity_type", "failure_reason",
	}
}

// temporalMetrics has the metrics of Temporal's SDK, made at their first use. Counters end in _total,
// timers in _seconds.
type temporalMetrics struct {
	registry *prometheus.Registry

	mu       sync.RWMutex
	counters map[string]*prometheus.CounterVec
	gauges   map[string]*prometheus.GaugeVec
	timers   map[string]*prometheus.HistogramVec
}

func newTemporalMetrics(r *prometheus.Registry) *temporalMetrics {
	return &temporalMetrics{
		registry: r, counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*prometheus.GaugeVec{},
		timers: map[string]*prometheus.HistogramVec{},
	}
}

// Temporal returns the handler of the SDK's metrics.
func (m *Metrics) Temporal() client.MetricsHandler { return &temporalHandler{metrics: m.temporal} }

// temporalHandler makes the metrics of one set of label values. It implements client.MetricsHandler.
// The SDK makes several for each task, so a set is an array.
type temporalHandler struct {
	metrics *temporalMetrics
	values  [9]string // of temporalLabels
}

// WithTags implements client.MetricsHandler.
func (h *temporalHandler) WithTags(tags map[string]string) client.MetricsHandler {
	with := *h
	for name, value := range tags {
		if at := slices.Index(temporalLabels(), name); at >= 0 && value != "none" {
			with.values[at] = strings.ToValidUTF8(value, "?")
		}
	}
	return &with
}

// Counter implements client.MetricsHandler.
func (h *temporalHandler) Counter(name string) client.MetricsCounter {
	vec := made(h.metrics, h.metrics.counters, name, func(help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: strings.TrimSuffix(name, "_total") + "_total", Help: help}, temporalLabels())
	})
	if vec == nil {
		return client.MetricsNopHandler.Counter(name)
	}
	return temporalCounter{vec.WithLabelValues(h.values[:]...)}
}

// Gauge implements client.MetricsHandler.
func (h *temporalHandler) Gauge(name string) client.MetricsGauge {
	vec := made(h.metrics, h.metrics.gauges, name, func(help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, temporalLabels())
	})
	if vec == nil {
		return client.MetricsNopHandler.Gauge(name)
	}
	return temporalGauge{vec.WithLabelValues(h.values[:]...)}
}

// Timer implements client.MetricsHandler.
func (h *temporalHandler) Timer(name string) client.MetricsTimer {
	vec := made(h.metrics, h.metrics.timers, name, func(help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name + "_seconds", Help: help, Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60},
		}, temporalLabels())
	})
	if vec == nil {
		return client.MetricsNopHandler.Timer(name)
	}
	return temporalTimer{vec.WithLabelValues(h.values[:]...)}
}

// made returns the metric of a name, and makes it the first time; nil if the name is not the SDK's.
func made[V prometheus.Collector](m *temporalMetrics, all map[string]V, name string, create func(help string) V) (metric V) {
	m.mu.RLock()
	metric, known := all[name]
	m.mu.RUnlock()
	if known || !strings.HasPrefix(name, temporalPrefix) {
		return metric
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if metric, known = all[name]; known {
		return metric
	}
	metric = create("Of Temporal's SDK; see its documentation.")
	if m.registry.Register(metric) != nil { // the name of another kind of metric
		var none V
		metric = none
	}
	all[name] = metric
	return metric
}

type temporalCounter struct{ prometheus.Counter }

// Inc implements client.MetricsCounter.
func (c temporalCounter) Inc(n int64) { c.Add(float64(max(n, 0))) }

type temporalGauge struct{ prometheus.Gauge }

// Update implements client.MetricsGauge.
func (g temporalGauge) Update(value float64) { g.Set(value) }

type temporalTimer struct{ prometheus.Observer }

// Record implements client.MetricsTimer.
func (t temporalTimer) Record(d time.Duration) { t.Observe(d.Seconds()) }
