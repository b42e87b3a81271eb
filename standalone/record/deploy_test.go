package record_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/worker"
	"github.com/everpost/everpost/workflows"
)

// stuckPatience is for tasks that have to fail several times, at 10 s each.
const stuckPatience = 3 * time.Minute

// A release whose workflows do not fit the histories of running ones, or panic, blocks these permanently. Their deliveries continue from the
// store all the same, each once, and do not count as terminated by hand.
func TestIncompatibleRelease(t *testing.T) {
	t.Parallel()
	i := prepare(t)
	i.settings.ReconcileEvery = time.Second
	stop := i.deploy(t, nil)
	i.call(t, http.MethodPut, "", map[string]any{})
	const members = 5
	scripts := make([][]receivertest.Step, members)
	for n := range scripts {
		scripts[n] = script(busy, fine)
	}
	l := i.share(t, "3s", scripts...)
	alone := i.post(t, "3s", time.Time{}, busy, fine)
	l.all(t, "retrying")
	alone.awaits(t, "retrying")
	require.Equal(t, alone.workflowID, alone.now(t)["workflow_id"])
	stop()

	t.Cleanup(i.deploy(t, nextRelease))
	// The reconciler finds deliveries that are two minutes overdue. It finds one of the shared workflow, and with it the others.
	i.exec(t, `update deliveries set due_at = now() - interval '3 minutes' where workflow_id = $1`, alone.workflowID)
	i.exec(t, `update deliveries set due_at = now() - interval '3 minutes'
		where id = (select id from deliveries where workflow_id = $1 limit 1)`, l.id)
	awaitFor(t, stuckPatience, func() bool { return alone.now(t)["state"] == "delivered" })
	for n := range members {
		d := l.of(n)
		awaitFor(t, stuckPatience, func() bool { return d.now(t)["state"] == "delivered" })
		require.InDelta(t, 2, d.now(t)["attempts"], 0)
		require.Contains(t, d.now(t)["workflow_id"], "/again/", "a shared workflow")
		require.Equal(t, 2, i.requestsOf(l.starts[n].EventID.String()), "each attempt once")
	}
	require.InDelta(t, 2, alone.now(t)["attempts"], 0)
	require.Equal(t, 2*members+2, i.receiver.Count())
	require.Equal(t, 1, i.count(t, l.id, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED))
}

// requestsOf is how many an event's receiver got.
func (i *installation) requestsOf(event string) (n int) {
	for _, r := range i.receiver.Requests() {
		if r.WebhookID() == event {
			n++
		}
	}
	return n
}

// nextRelease registers workflows as they might be one day.
func nextRelease(r worker.Registry, a *activities.Activities) {
	worker.Register(others{r}, a)
	named, ok := r.(sdk.WorkflowRegistry)
	if !ok {
		panic("the registry takes no names")
	}
	named.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.DeliveryInput) error {
		if workflows.IsShared(workflow.GetInfo(ctx).WorkflowExecution.ID) {
			if err := workflow.Sleep(ctx, 10*time.Millisecond); err != nil { // which it did not do before
				return err
			}
		} else if !in.Members[0].Unconfirmed {
			panic("this release takes over only")
		}
		return workflows.DeliveryWorkflow(ctx, in)
	}, workflow.RegisterOptions{Name: "DeliveryWorkflow"})
}

// others registers all but what nextRelease has of its own.
type others struct{ worker.Registry }

func (o others) RegisterWorkflow(w any) {
	switch w.(type) {
	case func(workflow.Context, workflows.DeliveryInput) error:
	default:
		o.Registry.RegisterWorkflow(w)
	}
}
