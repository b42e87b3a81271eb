package telemetry

import (
	"net/http"
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

func newAPIMetrics(m *Metrics) apiMetrics {
	a := apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_api_requests_total", Help: "Requests to the API, by operationId and class of the answer's status.",
		}, []string{"operation", "status"}),
		inside: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everpost_console_requests_total", Help: "Requests of the console to the API, by operationId and class of the answer's status.",
		}, []string{"operation", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "everpost_api_request_duration_seconds", Help: "How long the API took to answer, by operationId.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 30},
		}, []string{"operation"}),
	}
	m.registry.MustRegister(a.requests, a.inside, a.duration)
	return a
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
	switch {
	case status < http.StatusOK:
		return "1xx"
	case status < http.StatusMultipleChoices:
		return "2xx"
	case status < http.StatusBadRequest:
		return "3xx"
	case status < http.StatusInternalServerError:
		return "4xx"
	}
	return "5xx"
}
