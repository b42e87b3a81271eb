package webhook

import "math"

// Limits bound a tenant's use of the installation. A zero field is the operator's default;
// if that is zero too, there is no limit.
type Limits struct {
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"` // with all of the tenant's keys, in each API process
	Burst             int     `json:"burst,omitempty"`               // requests that may arrive at once
	Endpoints         int     `json:"endpoints,omitempty"`           // without deleted ones
	PendingDeliveries int     `json:"pending_deliveries,omitempty"`  // deliveries that are open, approximately: see internal/postgres/tenants/limits.go
	EndpointsPerEvent int     `json:"endpoints_per_event,omitempty"`
}

// The largest values. To exempt a tenant from a default, an operator sets one of these.
const (
	MinRequestsPerSecond = 0.01
	MaxRequestsPerSecond = 100_000
	MaxBurst             = 1_000_000
	MaxEndpointQuota     = 1_000_000
	MaxPendingQuota      = 1_000_000 // this many rows can be counted in a fraction of a second
)

// Or returns the limits with zero fields replaced by the defaults. A tenant with its own
// rate has its own burst: one second's requests unless it is set.
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
