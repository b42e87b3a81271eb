package app

import (
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/monitor"
	"github.com/everpost/everpost/internal/recovery"
	"github.com/everpost/everpost/internal/statistics"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// startStatistics makes what counts the attempts and the verdicts of filters of this process, and has it write. It stops after
// the requests under way, whose outcomes it counts.
func (a *App) startStatistics() {
	a.statistics = statistics.New(statistics.Config{Store: a.store.Statistics, Logger: a.log, Now: a.store.Now})
	a.metrics.Gauge("everpost_statistics_dropped",
		"Attempts and ends of deliveries, and verdicts of filters, that are missing in the statistics: too much waited to be written.",
		func() float64 { return float64(a.statistics.Dropped()) })
	a.push(phaseStatistics, a.statistics.Stop)
	a.statistics.Start(a.life)
}

// observer reports attempts to the metrics, the notes of endpoints and the statistics. It implements activities.Observer.
type observer struct {
	*telemetry.Metrics

	notes      *monitor.Notes
	statistics *statistics.Recorder
	now        func() time.Time // by the database's clock
}

func (o observer) Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress) {
	o.Metrics.Attempted(ref, a, p)
	o.notes.Attempted(ref, a, p)
}

func (o observer) Counted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress, ended bool) {
	if ended && a == nil {
		o.Ended(p)
		o.notes.Ended(ref, p, o.now())
	}
	o.statistics.Counted(ref, a, p.State, ended)
}

// circuits reports changes of circuits to the metrics, the log and the notes of endpoints.
type circuits struct {
	metrics *telemetry.Metrics
	notes   *monitor.Notes
	log     *slog.Logger
}

// changed is called when the circuit of an endpoint opens, is probed or closes.
func (c circuits) changed(change webhook.CircuitChange) {
	if !change.TakenOver {
		c.metrics.CircuitChanged(string(change.To))
		c.log.Info("an endpoint's circuit has changed", "endpoint", change.EndpointID, "from", change.From, "to", change.To, "why", change.Why)
	}
	c.notes.CircuitChanged(change)
}

// failures are what this process remembers of the failures of endpoints.
type failures struct {
	notes     *monitor.Notes
	admission *admission.Controller
	faults    *recovery.Faults
}

// forget is called when an endpoint has another URL or state: what is remembered of it no longer applies.
func (f failures) forget(id webhook.EndpointID) {
	f.notes.EndpointChanged(id, f.admission.Reset)
	f.faults.EndpointChanged(id)
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

// observedBy converts the times of an observation, for other processes: to the database's clock.
func observedBy(now func() time.Time, o webhook.Observation) webhook.Observation {
	for _, t := range []*time.Time{&o.Since, &o.NextProbe, &o.ProbeOver, &o.BlockedUntil} {
		if !t.IsZero() {
			*t = monitor.ByClock(now, *t).UTC().Round(time.Millisecond) // the two clocks are not read at once
		}
	}
	return o
}
