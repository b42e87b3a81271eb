package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// Limits of a request for statistics. openapi.yaml documents them.
const (
	maxPoints      = 2880
	defaultSpan    = time.Hour
	minuteSpan     = 6 * time.Hour // the longest span whose default step is a minute
	statsTolerance = time.Minute   // by which a caller's clock may be behind, or its request late
)

// Statistics reads statistics.
type Statistics interface {
	// ReadStatistics returns the points of a query that have any count, oldest first.
	ReadStatistics(ctx context.Context, q webhook.StatisticsQuery) ([]webhook.StatisticsPoint, error)
}

func showCounts(c *webhook.Counts) client.StatsCounts {
	quantile := func(q float64) *int64 {
		ms, known := c.Quantile(q)
		if !known {
			return nil
		}
		return &ms
	}
	view := client.StatsCounts{
		Attempts: map[string]int64{}, FirstAttempts: c.FirstAttempts, FirstDelivered: c.FirstDelivered, Ended: map[string]int64{},
		FilterMatched: c.FilterMatched, Filtered: c.Filtered,
		LatencyMS: client.StatsLatency{P50: quantile(0.5), P95: quantile(0.95), P99: quantile(0.99)},
	}
	for _, class := range webhook.OutcomeClasses() {
		view.Attempts[class.String()] = c.Attempts[class]
	}
	for i, state := range webhook.EndStates() {
		view.Ended[state.String()] = c.Ended[i]
	}
	return view
}

func showStats(q webhook.StatisticsQuery, points []webhook.StatisticsPoint) client.Stats {
	view := client.Stats{Since: timestamp(q.Since), Until: timestamp(q.Until), Step: stepName(q.Step), Data: make([]client.StatsPoint, 0, len(points))}
	var totals webhook.Counts
	for i := range points {
		totals.Add(&points[i].Counts)
		view.Data = append(view.Data, client.StatsPoint{At: timestamp(points[i].At), StatsCounts: showCounts(&points[i].Counts)})
	}
	view.Totals = showCounts(&totals)
	return view
}

func stepName(step time.Duration) string {
	if step == time.Minute {
		return "1m"
	}
	return "1h"
}

// span reads since, until and step.
func (q *query) span(now time.Time) (since, until time.Time, step time.Duration) {
	since, until = q.instant("since"), q.instant("until")
	if len(q.errs) > 0 {
		return since, until, 0
	}
	if since.IsZero() {
		since = now.Add(-defaultSpan)
	}
	if until.IsZero() {
		until = now
	}
	if !since.Before(until) {
		q.refuse("since", "must be before until")
		return since, until, 0
	}
	step, hasMinutes := time.Hour, now.Sub(since) <= webhook.MinutesKept+statsTolerance
	switch given := q.values.Get("step"); {
	case given == "1m" && !hasMinutes:
		q.refuse("step", "must be 1h: minutes are kept for "+strconv.Itoa(int(webhook.MinutesKept.Hours()))+" hours")
	case given == "1m", !q.has("step") && hasMinutes && until.Sub(since) <= minuteSpan:
		step = time.Minute
	case given != "1h" && q.has("step"):
		q.refuse("step", "must be 1m or 1h")
	}
	most := until.Add(-maxPoints * step)
	switch late := most.Sub(since); {
	case late > statsTolerance:
		q.refuse("since", "must be at most "+strconv.Itoa(maxPoints)+" steps before until")
	case late > 0:
		since = most
	}
	return since, until, step
}

// statisticsHandler shows statistics.
type statisticsHandler struct {
	statistics Statistics
	tenants    tenantReader
	now        func() time.Time
}

func (h *statisticsHandler) get(c call) error {
	return h.answer(c, webhook.StatisticsQuery{}, c.parameters("since", "until", "step"))
}

func (h *statisticsHandler) getOfTenant(c call) error {
	q := c.parameters("endpoint_id", "since", "until", "step")
	return h.answer(c, webhook.StatisticsQuery{TenantID: c.tenant, EndpointID: queryID(q, "endpoint_id", webhook.ParseEndpointID)}, q)
}

// answer answers with the statistics of what of names.
func (h *statisticsHandler) answer(c call, of webhook.StatisticsQuery, q *query) error {
	of.Since, of.Until, of.Step = q.span(h.now())
	if err := q.problem(); err != nil {
		return err
	}
	if of.TenantID != "" {
		if err := requireTenant(c, h.tenants); err != nil {
			return err
		}
	}
	points, err := h.statistics.ReadStatistics(c.Request().Context(), of)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showStats(of, points))
}
