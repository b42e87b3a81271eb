package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Requests of the console and of the tenant have separate rate limits: neither uses up the other's.
func TestCallersInsideHaveALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/events"
	b.ok(t, http.StatusOK, "operator", "PATCH", "/v1/tenants/acme", `{"limits":{"requests_per_second":0.01,"burst":2}}`)
	for range pagesBurst {
		require.Equal(t, http.StatusOK, b.as(t, portalOf("acme", true), "GET", path, "").Code, "a page makes several requests")
	}
	w := b.as(t, portalOf("acme", true), "GET", path, "")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Contains(t, w.Body.String(), "the tenant's pages may make 20 requests per second, 100 at once")
	b.ok(t, http.StatusOK, "ingest", "GET", path, "")
	b.ok(t, http.StatusOK, "ingest", "GET", path, "")
	b.ok(t, http.StatusTooManyRequests, "ingest", "GET", path, "")
	require.Equal(t, http.StatusOK, b.as(t, Caller{Key: webhook.Key{Scope: webhook.ScopeOperator}}, "GET", path, "").Code, "operators are not limited")
}

// insideRequests counts what callers inside the process were answered.
type insideRequests struct {
	requests

	inside map[[2]any]int
}

func (r *insideRequests) AnsweredInside(operation string, status int) {
	r.inside[[2]any{operation, status}]++
}

// The console's requests have a metric of their own, so that their errors do not raise the API's alerts.
func TestRequestsInsideAreCountedApart(t *testing.T) {
	t.Parallel()
	counted := &insideRequests{requests{refusals: refusals{}, answered: map[[2]any]int{}}, map[[2]any]int{}}
	b := setup(t, func(c *Config) { c.Metrics = counted })
	b.as(t, portalOf("acme", true), "GET", "/v1/tenants/acme/events", "")
	b.as(t, portalOf("acme", true), "GET", "/v1/tenants/other/events", "")
	b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/events", "")
	require.Equal(t, map[[2]any]int{{"listEvents", 200}: 1, {"listEvents", 404}: 1}, counted.inside)
	require.Equal(t, map[[2]any]int{{"listEvents", 200}: 1}, counted.answered)
}
