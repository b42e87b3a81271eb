package webhook

import "math"

// Limits bound what one tenant may take of an installation. A zero field sets no limit
// of its own: the operator's default is in force, and where that is zero too there is
// no limit.
type Limits struct {
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"` // with the tenant's keys, in each API process
	Burst             int     `json:"burst,omitempty"`               // requests that may come at once
	Endpoints         int     `json:"endpoints,omitempty"`           // that are not deleted
	PendingDeliveries int     `json:"pending_deliveries,omitempty"`  // not at rest, about: see internal/postgres/quota.go
	EndpointsPerEvent int     `json:"endpoints_per_event,omitempty"`
}

// The largest limits that can be set. What an operator wants to be without a limit
// although there is a default gets one of these.
const (
	MinRequestsPerSecond = 0.01
	MaxRequestsPerSecond = 100_000
	MaxBurst             = 1_000_000
	MaxEndpointQuota     = 1_000_000
	MaxPendingQuota      = 1_000_000 // what can be counted in a fraction of a second
)

// Or returns the limits with what they leave open taken from the defaults. A rate of
// its own has a burst of its own: one second's requests unless that is set too.
func (l Limits) Or(defaults Limits) Limits {
	if l.RequestsPerSecond == 0 {
		l.RequestsPerSecond = defaults.RequestsPerSecond
		if l.Burst == 0 {
			l.Burst = defaults.Burst
		}
	}
	if l.Burst == 0 && l.RequestsPerSecond > 0 {
		l.Burst = int(math.Ceil(l.RequestsPerSecond))
	}
	for _, of := range []struct{ own, byDefault *int }{
		{&l.Endpoints, &defaults.Endpoints},
		{&l.PendingDeliveries, &defaults.PendingDeliveries},
		{&l.EndpointsPerEvent, &defaults.EndpointsPerEvent},
	} {
		if *of.own == 0 {
			*of.own = *of.byDefault
		}
	}
	return l
}
