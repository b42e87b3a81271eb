package api

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) ReadStatistics(_ context.Context, q webhook.StatisticsQuery) ([]webhook.StatisticsPoint, error) {
	defer m.lock()()
	m.counted = append(m.counted, q)
	return m.statistics, m.broken
}

func TestStats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	zeros := map[string]any{
		"attempts": map[string]any{
			"delivered": 0.0, "http_4xx": 0.0, "http_5xx": 0.0, "timeout": 0.0, "connection": 0.0, "dns": 0.0, "tls": 0.0, "other": 0.0,
		},
		"first_attempts": 0.0, "first_delivered": 0.0,
		"ended":      map[string]any{"delivered": 0.0, "dead_lettered": 0.0, "cancelled": 0.0, "discarded": 0.0},
		"latency_ms": map[string]any{"p50": nil, "p95": nil, "p99": nil}, "filter_matched": 0.0, "filtered": 0.0,
	}
	require.Equal(t, map[string]any{
		"since": "2026-01-31T08:30:00.123456Z", "until": "2026-01-31T09:30:00.123456Z", "step": "1m", "totals": zeros, "data": []any{},
	}, b.ok(t, http.StatusOK, "operator", "GET", "/v1/stats", "").json)

	minute := testNow().Truncate(time.Minute)
	first := webhook.Counts{FirstAttempts: 10, FirstDelivered: 11, FilterMatched: 12, Filtered: 13}
	for i := range first.Attempts {
		first.Attempts[i] = int64(i + 1)
	}
	for i := range first.Ended {
		first.Ended[i] = int64(i + 20)
	}
	first.Latency[0] = 1
	second := webhook.Counts{FirstAttempts: 100, Filtered: 1}
	second.Latency[3] = 99
	b.statistics = []webhook.StatisticsPoint{{At: minute.Add(-time.Minute), Counts: first}, {At: minute, Counts: second}}
	ended := map[string]any{"delivered": 20.0, "dead_lettered": 21.0, "cancelled": 22.0, "discarded": 23.0}
	attempts := map[string]any{
		"delivered": 1.0, "http_4xx": 2.0, "http_5xx": 3.0, "timeout": 4.0, "connection": 5.0, "dns": 6.0, "tls": 7.0, "other": 8.0,
	}
	a := b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme/stats", "").json
	require.Equal(t, []any{
		map[string]any{
			"at": "2026-01-31T09:29:00.000000Z", "attempts": attempts, "first_attempts": 10.0, "first_delivered": 11.0, "ended": ended,
			"latency_ms": map[string]any{"p50": 1.0, "p95": 1.0, "p99": 1.0}, "filter_matched": 12.0, "filtered": 13.0,
		},
		map[string]any{
			"at": "2026-01-31T09:30:00.000000Z", "attempts": zeros["attempts"], "first_attempts": 100.0, "first_delivered": 0.0, "ended": zeros["ended"],
			"latency_ms": map[string]any{"p50": 8.0, "p95": 10.0, "p99": 10.0}, "filter_matched": 0.0, "filtered": 1.0,
		},
	}, a["data"])
	require.Equal(t, map[string]any{
		"attempts": attempts, "first_attempts": 110.0, "first_delivered": 11.0, "ended": ended,
		"latency_ms": map[string]any{"p50": 8.0, "p95": 10.0, "p99": 10.0}, "filter_matched": 12.0, "filtered": 14.0,
	}, a["totals"])
}

// Which span and step a request asks the store for.
func TestStatsSpans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := testNow()
	ago := func(d time.Duration) string { return now.Add(-d).Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		query        url.Values
		since, until time.Duration // ago
		step         time.Duration
	}{
		"the last hour":                      {url.Values{}, time.Hour, 0, time.Minute},
		"six hours in minutes":               {url.Values{"since": {ago(6 * time.Hour)}}, 6 * time.Hour, 0, time.Minute},
		"more in hours":                      {url.Values{"since": {ago(6*time.Hour + 1)}}, 6*time.Hour + time.Microsecond, 0, time.Hour},
		"more in minutes":                    {url.Values{"since": {ago(7 * time.Hour)}, "step": {"1m"}}, 7 * time.Hour, 0, time.Minute},
		"all minutes":                        {url.Values{"since": {ago(48 * time.Hour)}, "step": {"1m"}}, 48 * time.Hour, 0, time.Minute},
		"a little more: the request is late": {url.Values{"since": {ago(48*time.Hour + time.Second)}, "step": {"1m"}}, 48 * time.Hour, 0, time.Minute},
		"an hour in hours":                   {url.Values{"step": {"1h"}}, time.Hour, 0, time.Hour},
		"minutes that are gone": {
			url.Values{"since": {ago(50 * time.Hour)}, "until": {ago(49 * time.Hour)}},
			50 * time.Hour, 49 * time.Hour, time.Hour,
		},
		"all hours": {url.Values{"since": {ago(90 * 24 * time.Hour)}}, 90 * 24 * time.Hour, 0, time.Hour},
	} {
		for _, path := range []string{"/v1/stats", "/v1/tenants/acme/stats"} {
			b.counted = nil
			a := b.ok(t, http.StatusOK, "operator", "GET", path+"?"+c.query.Encode(), "")
			require.Len(t, b.counted, 1)
			require.WithinDuration(t, now.Add(-c.since), b.counted[0].Since, time.Microsecond, name)
			require.WithinDuration(t, now.Add(-c.until), b.counted[0].Until, time.Microsecond, name)
			require.Equal(t, c.step, b.counted[0].Step, name)
			require.Equal(t, map[time.Duration]string{time.Minute: "1m", time.Hour: "1h"}[c.step], a.json["step"], name)
			require.Equal(t, map[bool]string{true: "acme", false: ""}[path != "/v1/stats"], b.counted[0].TenantID)
		}
	}
	id := b.endpoint(t)
	b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme/stats?endpoint_id="+id, "")
	require.Equal(t, id, b.counted[len(b.counted)-1].EndpointID.String())
}

func TestStatsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/stats?"
	for query, want := range map[string][]string{
		"since=yesterday": {"since", notATimeOrAge},
		"until=5":         {"until", notATimeOrAge},
		"step=1d":         {"step", "must be 1m or 1h"},
		"step=":           {"step", "must be 1m or 1h"},
		"since=2026-01-31T09:00:00Z&until=2026-01-31T09:00:00Z": {"since", "must be before until"},
		"until=2026-01-31T08:00:00Z":                            {"since", "must be before until"},
		"since=2026-01-29T09:28:00Z&step=1m":                    {"step", "must be 1h: minutes are kept for 48 hours"},
		"since=2025-09-01T00:00:00Z":                            {"since", "must be at most 2880 steps before until"},
		"since=2026-01-31T00:00:00Z&until=2026-03-01T00:00:00Z&step=1m": {
			"since", "must be at most 2880 steps before until",
		},
		"step=1m&step=1h": {"step", "is given more than once"},
		"limit=5":         {"limit", "is not a known parameter"},
	} {
		b.refused(t, "admin", "GET", path+query, "", want...)
	}
	b.refused(t, "operator", "GET", "/v1/stats?endpoint_id=ep_1", "", "endpoint_id", "is not a known parameter")
	a := b.ok(t, http.StatusBadRequest, "admin", "GET", path+"endpoint_id=ep_1", "")
	require.Equal(t, "endpoint_id", fieldsOf(t, a)[0])
	require.Empty(t, b.counted)

	b.ok(t, http.StatusForbidden, "ingest", "GET", "/v1/tenants/acme/stats", "")
	b.ok(t, http.StatusForbidden, "admin", "GET", "/v1/stats", "")
	b.ok(t, http.StatusNotFound, "foreign", "GET", "/v1/tenants/acme/stats", "")
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/stats", "")
}
