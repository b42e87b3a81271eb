package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/dispatch"
	"github.com/everpost/everpost/internal/gate"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// admission lets the activities ask the gate, and tells the dispatcher of what is held.
type admission struct {
	*gate.Gate

	dispatcher *dispatch.Dispatcher
	now        func() time.Time // by the database's clock
}

func (a admission) Enter(ctx context.Context, e activities.Entry) activities.Admission {
	answer, pass := a.Gate.Enter(ctx, a.entry(e))
	switch answer.Verdict {
	case gate.Admitted:
		return activities.Admission{Pass: passage{pass}, Timeout: pass.Timeout()}
	case gate.Deferred:
		return activities.Admission{Until: byClock(a.now, answer.Until), Reason: answer.Reason.String()}
	case gate.Held:
	}
	a.dispatcher.Held(e.Endpoint.ID)
	return activities.Admission{Reason: webhook.ReasonBacklog}
}

// byClock is a moment of this process's clock, as it is by another.
func byClock(now func() time.Time, at time.Time) time.Time { return now().Add(time.Until(at)) }

func (a admission) TryEnter(e activities.Entry) activities.Admission {
	pass := a.Gate.TryEnter(a.entry(e))
	if pass == nil {
		return activities.Admission{}
	}
	return activities.Admission{Pass: passage{pass}, Timeout: pass.Timeout()}
}

// entry is an entry as the gate knows it.
func (a admission) entry(e activities.Entry) gate.Entry {
	return gate.Entry{
		Endpoint: e.Endpoint.ID, Delivery: e.Delivery, Limits: gate.LimitsOf(e.Endpoint), Released: e.Released, Retries: e.Retries, Probe: e.Probe,
		Host: a.HostOf(e.Endpoint.URL),
	}
}

// passage is a gate's pass as the activities know it.
type passage struct{ *gate.Pass }

func (p passage) Done(outcome retry.Outcome, number int, latency time.Duration) {
	p.Pass.Done(gate.ResultOf(outcome, number, latency))
}

// endpointMoved is told when somebody has changed an endpoint: it may lead elsewhere
// now, or a person says that it is well.
func (a *App) endpointMoved(id webhook.EndpointID) {
	if a.gate != nil {
		a.monitor.EndpointChanged(id)
		a.dispatcher.Resumed(id)
		a.dispatcher.EndpointMoved(id)
	}
}

// gateCollector counts once for all of the gate's metrics.
type gateCollector struct {
	gate                                             *gate.Gate
	endpoints, inFlight, waiting, reserved, troubled *prometheus.Desc
}

func newGateCollector(g *gate.Gate) *gateCollector {
	return &gateCollector{
		gate:      g,
		endpoints: prometheus.NewDesc("everpost_gate_endpoints", "Endpoints that this process remembers something of.", nil, nil),
		inFlight:  prometheus.NewDesc("everpost_gate_in_flight", "Requests to receivers under way in this process.", nil, nil),
		waiting:   prometheus.NewDesc("everpost_gate_waiting", "Attempts that wait for a turn that is near.", nil, nil),
		reserved:  prometheus.NewDesc("everpost_gate_reserved", "Deliveries that wait for a turn of their own within the next minutes.", nil, nil),
		troubled:  prometheus.NewDesc("everpost_gate_circuits_not_closed", "Endpoints whose circuit is open or half open.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *gateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.endpoints, c.inFlight, c.waiting, c.reserved, c.troubled} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *gateCollector) Collect(to chan<- prometheus.Metric) {
	t := c.gate.Totals()
	for d, n := range map[*prometheus.Desc]int{
		c.endpoints: t.Endpoints, c.inFlight: t.InFlight, c.waiting: t.Waiting, c.reserved: t.Reserved, c.troubled: t.NotClosed,
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
}

// usualRate is how many deliveries an endpoint got in a minute before it was paused or
// in trouble, as far as this process remembers.
func (a *App) usualRate(id webhook.EndpointID) int {
	if a.gate == nil {
		return 0
	}
	h := a.gate.Health(id)
	return int(60 * max(h.EarlierRate, h.RecentRate))
}
