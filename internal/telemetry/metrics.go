package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Metrics are the metrics of a process, in their own registry. docs/monitoring.md documents them.
type Metrics struct {
	registry registry

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
	schemaWarned             prometheus.Counter
	schemaRefused            prometheus.Counter
	disabled                 prometheus.Counter
	retryStorms              prometheus.Counter
	operationalEvents        *prometheus.CounterVec
	operationalEventsDropped prometheus.Counter
	authFailures             *prometheus.CounterVec
	bodiesRefused            *prometheus.CounterVec
	forwarded                *prometheus.CounterVec
	notificationMails        *prometheus.CounterVec

	retrying retryMetrics
	api      apiMetrics
	commits  commitMetrics
	temporal *temporalMetrics
}

// NewMetrics creates the metrics and registers them with those of the Go runtime and the process.
func NewMetrics(version string) *Metrics {
	r := registry{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{
		registry: r,
		attempts: r.counters("everpost_attempts_total", "Requests to receivers, by outcome.", "decision", "reason"),
		latency: r.histograms("everpost_attempt_duration_seconds", "How long requests to receivers took.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30}, "decision"),
		ends:       r.counters("everpost_deliveries_total", "Deliveries that ended with an attempt, by state.", "state"),
		firstTries: r.counter("everpost_first_attempts_total", "First attempts of a run: of new deliveries, and of replays."),
		retries:    r.counter("everpost_retry_attempts_total", "Attempts after the first of a run."),
		attemptsTo: r.histogram("everpost_attempts_to_success", "Attempts that delivered deliveries needed.",
			1, 2, 3, 4, 5, 8, 12, 16),
		backoff: r.histogram("everpost_backoff_duration_seconds", "Delays before the next attempt.",
			1, 5, 15, 60, 300, 900, 3600, 3*3600, 12*3600),
		deferred: r.counters("everpost_admission_deferred_total",
			"Deliveries that admission deferred, by reason; no attempt is counted.", "reason"),
		circuits: r.counters("everpost_circuit_changes_total", "Changes of endpoints' circuit breakers, by the new state.", "to"),
		internalFaults: r.counter("everpost_internal_faults_total",
			"Attempts that could not be made because of a fault of Everpost; nothing was recorded against the endpoint."),
		eventAccepted: r.counter("everpost_events_accepted_total", "Events that were stored and answered with 202."),
		schemaWarned: r.counter("everpost_events_schema_warned_total",
			"Events that were stored although their payload does not match the schema of their type."),
		schemaRefused: r.counter("everpost_events_schema_refused_total",
			"Requests to store events that were refused because a payload does not match the enforced schema of its type."),
		disabled: r.counter("everpost_endpoints_disabled_total", "Endpoints that this process has disabled because they only fail."),
		retryStorms: r.counter("everpost_retry_storms_total",
			"Warnings that an endpoint is sent mostly retries, at most one per endpoint and hour."),
		operationalEvents: r.counters("everpost_operational_events_total",
			"Operational events of circuits, retry storms and dead letters that were stored, by type.", "type"),
		operationalEventsDropped: r.counter("everpost_operational_events_dropped_total",
			"Operational events that were not stored: too many at once, or refused."),
		authFailures: r.counters("everpost_api_auth_failures_total", "Requests to the API whose key was not accepted, by cause.", "cause"),
		bodiesRefused: r.counters("everpost_api_bodies_refused_total",
			"Request bodies that were not read to their end, by cause.", "cause"),
		forwarded: r.counters("everpost_deliveries_forwarded_total",
			"New deliveries that this process forwarded to other ones, by result; what they refuse it starts itself.", "result"),
		notificationMails: r.counters("everpost_notification_mails_total", "Tries to send a mail of a notification, by result.", "result"),

		retrying: newRetryMetrics(r), api: newAPIMetrics(r), commits: newCommitMetrics(r), temporal: newTemporalMetrics(r.Registry),
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "everpost_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 }))
	m.makeSeries()
	return m
}

// registry makes metrics and registers them.
type registry struct{ *prometheus.Registry }

func (r registry) counter(name, help string) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (r registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (r registry) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func (r registry) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Counter registers a counter whose value is read on each scrape.
func (m *Metrics) Counter(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
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
	if a.Outcome.Reason == retry.ReasonConnectionReused { // it is made again at once, and only that counts
		return
	}
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

// Accepted counts a stored event, and whether its payload matches the schema of its type.
func (m *Metrics) Accepted(e *webhook.Event) {
	m.eventAccepted.Inc()
	if e.SchemaError != nil {
		m.schemaWarned.Inc()
	}
}

// NotAccepted counts a refusal of events whose payload does not match the enforced schema of their type.
func (m *Metrics) NotAccepted(err error) {
	if webhook.CodeOf(err) == webhook.CodePayloadInvalid {
		m.schemaRefused.Inc()
	}
}

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

// Forwarded counts a new delivery that was forwarded to another process, or that none takes.
func (m *Metrics) Forwarded(result webhook.ForwardResult) {
	m.forwarded.WithLabelValues(forwardResults[result]).Inc()
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var forwardResults = map[webhook.ForwardResult]string{
	webhook.ForwardAccepted: "accepted", webhook.ForwardRefused: "refused", webhook.ForwardUnanswered: "unanswered",
}

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

// NotificationMail counts a try to send a mail: sent, refused, failed (it is tried again) or given_up.
func (m *Metrics) NotificationMail(result string) { m.notificationMails.WithLabelValues(result).Inc() }
