package e2e_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
)

// R10: an open delivery without a workflow ends all the same. If its workflow was terminated by hand, it becomes a dead letter. If Temporal
// has lost the workflow, it continues where it was. One that is only late is not touched.
func TestReconciler(t *testing.T) {
	t.Parallel()
	address := sharedTemporal(t)
	namespace := "reconcile-" + filepath.Base(t.TempDir()) + time.Now().Format("150405")
	makeNamespace(contextFor(t, patience), t, address, namespace)
	in := cluster(t, address, namespace, settings{"EVERPOST_RECONCILE_EVERY": "1s"})
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently()})
	ctx := contextFor(t, patience)
	engine, err := client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	database, err := pgx.Connect(ctx, in.env["EVERPOST_DATABASE_URL"])
	require.NoError(t, err)
	t.Cleanup(func() { _ = database.Close(t.Context()) })

	waiting := func() delivery {
		t.Helper()
		r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable})
		_, d := b.postOne("order.paid", `{}`)
		return b.waitState(d.ID, "retrying")
	}
	overdue := func(d delivery) {
		t.Helper()
		tag, err := database.Exec(ctx, `update deliveries set due_at = now() - interval '3 minutes' where workflow_id = $1`, d.WorkflowID)
		require.NoError(t, err)
		require.Equal(t, int64(1), tag.RowsAffected())
	}

	late := waiting()
	overdue(late) // by the store; its workflow knows better

	terminated := waiting()
	require.NoError(t, engine.TerminateWorkflow(ctx, terminated.WorkflowID, "", "by hand"))
	overdue(terminated)
	d := b.waitState(terminated.ID, "dead_lettered")
	require.Equal(t, "terminated", text(d.Reason))
	require.Equal(t, 1, d.Attempts)
	b.requireExplained(d, "terminated", `Given up at `+clock+`, \d+ s after it was accepted: its workflow was terminated from outside`+kept,
		"A person or a tool terminated the workflow in Temporal.")
	b.command(http.StatusAccepted, d.ID, "replay", nil)
	b.waitState(d.ID, "delivered")

	lost := waiting()
	_, err = engine.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: lost.WorkflowID},
	})
	require.NoError(t, err)
	eventually(ctx, t, func() string {
		if _, err := engine.DescribeWorkflow(ctx, lost.WorkflowID, ""); err == nil {
			return "the workflow is still there"
		}
		return ""
	})
	overdue(lost)
	require.Equal(t, 2, b.waitState(lost.ID, "delivered").Attempts, "it goes on where it was")

	require.Equal(t, 1, b.delivery(late.ID).Attempts, "it waits for its own time")
}
