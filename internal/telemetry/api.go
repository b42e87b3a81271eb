package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// apiMetrics are rate, errors and duration of the API's requests. How many are in flight is read from
// the server.
type apiMetrics struct {
	requests *prometheus.CounterVec
	inside   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newAPIMetrics(r registry) apiMetrics {
	return apiMetrics{
		requests: r.counters("everpost_api_requests_total",
			"Requests to the API, by operationId and class of the answer's status.", "operation", "status"),
		inside: r.counters("everpost_console_requests_total",
			"Requests of the console to the API, by operationId and class of the answer's status.", "operation", "status"),
		duration: r.histograms("everpost_api_request_duration_seconds", "How long the API took to answer, by operationId.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 30}, "operation"),
	}
}

// Answered counts a request to the API. operation is an operationId or a constant.
func (m *Metrics) Answered(operation string, status int, took time.Duration) {
	m.api.requests.WithLabelValues(operation, statusClass(status)).Inc()
	m.api.duration.WithLabelValues(operation).Observe(took.Seconds())
}

// AnsweredInside counts a request of the console to the API of its process.
func (m *Metrics) AnsweredInside(operation string, status int) {
	m.api.inside.WithLabelValues(operation, statusClass(status)).Inc()
}

// statusClass is the class of a status (RFC 9110 §15).
func statusClass(status int) string {
	return strconv.Itoa(min(max(status/100, 1), 5)) + "xx"
}
