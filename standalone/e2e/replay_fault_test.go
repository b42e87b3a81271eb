package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// serving is a cluster of its own on the shared Temporal, with a line to it that can be
// cut, and its database.
func serving(t *testing.T, name string) (in *instance, line *proxy, database *pgx.Conn, namespace string) {
	t.Helper()
	engine := sharedTemporal(t)
	namespace = name + "-" + filepath.Base(t.TempDir()) + time.Now().Format("150405")
	makeNamespace(contextFor(t, patience), t, engine, namespace)
	line = newProxy(t, engine)
	in = cluster(t, line.address, namespace, nil)
	database, err := pgx.Connect(t.Context(), in.env["EVERPOST_DATABASE_URL"])
	require.NoError(t, err)
	t.Cleanup(func() { _ = database.Close(context.WithoutCancel(t.Context())) })
	return in, line, database, namespace
}

// seed stores dead letters of an endpoint without any workflow, as they are left by an
// engine that was lost, and returns their event ids.
func seed(t *testing.T, database *pgx.Conn, tenant, endpointID string, n int) []string {
	t.Helper()
	endpoint, err := webhook.ParseEndpointID(endpointID)
	require.NoError(t, err)
	var names []string
	var events, deliveries [][16]byte
	for range n {
		event := webhook.NewEventID()
		names = append(names, event.String())
		events, deliveries = append(events, event), append(deliveries, webhook.DeliveryIDOf(event, endpoint))
	}
	_, err = database.Exec(t.Context(), `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		select id, $2, 'order.paid', '{}', sha256('{}'), array[$3::uuid], now() from unnest($1::uuid[]) id`, events, tenant, [16]byte(endpoint))
	require.NoError(t, err)
	_, err = database.Exec(t.Context(), `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, attempts, give_up_at, completed_at)
		select u.id, u.event, $3, $4, 'order.paid', now(), 1, 1, 4, 'http_400', 0, now(), now()
		from unnest($1::uuid[], $2::uuid[]) u (id, event)`, deliveries, events, [16]byte(endpoint), tenant)
	require.NoError(t, err)
	return names
}

// R7: while Temporal is not available, a replay and its commands are stored, and handled when it is back. A workflow that was terminated is
// noticed.
func TestReplayWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	in, line, database, namespace := serving(t, "replay")
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	seed(t, database, "acme", ep.ID, 30)

	line.cut()
	in.waitHealth(t, "degraded")
	made := b.makeReplay(fieldsOf{"source": "dead_letters", "rate_per_minute": 1})
	require.Equal(t, []any{30, "running"}, []any{made.Total, made.State})
	line.restore(t)
	ctx := contextFor(t, replayPatience)
	b.waitReplay(ctx, made.ID, "started by the relay", func(r replay) bool { return r.Delivered == 1 })

	line.cut()
	in.waitHealth(t, "degraded")
	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/pause", nil, nil)
	b.ask(http.StatusAccepted, http.MethodPatch, "/replays/"+made.ID, fieldsOf{"rate_per_minute": 6000}, nil)
	line.restore(t)
	b.waitReplay(ctx, made.ID, "signalled by the relay", func(r replay) bool { return r.State == "paused" && r.CurrentRate == 6000 })

	b.ask(http.StatusAccepted, http.MethodPatch, "/replays/"+made.ID, fieldsOf{"rate_per_minute": 6}, nil)
	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/resume", nil, nil)
	b.waitReplayState(made.ID, "running")
	engine, err := client.Dial(client.Options{HostPort: sharedTemporal(t), Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	lost := b.waitReplay(ctx, made.ID, "lost", func(r replay) bool {
		if r.State == "paused" {
			return true
		}
		// Once more, in case a signal of the resume has started it again.
		if err := engine.TerminateWorkflow(ctx, made.WorkflowID, "", "by hand"); err == nil {
			_, err = database.Exec(ctx, `update replays set relay_at = now()`) // ten minutes later
			require.NoError(t, err)
		}
		return false
	})
	require.Contains(t, text(lost.StateReason), "ended from outside")

	b.ask(http.StatusAccepted, http.MethodPatch, "/replays/"+made.ID, fieldsOf{"rate_per_minute": 6000}, nil)
	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/resume", nil, nil)
	done := b.waitReplayState(made.ID, "completed")
	require.Equal(t, []int{30, 30}, []int{done.Released, done.Delivered})
	require.Equal(t, 30, r.Count(), "each once")
}

// A hundred thousand: nothing twice, nothing left out, and neither the memory nor a
// history grows with their number.
func TestReplayOfManyDeadLetters(t *testing.T) {
	t.Parallel()
	needsTime(t, "100,000 deliveries")
	many := 100_000
	if given := os.Getenv("EVERPOST_TEST_DEAD_LETTERS"); given != "" {
		var err error
		many, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	in, _, database, namespace := serving(t, "many")
	b := newBundle(t, in, in.client(), "acme")
	var (
		mu      sync.Mutex
		arrived = map[string]int{}
		r       = &receiver{secrets: map[string]string{}}
	)
	r.Receiver = receivertest.NewWith(t, receivertest.Options{Keep: 1, OnRequest: func(request receivertest.Request, _ receivertest.Step) {
		mu.Lock()
		defer mu.Unlock()
		arrived[request.WebhookID()]++
	}})
	ep := b.endpoint(r, "/hook", nil)
	ids := seed(t, database, "acme", ep.ID, many)

	made := b.makeReplay(fieldsOf{"source": "dead_letters", "rate_per_minute": 60_000, "ramp": false})
	require.Equal(t, many, made.Total)
	ctx := contextFor(t, time.Duration(many)*30*time.Millisecond+patience)
	began := time.Now()
	b.waitReplay(ctx, made.ID, "a tenth", func(r replay) bool { return r.Delivered >= many/10 })
	early := in.memory(t)
	done := b.waitReplay(ctx, made.ID, "completed", func(r replay) bool { return r.State == "completed" })
	late := in.memory(t)
	t.Logf("%d replayed in %.0f s; memory %d MiB after a tenth, %d MiB at the end", many, time.Since(began).Seconds(), early>>20, late>>20)
	require.Equal(t, []int{many, many, 0, many, 0}, []int{done.Total, done.Released, done.Skipped, done.Delivered, done.Failed})
	require.Less(t, late, early+early/2+64<<20, "the memory does not grow with the number")

	mu.Lock()
	defer mu.Unlock()
	require.Len(t, arrived, many)
	for _, id := range ids {
		require.Equal(t, 1, arrived[id], "event %s", id)
	}
	var runs, waiting int
	require.NoError(t, database.QueryRow(ctx, `select count(*) from deliveries where run = 2 and state = 3`).Scan(&runs))
	require.NoError(t, database.QueryRow(ctx, `select (select count(*) from outbox) + (select count(*) from replay_releases)`).Scan(&waiting))
	require.Equal(t, []int{many, 0}, []int{runs, waiting})

	engine, err := client.Dial(client.Options{HostPort: sharedTemporal(t), Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	described, err := engine.DescribeWorkflowExecution(ctx, made.WorkflowID, "")
	require.NoError(t, err)
	require.Less(t, described.GetWorkflowExecutionInfo().GetHistoryLength(), int64(6000))
}

// memory is what the process holds, in bytes; 0 where the system does not say.
func (in *instance) memory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.process.Command.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
