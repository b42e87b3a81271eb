package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointMoved is called when an endpoint has another URL or state: what this process remembers of
// its failures no longer applies.
func (a *App) endpointMoved(id webhook.EndpointID) {
	if a.admission != nil {
		a.monitor.EndpointChanged(id)
		a.starter.EndpointChanged(id)
	}
}

// admissionCollector reads the counts of admission once per scrape, for all of its metrics.
type admissionCollector struct {
	admission                                         *admission.Controller
	endpoints, inFlight, waiting, reserved, notClosed *prometheus.Desc
}

func newAdmissionCollector(c *admission.Controller) *admissionCollector {
	return &admissionCollector{
		admission: c,
		endpoints: prometheus.NewDesc("everpost_admission_endpoints", "Endpoints that this process keeps state of.", nil, nil),
		inFlight:  prometheus.NewDesc("everpost_admission_in_flight", "Requests to receivers under way in this process.", nil, nil),
		waiting:   prometheus.NewDesc("everpost_admission_waiting", "Attempts that wait in memory for a permit.", nil, nil),
		reserved:  prometheus.NewDesc("everpost_admission_reserved", "Deliveries that are deferred with a reservation in this process.", nil, nil),
		notClosed: prometheus.NewDesc("everpost_admission_circuits_not_closed", "Endpoints whose circuit is open or half open.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *admissionCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.endpoints, c.inFlight, c.waiting, c.reserved, c.notClosed} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *admissionCollector) Collect(to chan<- prometheus.Metric) {
	t := c.admission.Totals()
	for d, n := range map[*prometheus.Desc]int{
		c.endpoints: t.Endpoints, c.inFlight: t.InFlight, c.waiting: t.Waiting, c.reserved: t.Reserved, c.notClosed: t.NotClosed,
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
}

// usualRate is how many deliveries per minute an endpoint got before it was paused or failed,
// if this process remembers.
func (a *App) usualRate(id webhook.EndpointID) int {
	if a.admission == nil {
		return 0
	}
	return int(60 * a.admission.UsualRate(id))
}
