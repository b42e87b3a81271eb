package api

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/tracing/tracingtest"
)

// requests counts answers by operation and status.
type requests struct {
	refusals

	mu       sync.Mutex
	answered map[[2]any]int
}

func (r *requests) Answered(operation string, status int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if took > 0 {
		r.answered[[2]any{operation, status}]++
	}
}

// Every request is counted by its operation, also one without a route, or whose handler panics.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	counted := &requests{refusals: refusals{}, answered: map[[2]any]int{}}
	b := setup(t, func(c *Config) { c.Metrics = counted })
	b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme", "")
	b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants/other", "")
	b.ok(t, http.StatusNotFound, "admin", "GET", "/v1/tenants/other", "")
	b.ok(t, http.StatusUnauthorized, "", "POST", "/v1/tenants/acme/events", `{}`)
	b.ok(t, http.StatusNotFound, "admin", "GET", "/nowhere/canary", "")
	b.ok(t, http.StatusMethodNotAllowed, "admin", "PUT", "/v1/tenants/acme/events", `{}`)
	b.server.limiter.limits = nil // the handler panics
	b.ok(t, http.StatusInternalServerError, "admin", "GET", "/v1/tenants/acme/events", "")
	require.Equal(t, map[[2]any]int{
		{"getTenant", 200}: 2, {"getTenant", 404}: 1, {"postEvent", 401}: 1, {OperationNone, 404}: 1, {OperationNone, 405}: 1, {"listEvents", 500}: 1,
	}, counted.answered)
	require.Zero(t, b.server.InFlight())
}

// A request's span is below the caller's if that is authenticated, and has neither its path nor its query.
func TestRequestsAreTraced(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	tracer, err := tracing.New(t.Context(), tracing.Config{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), URL: collector.URL() + "/v1/traces"})
	require.NoError(t, err)
	b := setup(t, func(c *Config) { c.Tracer = tracer })
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	traced := header("traceparent", "00-"+trace+"-"+parent+"-01")
	b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/events?type=canary.query", "", traced)
	b.ok(t, http.StatusNotFound, "ingest", "GET", "/canary/path?x=canary", "", traced)
	b.server.limiter.limits = nil // the handler panics
	b.ok(t, http.StatusInternalServerError, "ingest", "GET", "/v1/tenants/acme/deliveries", "", traced)
	tracer.Stop(t.Context())

	spans := collector.Spans("")
	require.Len(t, spans, 3)
	names := map[string]tracingtest.Span{}
	for _, span := range spans {
		if span.Name == "HTTP" { // no route: nobody was authenticated
			require.Empty(t, span.ParentID)
			require.NotEqual(t, trace, span.TraceID)
			require.Equal(t, []string{trace}, span.Links)
		} else {
			require.Equal(t, []string{trace, parent}, []string{span.TraceID, span.ParentID})
		}
		require.Equal(t, "req-1", span.Attributes["everpost.request_id"])
		names[span.Name] = span
	}
	require.ElementsMatch(t, []string{"GET /v1/tenants/{tenant}/events", "GET /v1/tenants/{tenant}/deliveries", "HTTP"}, slices.Collect(maps.Keys(names)))
	require.Equal(t, "listEvents", names["GET /v1/tenants/{tenant}/events"].Attributes["everpost.operation"])
	require.Equal(t, "404", names["HTTP"].Attributes["http.response.status_code"])
	require.True(t, names["GET /v1/tenants/{tenant}/deliveries"].Failed)
	require.False(t, names["HTTP"].Failed, "the caller's fault")
	require.NotContains(t, collector.Raw(), "canary")
}
