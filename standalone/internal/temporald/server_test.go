package temporald_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/standalone/internal/temporald"
	"github.com/everpost/everpost/standalone/internal/webui"
)

// database starts a PostgreSQL for one test.
func database(t *testing.T) *localpg.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "temporald-test-") //nolint:usetesting // the directory above TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	pg, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.WithoutCancel(t.Context()))) })
	return pg
}

func attributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		"TenantId": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"EventIds": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	}
}

func start(t *testing.T, o temporald.Options) *temporald.Server {
	t.Helper()
	began := time.Now()
	s, err := temporald.Start(t.Context(), o)
	require.NoError(t, err)
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *temporald.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
}

func dial(t *testing.T, s *temporald.Server) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Address(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// locked is a buffer that may be written from anywhere.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func greet(ctx workflow.Context, name string) (string, error) {
	return "hello " + name, workflow.Sleep(ctx, time.Millisecond)
}

const queue = "q"

// runWorkflow runs one to its end, and reports whether its first task came with the start's answer.
func runWorkflow(t *testing.T, c client.Client, id string) (eager bool) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(greet)
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: queue, EnableEagerStart: true,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword("TenantId").ValueSet("acme"),
			temporal.NewSearchAttributeKeyKeywordList("EventIds").ValueSet([]string{"evt_1", "evt_2"}),
		),
	}, greet, "you")
	require.NoError(t, err)
	var got string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, "hello you", got)

	started, err := c.GetWorkflowHistory(t.Context(), id, run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
	require.NoError(t, err)
	return started.GetWorkflowExecutionStartedEventAttributes().GetEagerExecutionAccepted()
}

func TestRunsWorkflowsAcrossRestarts(t *testing.T) {
	t.Parallel()
	var logged locked
	o := temporald.Options{
		DatabaseURL:            database(t).URL(localpg.Database),
		SearchAttributes:       attributes(),
		Logger:                 slog.New(slog.NewTextHandler(&logged, nil)),
		PruneVisibilityIndexes: true,
	}

	s := start(t, o)
	c := dial(t, s)
	require.True(t, runWorkflow(t, c, "delivery/evt_1/ep_1"), "eager start")
	require.Eventually(t, func() bool { // it runs only where the server knows that its store is SQL
		_, err := c.WorkflowService().DescribeWorkflowExecution(t.Context(), &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: "temporal-system", Execution: &commonpb.WorkflowExecution{WorkflowId: "temporal-sys-tq-scanner"},
		})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "task queues that are not used any more are removed")

	ui, err := webui.Start(t.Context(), webui.Options{Temporal: s.Address()})
	require.NoError(t, err)
	defer func() { require.NoError(t, ui.Stop(context.WithoutCancel(t.Context()))) }()
	require.Contains(t, get(t, ui.URL()+"/"), "<html")
	require.Contains(t, get(t, ui.URL()+"/api/v1/namespaces"), `"default"`)
	require.Contains(t, get(t, ui.URL()+"/api/v1/namespaces/default/workflows/delivery%2Fevt_1%2Fep_1"), "delivery/evt_1/ep_1")

	// Visibility is written behind: poll.
	find := func(c client.Client, query string) func() bool {
		return func() bool {
			count, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
			return err == nil && count.GetCount() == 1
		}
	}
	query := `TenantId = "acme" AND EventIds = "evt_2" AND ExecutionStatus = "Completed" AND WorkflowId = "delivery/evt_1/ep_1"`
	require.Eventually(t, find(c, query), 10*time.Second, 10*time.Millisecond)

	_, port, err := net.SplitHostPort(s.Address())
	require.NoError(t, err)
	began := time.Now()
	stop(t, s)
	t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
	select {
	case <-s.Done():
		require.Fail(t, "a server that was told to stop did not give up", s.Err())
	default:
	}

	// Warm, and on the same port: nothing of the first holds it.
	o.Listen = "127.0.0.1:" + port
	began = time.Now()
	s = start(t, o)
	warm := time.Since(began)
	require.Equal(t, o.Listen, s.Address())
	c = dial(t, s)
	require.True(t, runWorkflow(t, c, "delivery/evt_2/ep_1"))
	require.True(t, find(c, query)(), "what the first ran is still known")
	t.Logf("warm start to first workflow: ready %v, done %v", warm.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	require.Empty(t, withoutLostPorts(logged.String()), "nothing to warn of in a healthy life")
}

// withoutLostPorts drops the lines about a port that another process took between the
// look for a free one and its use: the start is repeated with others.
func withoutLostPorts(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "address already in use") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	return string(body)
}

func TestShardsAreFixed(t *testing.T) {
	t.Parallel()
	o := temporald.Options{DatabaseURL: database(t).URL(localpg.Database), Shards: 4}
	stop(t, start(t, o))

	o.Shards = 8
	_, err := temporald.Start(t.Context(), o)
	require.EqualError(t, err, "shards 8: the databases were made with 4, and that cannot be changed")
	o.Shards = 0
	start(t, o)
}

func TestRefusals(t *testing.T) { //nolint:tparallel // the rows share the listener
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	url := database(t).URL(localpg.Database)

	tests := []struct {
		name string
		o    temporald.Options
		want string
	}{
		{"no database", temporald.Options{}, "database URL: not set"},
		{"not a URL", temporald.Options{DatabaseURL: "host=/tmp password=canary"}, "database URL: want postgres://"},
		{"no such database", temporald.Options{DatabaseURL: strings.Replace(url, "/everpost?", "/nope?", 1)}, `database "nope" does not exist`},
		{"a name to listen on", temporald.Options{DatabaseURL: url, Listen: "example.com:1"}, "want an IP address and a port"},
		{"no port", temporald.Options{DatabaseURL: url, Listen: "127.0.0.1"}, "missing port"},
		{"a port too high", temporald.Options{DatabaseURL: url, Listen: "127.0.0.1:65536"}, "65536"},
		{
			"a port that is taken", temporald.Options{DatabaseURL: url, Listen: taken.Addr().String()},
			"Temporal's address " + taken.Addr().String() + ": address already in use",
		},
		{"short retention", temporald.Options{DatabaseURL: url, Retention: time.Minute}, "at least 1h"},
		{"negative shards", temporald.Options{DatabaseURL: url, Shards: -1}, "shards -1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := temporald.Start(t.Context(), test.o)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestAttributeOfAnotherType(t *testing.T) {
	t.Parallel()
	o := temporald.Options{DatabaseURL: database(t).URL(localpg.Database), SearchAttributes: attributes(), Shards: 1}
	stop(t, start(t, o))
	o.SearchAttributes["TenantId"] = enumspb.INDEXED_VALUE_TYPE_INT
	_, err := temporald.Start(t.Context(), o)
	require.EqualError(t, err, "search attribute TenantId: the namespace has it as Keyword, not Int")
}

func TestRetentionFollowsTheSetting(t *testing.T) {
	t.Parallel()
	o := temporald.Options{DatabaseURL: database(t).URL(localpg.Database), Shards: 1}
	for _, retention := range []time.Duration{0, 72 * time.Hour} {
		o.Retention = retention
		s := start(t, o)
		namespace, err := dial(t, s).WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
		require.NoError(t, err)
		want := max(retention, 24*time.Hour)
		require.Equal(t, want, namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
		stop(t, s)
	}
}

// TestIndexesFollowTheAttributes prunes, adds an attribute, and stops pruning.
func TestIndexesFollowTheAttributes(t *testing.T) {
	t.Parallel()
	pg := database(t)
	o := temporald.Options{DatabaseURL: pg.URL(localpg.Database), Shards: 1}
	indexes := func() []string {
		conn, err := pgx.Connect(t.Context(), pg.URL(temporald.VisibilityDatabase))
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		rows, err := conn.Query(t.Context(), `SELECT indexname FROM pg_indexes WHERE tablename = 'executions_visibility' ORDER BY 1`)
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return names
	}

	stop(t, start(t, o))
	all := indexes()
	require.Greater(t, len(all), 60)

	base := []string{"by_status", "by_workflow_id", "by_workflow_type", "default_idx", "executions_visibility_pkey"}
	o.PruneVisibilityIndexes = true
	stop(t, start(t, o))
	require.Equal(t, base, indexes())

	o.SearchAttributes = attributes()
	for range 2 { // the second finds nothing to do
		stop(t, start(t, o))
		now := indexes()
		require.Len(t, now, len(base)+2)
		require.Subset(t, now, base)
		joined := strings.Join(now, " ")
		require.Regexp(t, `by_keyword_\d\d`, joined)
		require.Regexp(t, `by_keyword_list_\d\d`, joined)
	}
}

// TestAtRest measures what a server without work costs; it fails only when that is out of all
// proportion.
func TestAtRest(t *testing.T) { //nolint:paralleltest // it measures the process
	if testing.Short() || os.Getenv("EVERPOST_TEST_LONG") == "" {
		t.Skip("a measurement of 10 s: set EVERPOST_TEST_LONG")
	}
	pg := database(t)
	start(t, temporald.Options{DatabaseURL: pg.URL(localpg.Database), SearchAttributes: attributes(), PruneVisibilityIndexes: true})
	usage := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	settled := time.NewTimer(5 * time.Second)
	<-settled.C
	before, began := usage(), time.Now()
	<-time.After(10 * time.Second)
	share := float64(usage()-before) / float64(time.Since(began))
	conn, err := pgx.Connect(t.Context(), pg.URL(localpg.Database))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var connections int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everpost-temporal'`).Scan(&connections))
	t.Logf("at rest: %.2f %% CPU, %d MB resident, %d goroutines, %d connections", 100*share, residentMB(t), runtime.NumGoroutine(), connections)
	require.Less(t, share, 0.10)
}

// TestStopEndsWhatStartBegan: the server leaks some goroutines by design (caches, timers of its
// libraries), so what is asked is that nothing big stays: no service, no pool, no listener.
func TestStopEndsWhatStartBegan(t *testing.T) { //nolint:paralleltest // it counts the process's goroutines
	pg := database(t)
	o := temporald.Options{DatabaseURL: pg.URL(localpg.Database)}
	before := runtime.NumGoroutine()
	s := start(t, o)
	during := runtime.NumGoroutine()
	stop(t, s)
	stop(t, s) // stopping twice is harmless
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+(during-before)/10 }, 10*time.Second, 10*time.Millisecond,
		"%d goroutines before, %d during", before, during)
	t.Logf("goroutines: %d before, %d during, %d after", before, during, runtime.NumGoroutine())

	conn, err := pgx.Connect(t.Context(), pg.URL(localpg.Database))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.Eventually(t, func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everpost-temporal'`).Scan(&n)
		return err == nil && n == 0
	}, 10*time.Second, 10*time.Millisecond, "connections stay open")
	_, err = new(net.Dialer).DialContext(t.Context(), "tcp", s.Address())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func residentMB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, pages int
	_, err = fmt.Sscan(string(text), &size, &pages)
	require.NoError(t, err)
	return pages * os.Getpagesize() >> 20
}
