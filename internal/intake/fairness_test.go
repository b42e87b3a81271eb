package intake

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

func tenantsOf(starts []webhook.Start) (tenants []string) {
	for _, s := range starts {
		tenants = append(tenants, s.TenantID)
	}
	return tenants
}

// However much one tenant has posted, another's event is in the very next start.
func TestSingleEventIsInTheNextStart(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c, MaxPerWorkflow: 10})
	open := f.Shut()
	d.Accepted(acceptedOf("dominant", 1))
	d.lifetime.Go(d.starts.run)
	require.Eventually(t, func() bool { return len(f.Started()) == 1 }, 20*time.Second, time.Millisecond)
	dominant, quiet := acceptedOf("dominant", 500), acceptedOf("quiet", 1)
	d.Accepted(dominant)
	d.Accepted(quiet)
	open()
	require.Eventually(t, func() bool { return len(f.Started()) == 52 }, 20*time.Second, time.Millisecond)
	d.stop()
	next := enginetest.MembersOf(t, f.Starts[1])
	require.Len(t, next, 10)
	require.Equal(t, dominant.Deliveries[0].Ref, next[0].Ref)
	require.Equal(t, quiet.Deliveries[0].Ref, next[1].Ref)
	require.Equal(t, dominant.Deliveries[1].Ref, next[2].Ref)
	require.Zero(t, d.queue.permits.Tenants())
}

// A batch takes one delivery of each tenant in turn.
func TestBatchTakesTenantsInTurn(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{MaxPerWorkflow: 8})
	for tenant, n := range map[string]int{"a": 20, "b": 3, "c": 1} {
		d.Accepted(acceptedOf(tenant, n))
	}
	first := tenantsOf(d.starts.nextBatch())
	require.Len(t, first, 8)
	require.ElementsMatch(t, []string{"a", "b", "c"}, first[:3])
	require.ElementsMatch(t, []string{"a", "b"}, first[3:5])
	require.ElementsMatch(t, []string{"a", "b"}, first[5:7])
	require.Equal(t, "a", first[7])
	require.Len(t, d.queue.waiting.Ready, 1, "another start loop takes what is left")
	require.Equal(t, slices.Repeat([]string{"a"}, 8), tenantsOf(d.starts.nextBatch()))
	require.Len(t, d.starts.nextBatch(), 8)
	require.Empty(t, d.starts.nextBatch())
}

// A batch takes no more deliveries that need their own workflow than are started at a time: else one start would take as long
// as fifty.
func TestBatchTakesFewOwnWorkflows(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{MaxPerWorkflow: 50})
	later := acceptedOf("later", 100)
	for i := range later.Deliveries {
		later.Deliveries[i].NotBefore = time.Now().Add(time.Hour)
	}
	d.Accepted(later)
	d.Accepted(acceptedOf("quiet", 1))
	for range 12 {
		batch := tenantsOf(d.starts.nextBatch())
		require.Less(t, len(batch), 10)
		require.LessOrEqual(t, len(slices.DeleteFunc(batch, func(tenant string) bool { return tenant == "quiet" })), engine.ConcurrentStarts)
		require.Len(t, d.queue.waiting.Ready, 1)
	}
	require.Len(t, d.starts.nextBatch(), 4)
}

// A single delivery is started before scheduled ones of the same batch.
func TestUnscheduledStartFirst(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c, MaxPerWorkflow: 50})
	open := f.Shut()
	batch := enginetest.Accepted(engine.ConcurrentStarts + 2).Deliveries
	for i := range batch[:engine.ConcurrentStarts+1] {
		batch[i].NotBefore = time.Now().Add(time.Hour)
	}
	d.lifetime.Go(func() { d.starts.start(batch) })
	require.Eventually(t, func() bool { return len(f.Started()) == engine.ConcurrentStarts }, 20*time.Second, time.Millisecond)
	began := f.Started()
	open()
	d.stop()
	require.True(t, slices.ContainsFunc(began, isStartOf(batch[engine.ConcurrentStarts+1].WorkflowID())))
}

// isStartOf reports a start of the workflow of that id.
func isStartOf(id string) func(*workflowservice.StartWorkflowExecutionRequest) bool {
	return func(request *workflowservice.StartWorkflowExecutionRequest) bool {
		return request.GetWorkflowId() == id
	}
}

// A delivery that has waited too long releases its permit and is in no batch.
func TestBatchLeavesLateToRelay(t *testing.T) {
	t.Parallel()
	d := setup(t, parts{MaxPerWorkflow: 2, QueueLength: 100})
	late := acceptedOf("a", 20)
	for i := range late.Deliveries {
		late.Deliveries[i].ReceivedAt = time.Now().Add(-queueTime)
	}
	d.Accepted(late)
	d.Accepted(acceptedOf("a", 1))
	d.Accepted(acceptedOf("b", 1))
	require.ElementsMatch(t, []string{"a", "b"}, tenantsOf(d.starts.nextBatch()))
	require.Equal(t, 1, d.queue.permits.Held("a"))
	require.Equal(t, 1, d.queue.permits.Held("b"))

	d.Accepted(acceptedOf("c", 2))
	d.health.MarkDown(errDown)
	require.Empty(t, d.starts.nextBatch(), "the outbox keeps them")
	require.Zero(t, d.Waiting())
	require.Zero(t, d.queue.permits.Held("c"))
}
