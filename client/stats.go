package client

import (
	"context"
	"net/url"
	"time"
)

// Stats are statistics of a time, in steps of a minute or an hour.
type Stats struct {
	Since  Time         `json:"since"`
	Until  Time         `json:"until"`
	Step   string       `json:"step"` // "1m" or "1h"
	Totals StatsCounts  `json:"totals"`
	Data   []StatsPoint `json:"data"` // the steps that have any count, oldest first
}

// StatsPoint is one minute or hour.
type StatsPoint struct {
	At Time `json:"at"` // its beginning
	StatsCounts
}

// StatsCounts are the counts of a time.
type StatsCounts struct {
	Attempts       map[string]int64 `json:"attempts"`        // by outcome: "delivered", "http_4xx", "http_5xx", "timeout", …
	FirstAttempts  int64            `json:"first_attempts"`  // of deliveries; all others are retries, or belong to a replay
	FirstDelivered int64            `json:"first_delivered"` // first attempts that delivered
	Ended          map[string]int64 `json:"ended"`           // deliveries by the DeliveryState in which they ended
	LatencyMS      StatsLatency     `json:"latency_ms"`
	FilterMatched  int64            `json:"filter_matched"` // events of a type that the endpoint subscribes to, which its filter matched
	Filtered       int64            `json:"filtered"`       // those that it kept out
}

// StatsLatency has quantiles of how long attempts took, in milliseconds; nil without an attempt that was answered or timed out.
type StatsLatency struct {
	P50 *int64 `json:"p50"`
	P95 *int64 `json:"p95"`
	P99 *int64 `json:"p99"`
}

// StatsQuery is a time and what is counted. What is zero is not compared.
type StatsQuery struct {
	EndpointID   string    // only for a tenant's
	Since, Until time.Time // default: the last hour
	Step         string    // "1m", of the last 48 hours, or "1h"; by the length of the time if ""
}

func (q StatsQuery) query() url.Values {
	return parameters("endpoint_id", q.EndpointID, "since", instant(q.Since), "until", instant(q.Until), "step", q.Step)
}

// Stats reads the statistics of all tenants. It needs an operator's key.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	return get[Stats](ctx, scope{c, []string{"stats"}}, q.query())
}

// Stats reads the statistics of the tenant.
func (t TenantCalls) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	return get[Stats](ctx, t.at("stats"), q.query())
}
