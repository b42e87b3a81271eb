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
	RunningReplays    int     `json:"running_replays,omitempty"` // at a time; others wait, queued

	// Of requests other than those that post events, beside RequestsPerSecond and Burst.
	OtherRequestsPerSecond float64 `json:"other_requests_per_second,omitempty"`
	OtherBurst             int     `json:"other_burst,omitempty"`
}

// The largest values. To exempt a tenant from a default, an operator sets one of these.
const (
	MinRequestsPerSecond = 0.01
	MaxRequestsPerSecond = 100_000
	MaxBurst             = 1_000_000
	MaxEndpointQuota     = 1_000_000
	MaxPendingQuota      = 1_000_000 // this many rows can be counted in a fraction of a second
	MaxReplayQuota       = 1000
)

// MaxOpenReplays is how many replays of a tenant may be open when another is requested.
const MaxOpenReplays = 1000

// Or returns the limits with zero fields replaced by the defaults. A tenant with its own
// rate has its own burst: one second's requests unless it is set. The default rate of requests
// other than events is not in force for a tenant with its own rate of all requests.
func (l Limits) Or(defaults Limits) Limits {
	if l.RequestsPerSecond > 0 {
		defaults.OtherRequestsPerSecond = 0
	}
	l.RequestsPerSecond, l.Burst = rateOr(l.RequestsPerSecond, l.Burst, defaults.RequestsPerSecond, defaults.Burst)
	l.OtherRequestsPerSecond, l.OtherBurst = rateOr(l.OtherRequestsPerSecond, l.OtherBurst, defaults.OtherRequestsPerSecond, defaults.OtherBurst)
	for _, of := range []struct{ own, byDefault *int }{
		{&l.Endpoints, &defaults.Endpoints},
		{&l.PendingDeliveries, &defaults.PendingDeliveries},
		{&l.EndpointsPerEvent, &defaults.EndpointsPerEvent},
		{&l.RunningReplays, &defaults.RunningReplays},
	} {
		if *of.own == 0 {
			*of.own = *of.byDefault
		}
	}
	return l
}

func rateOr(perSecond float64, burst int, defaultPerSecond float64, defaultBurst int) (float64, int) {
	if perSecond == 0 {
		perSecond = defaultPerSecond
		if burst == 0 {
			burst = defaultBurst
		}
	}
	if burst == 0 && perSecond > 0 {
		burst = int(math.Ceil(perSecond))
	}
	return perSecond, burst
}
