package telemetry_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/telemetry"
)

func TestMetricsOfTheAPIAndOfGroupCommits(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1.2.3")
	for _, status := range []int{200, 202, 404, 429, 500, 503} {
		m.Answered("postEvent", status, 20*time.Millisecond)
	}
	m.Flushed("steps", 17, 3*time.Millisecond, nil)
	m.Flushed("steps", 3, 3*time.Millisecond, errors.New("a lock"))
	text := scrape(t, m)
	for _, line := range []string{
		`everpost_api_requests_total{operation="postEvent",status="2xx"} 2`,
		`everpost_api_requests_total{operation="postEvent",status="4xx"} 2`,
		`everpost_api_requests_total{operation="postEvent",status="5xx"} 2`,
		`everpost_api_request_duration_seconds_bucket{operation="postEvent",le="0.01"} 0`,
		`everpost_api_request_duration_seconds_bucket{operation="postEvent",le="0.025"} 6`,
		`everpost_group_commit_items_sum{writer="steps"} 20`,
		`everpost_group_commit_items_bucket{writer="steps",le="5"} 1`,
		`everpost_group_commit_duration_seconds_count{writer="steps"} 2`,
		`everpost_group_commit_failures_total{writer="steps"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}

// Of the SDK's tags those are labels that have a bound.
func TestMetricsOfTemporal(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("1.2.3")
	h := m.Temporal().WithTags(map[string]string{"namespace": "canary", "client_name": "temporal_go", "operation": "StartWorkflowExecution"})
	h.Counter("temporal_request").Inc(2)
	h.WithTags(map[string]string{"operation": "PollWorkflowTaskQueue", "task_queue": "none"}).Counter("temporal_request").Inc(1)
	h.Counter("temporal_request").Inc(-5)
	h.Timer("temporal_request_latency").Record(20 * time.Millisecond)
	h.Gauge("temporal_num_pollers").Update(3)
	// Another's name, or a name that means something else already, counts nothing and breaks nothing.
	h.Counter("canary_request").Inc(1)
	h.Gauge("temporal_request_total").Update(1)
	h.Timer("canary_latency").Record(time.Second)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { m.Temporal().Counter("temporal_local_activity_total").Inc(1) })
	}
	all.Wait()

	var lines []string
	for line := range strings.Lines(scrape(t, m)) {
		if strings.HasPrefix(line, "temporal_") {
			lines = append(lines, withoutEmptyLabels(strings.TrimSpace(line)))
		}
	}
	require.Subset(t, lines, []string{
		`temporal_request_total{operation="StartWorkflowExecution"} 2`,
		`temporal_request_total{operation="PollWorkflowTaskQueue"} 1`,
		`temporal_request_latency_seconds_bucket{operation="StartWorkflowExecution",le="0.05"} 1`,
		`temporal_num_pollers{operation="StartWorkflowExecution"} 3`,
		`temporal_local_activity_total{} 8`,
		`temporal_request_failure_total{} 0`,
	})
	require.NotContains(t, strings.Join(lines, "\n"), "canary")
}

// withoutEmptyLabels removes labels without a value, which Prometheus treats as none.
func withoutEmptyLabels(line string) string {
	before, rest, _ := strings.Cut(line, "{")
	labels, after, _ := strings.Cut(rest, "}")
	var kept []string
	for label := range strings.SplitSeq(labels, ",") {
		if !strings.HasSuffix(label, `=""`) {
			kept = append(kept, label)
		}
	}
	return before + "{" + strings.Join(kept, ",") + "}" + after
}
