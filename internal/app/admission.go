package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/starter"
	"github.com/everpost/everpost/internal/webhook"
)

// attemptAdmission is the admission as the activities know it. It tells the starter which
// endpoints have deliveries held over a backlog.
type attemptAdmission struct {
	*admission.Controller

	starter *starter.Starter
	now     func() time.Time // by the database's clock
}

// Enter asks for a permit, and may wait for one.
func (a attemptAdmission) Enter(ctx context.Context, e activities.Entry) activities.Admission {
	decision := a.Acquire(ctx, a.request(e))
	if decision.Held() {
		a.starter.Held(e.Endpoint.ID)
		return activities.Admission{Reason: decision.Reason}
	}
	if decision.Deferred() {
		return activities.Admission{Until: byClock(a.now, decision.Until), Reason: decision.Reason}
	}
	return admitted(decision.Permit)
}

// TryEnter asks for a permit without waiting.
func (a attemptAdmission) TryEnter(e activities.Entry) activities.Admission {
	p := a.TryAcquire(a.request(e))
	if p == nil {
		return activities.Admission{}
	}
	return admitted(p)
}

// request is an entry as the admission knows it.
func (a attemptAdmission) request(e activities.Entry) admission.Request {
	return admission.Request{
		Endpoint: e.Endpoint.ID, Delivery: e.Delivery, Limits: admission.LimitsOf(e.Endpoint), Released: e.Released, Retries: e.Retries, Probe: e.Probe,
		Host: a.HostOf(e.Endpoint.URL),
	}
}

func admitted(p *admission.Permit) activities.Admission {
	return activities.Admission{Pass: permit{p}, Timeout: p.Timeout()}
}

// permit is a permit as the activities know it.
type permit struct{ *admission.Permit }

// Done implements activities.Pass.
func (p permit) Done(outcome retry.Outcome, number int, latency time.Duration) {
	p.Permit.Done(admission.ResultOf(outcome, number, latency))
}

// byClock is a moment of this process's clock, as it is by another.
func byClock(now func() time.Time, at time.Time) time.Time { return now().Add(time.Until(at)) }

// startForecast is the admission as the starter knows it.
type startForecast struct{ *admission.Controller }

// Forecast implements starter.AdmissionForecast.
func (s startForecast) Forecast(id webhook.EndpointID) starter.Forecast {
	return starter.Forecast(s.Controller.Forecast(id))
}

// endpointMoved is told when somebody has changed an endpoint: it may lead elsewhere
// now, or a person says that it is well.
func (a *App) endpointMoved(id webhook.EndpointID) {
	if a.admission != nil {
		a.monitor.EndpointChanged(id)
		a.starter.Resumed(id)
		a.starter.EndpointMoved(id)
	}
}

// admissionCollector counts once for all of the admission's metrics.
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

// usualRate is how many deliveries an endpoint got in a minute before it was paused or
// in trouble, as far as this process remembers.
func (a *App) usualRate(id webhook.EndpointID) int {
	if a.admission == nil {
		return 0
	}
	h := a.admission.Health(id)
	return int(60 * max(h.EarlierRate, h.RecentRate))
}
