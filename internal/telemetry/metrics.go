package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Metrics are the metrics of a process, in their own registry. docs/operations.md documents them.
type Metrics struct {
	registry *prometheus.Registry

	attempts                 *prometheus.CounterVec
	latency                  *prometheus.HistogramVec
	ends                     *prometheus.CounterVec
	firstTries               prometheus.Counter
	retries                  prometheus.Counter
	attemptsTo               prometheus.Histogram
	backoff                  prometheus.Histogram
	internalFaults           prometheus.Counter
	deferred                 *prometheus.CounterVec
	circuits                 *prometheus.CounterVec
	eventAccepted            prometheus.Counter
	disabled                 prometheus.Counter
	retryStorms              prometheus.Counter
	operationalEvents        *prometheus.CounterVec
	operationalEventsDropped prometheus.Counter
	authFailures             *prometheus.CounterVec
	bodiesRefused            *prometheus.CounterVec

	retrying retryMetrics
	api      apiMetrics
	commits  commitMetrics
	temporal *temporalMetrics
}

// NewMetrics creates the metrics and registers them with those of the Go runtime and the process.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_attempts_total", Help: "Requests to receivers, by what they came to.",
		}, []string{"decision", "reason"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "everpost_attempt_duration_seconds", Help: "How long requests to receivers took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30},
		}, []string{"decision"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_deliveries_total", Help: "Deliveries that came to rest after an attempt, by state.",
		}, []string{"state"}),
		firstTries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_first_attempts_total", Help: "First attempts of a run: of new deliveries, and of replays.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_retry_attempts_total", Help: "Attempts after the first of a run.",
		}),
		attemptsTo: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "everpost_attempts_to_success", Help: "Attempts that delivered deliveries needed.", Buckets: []float64{1, 2, 3, 4, 5, 8, 12, 16},
		}),
		backoff: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "everpost_backoff_duration_seconds", Help: "Delays before the next attempt.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600},
		}),
		deferred: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_admission_deferred_total", Help: "Deliveries that had to wait for their turn at an endpoint, by why; no attempt is counted.",
		}, []string{"reason"}),
		circuits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_circuit_changes_total", Help: "Changes of endpoints' circuit breakers, by the new state.",
		}, []string{"to"}),
		internalFaults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_internal_faults_total", Help: "Attempts that could not be made because of us; nothing was counted against the receiver.",
		}),
		eventAccepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_events_accepted_total", Help: "Events that were stored and answered with 202.",
		}),
		disabled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_endpoints_disabled_total", Help: "Endpoints that this process has disabled because they only fail.",
		}),
		retryStorms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_retry_storms_total", Help: "Warnings that an endpoint is sent mostly retries, at most one per endpoint and hour.",
		}),
		operationalEvents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_operational_events_total", Help: "Operational events of circuits, retry storms and dead letters that were stored, by type.",
		}, []string{"type"}),
		operationalEventsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everpost_operational_events_dropped_total", Help: "Operational events that were not stored: too many at once, or refused.",
		}),
		authFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_api_auth_failures_total", Help: "Requests to the API whose key was not accepted, by cause.",
		}, []string{"cause"}),
		bodiesRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_api_bodies_refused_total", Help: "Request bodies that were not read to their end, by cause.",
		}, []string{"cause"}),
	}
	m.registry.MustRegister(m.attempts, m.latency, m.ends, m.firstTries, m.retries, m.attemptsTo, m.backoff, m.internalFaults, m.eventAccepted,
		m.deferred, m.circuits, m.disabled, m.retryStorms, m.operationalEvents, m.operationalEventsDropped, m.authFailures, m.bodiesRefused,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.retrying, m.api, m.commits, m.temporal = newRetryMetrics(m), newAPIMetrics(m), newCommitMetrics(m), newTemporalMetrics(m.registry)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "everpost_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(build)
	m.makeSeries()
	return m
}

// Gauge registers a metric whose value is read on each scrape.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Register adds a collector of several values.
func (m *Metrics) Register(c prometheus.Collector) { m.registry.MustRegister(c) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Attempted counts an attempt, and the end of its delivery.
func (m *Metrics) Attempted(_ webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	decision := a.Outcome.Decision.String()
	m.attempts.WithLabelValues(decision, string(a.Outcome.Reason)).Inc()
	m.latency.WithLabelValues(decision).Observe(a.Latency.Seconds())
	number := numberInRun(a, p)
	if number == 1 {
		m.firstTries.Inc()
	} else {
		m.retries.Inc()
	}
	m.retrying.attempted(a, number)
	if a.Delay > 0 {
		m.backoff.Observe(a.Delay.Seconds())
	}
	if !p.State.Open() {
		m.ends.WithLabelValues(p.State.String()).Inc()
		m.retrying.ended(p)
	}
	if a.Outcome.Decision == retry.Delivered {
		m.attemptsTo.Observe(float64(number))
	}
}

// Deferred counts a delivery that admission deferred.
func (m *Metrics) Deferred(reason string) { m.deferred.WithLabelValues(reason).Inc() }

// CircuitChanged counts a change of a circuit breaker's state.
func (m *Metrics) CircuitChanged(to string) { m.circuits.WithLabelValues(to).Inc() }

// InternalFault counts an attempt that failed for an internal reason.
func (m *Metrics) InternalFault(error) { m.internalFaults.Inc() }

// Accepted counts a stored event.
func (m *Metrics) Accepted() { m.eventAccepted.Inc() }

// Disabled counts an endpoint that was disabled because all its deliveries failed.
func (m *Metrics) Disabled() { m.disabled.Inc() }

// RetryStorm counts a retry storm of an endpoint.
func (m *Metrics) RetryStorm() { m.retryStorms.Inc() }

// OperationalEventStored counts a stored operational event.
func (m *Metrics) OperationalEventStored(eventType string) {
	m.operationalEvents.WithLabelValues(eventType).Inc()
}

// AuthFailed counts a request to the API whose key was refused.
func (m *Metrics) AuthFailed(cause string) { m.authFailures.WithLabelValues(cause).Inc() }

// BodyRefused counts a request body that was refused before its end.
func (m *Metrics) BodyRefused(cause string) { m.bodiesRefused.WithLabelValues(cause).Inc() }

// OperationalEventsDropped counts operational events that were not stored.
func (m *Metrics) OperationalEventsDropped(n int) { m.operationalEventsDropped.Add(float64(n)) }

// Age returns the number of seconds since t; 0 for the zero time.
func Age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}
