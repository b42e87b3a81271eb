package app

import (
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/statistics"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// startStatistics makes what counts the attempts of this process, and has it write. It stops after
// the requests under way, whose outcomes it counts.
func (a *App) startStatistics() {
	a.statistics = statistics.New(statistics.Config{Store: a.store.Statistics, Logger: a.log, Now: a.store.Now})
	a.metrics.Gauge("everpost_statistics_dropped", "Attempts and ends of deliveries that are missing in the statistics: too much waited to be written.",
		func() float64 { return float64(a.statistics.Dropped()) })
	a.push(phaseStatistics, a.statistics.Stop)
	a.statistics.Start(a.life)
}

// observer reports attempts to the metrics, the monitor and the statistics. It implements
// activities.Observer. The monitor is made after the activities, and before the first attempt.
type observer struct {
	*telemetry.Metrics

	app *App
}

func (o observer) Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	o.Metrics.Attempted(ref, a, p)
	o.app.monitor.Attempted(ref, a, p)
}

func (o observer) Counted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress, ended bool) {
	if ended && a == nil {
		o.Ended(p)
		o.app.monitor.Ended(ref, p)
	}
	o.app.statistics.Counted(ref, a, p.State, ended)
}

// circuitChanged is called when the circuit of an endpoint opens, is probed or closes.
func (a *App) circuitChanged(c webhook.CircuitChange) {
	if !c.TakenOver {
		a.metrics.CircuitChanged(string(c.To))
		a.log.Info("an endpoint's circuit has changed", "endpoint", c.EndpointID, "from", c.From, "to", c.To, "why", c.Why)
	}
	c.At = byClock(a.store.Now, c.At)
	a.monitor.CircuitChanged(c)
}

// endpointMoved is called when an endpoint has another URL or state: what this process remembers of
// its failures no longer applies.
func (a *App) endpointMoved(id webhook.EndpointID) {
	if a.admission != nil {
		a.monitor.EndpointChanged(id)
		a.faults.EndpointChanged(id)
	}
}

// endpointStates gives the monitor the state of endpoints in admission.
type endpointStates struct {
	admission *admission.Controller
	now       func() time.Time // by the database's clock
}

func (s endpointStates) State(id webhook.EndpointID) (webhook.Observation, bool) {
	o := s.admission.Health(id)
	return observedBy(s.now, o), o != (webhook.Observation{Circuit: webhook.CircuitClosed})
}

func (s endpointStates) EachUnhealthy(visit func(webhook.EndpointID, webhook.Observation)) {
	s.admission.EachUnhealthy(func(id webhook.EndpointID, o webhook.Observation) { visit(id, observedBy(s.now, o)) })
}

func (s endpointStates) OpenCircuits() []webhook.EndpointID { return s.admission.OpenCircuits() }

func (s endpointStates) CloseCircuit(id webhook.EndpointID, at time.Time) {
	s.admission.CloseCircuit(id, at)
}

func (s endpointStates) Reset(id webhook.EndpointID) { s.admission.Reset(id) }

// observedBy converts the times of an observation, for other processes: to the database's clock.
func observedBy(now func() time.Time, o webhook.Observation) webhook.Observation {
	for _, t := range []*time.Time{&o.Since, &o.NextProbe, &o.ProbeOver, &o.BlockedUntil} {
		if !t.IsZero() {
			*t = byClock(now, *t).UTC().Round(time.Millisecond) // the two clocks are not read at once
		}
	}
	return o
}

// byClock converts a time of this process's clock to another clock.
func byClock(now func() time.Time, at time.Time) time.Time { return now().Add(time.Until(at)) }
