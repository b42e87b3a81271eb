package api

import (
	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func showLimits(l webhook.Limits) client.Limits {
	return client.Limits{
		RequestsPerSecond: nullable(l.RequestsPerSecond), Burst: nullable(l.Burst), Endpoints: nullable(l.Endpoints),
		PendingDeliveries: nullable(l.PendingDeliveries), EndpointsPerEvent: nullable(l.EndpointsPerEvent),
		RunningReplays: nullable(l.RunningReplays), OtherRequestsPerSecond: nullable(l.OtherRequestsPerSecond), OtherBurst: nullable(l.OtherBurst),
	}
}

// readLimits reads new limits of a tenant, each on its own: an absent limit is unchanged, null sets
// the operator's default.
func readLimits(d *jsonDecoder, l webhook.Limits) webhook.Limits {
	counts := map[string]struct {
		into *int
		most int
	}{
		"burst":               {&l.Burst, webhook.MaxBurst},
		"endpoints":           {&l.Endpoints, webhook.MaxEndpointQuota},
		"pending_deliveries":  {&l.PendingDeliveries, webhook.MaxPendingQuota},
		"endpoints_per_event": {&l.EndpointsPerEvent, webhook.MaxEndpointQuota},
		"running_replays":     {&l.RunningReplays, webhook.MaxReplayQuota},
		"other_burst":         {&l.OtherBurst, webhook.MaxBurst},
	}
	rates := map[string]*float64{"requests_per_second": &l.RequestsPerSecond, "other_requests_per_second": &l.OtherRequestsPerSecond}
	d.object(func(name []byte) {
		if into, known := rates[string(name)]; known {
			set(d, into, 0, func(d *jsonDecoder) float64 {
				return d.float(webhook.MinRequestsPerSecond, webhook.MaxRequestsPerSecond)
			})
			return
		}
		count, known := counts[string(name)]
		if !known {
			d.unknown()
			return
		}
		set(d, count.into, 0, func(d *jsonDecoder) int { return d.integer(1, count.most) })
	})
	return l
}
