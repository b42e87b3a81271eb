package starter

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// acceptedOf is an event of the tenant with n deliveries.
func acceptedOf(tenant string, n int) webhook.Accepted {
	a := accepted(n)
	for i := range a.Deliveries {
		a.Deliveries[i].TenantID = tenant
	}
	return a
}

func tenantsOf(starts []webhook.Start) (tenants []string) {
	for _, s := range starts {
		tenants = append(tenants, s.TenantID)
	}
	return tenants
}

// However much one tenant has posted, another's event is in the very next start.
func TestSingleEventIsInTheNextStart(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c, MaxPerWorkflow: 10})
	open := f.shut()
	d.Accepted(acceptedOf("dominant", 1))
	d.workers.Go(d.runStartLoop)
	require.Eventually(t, func() bool { return len(f.started()) == 1 }, 20*time.Second, time.Millisecond)
	dominant, quiet := acceptedOf("dominant", 500), acceptedOf("quiet", 1)
	d.Accepted(dominant)
	d.Accepted(quiet)
	open()
	require.Eventually(t, func() bool { return len(f.started()) == 52 }, 20*time.Second, time.Millisecond)
	d.Stop()
	next := inputOf[workflows.FanoutInput](t, f.starts[1].GetInput()).Deliveries
	require.Len(t, next, 10)
	require.Equal(t, dominant.Deliveries[0].Ref, next[0].Ref)
	require.Equal(t, quiet.Deliveries[0].Ref, next[1].Ref)
	require.Equal(t, dominant.Deliveries[1].Ref, next[2].Ref)
	require.Zero(t, d.permits.Tenants())
}

// A batch takes one delivery of each tenant in turn.
func TestBatchTakesTenantsInTurn(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{MaxPerWorkflow: 8})
	for tenant, n := range map[string]int{"a": 20, "b": 3, "c": 1} {
		d.Accepted(acceptedOf(tenant, n))
	}
	first := tenantsOf(d.nextBatch())
	require.Len(t, first, 8)
	require.ElementsMatch(t, []string{"a", "b", "c"}, first[:3])
	require.ElementsMatch(t, []string{"a", "b"}, first[3:5])
	require.ElementsMatch(t, []string{"a", "b"}, first[5:7])
	require.Equal(t, "a", first[7])
	require.Len(t, d.queue.Ready, 1, "another start loop takes what is left")
	require.Equal(t, slices.Repeat([]string{"a"}, 8), tenantsOf(d.nextBatch()))
	require.Len(t, d.nextBatch(), 8)
	require.Empty(t, d.nextBatch())
}

// A batch takes no more deliveries that need their own workflow than are started at a time: else one start would take as long
// as fifty.
func TestBatchTakesFewOwnWorkflows(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{MaxPerWorkflow: 50})
	later := acceptedOf("later", 100)
	for i := range later.Deliveries {
		later.Deliveries[i].NotBefore = time.Now().Add(time.Hour)
	}
	d.Accepted(later)
	d.Accepted(acceptedOf("quiet", 1))
	for range 12 {
		batch := tenantsOf(d.nextBatch())
		require.Less(t, len(batch), 10)
		require.LessOrEqual(t, len(slices.DeleteFunc(batch, func(tenant string) bool { return tenant == "quiet" })), concurrentStarts)
		require.Len(t, d.queue.Ready, 1)
	}
	require.Len(t, d.nextBatch(), 4)
}

// A single delivery is started before scheduled ones of the same batch.
func TestUnscheduledStartFirst(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c, MaxPerWorkflow: 50})
	open := f.shut()
	batch := accepted(concurrentStarts + 2).Deliveries
	for i := range batch[:concurrentStarts+1] {
		batch[i].NotBefore = time.Now().Add(time.Hour)
	}
	d.workers.Go(func() { d.start(batch) })
	require.Eventually(t, func() bool { return len(f.started()) == concurrentStarts }, 20*time.Second, time.Millisecond)
	began := f.started()
	open()
	d.Stop()
	require.True(t, slices.ContainsFunc(began, isStartOf(batch[concurrentStarts+1].WorkflowID())))
}

// A delivery that has waited too long releases its permit and is in no batch.
func TestBatchLeavesLateToRelay(t *testing.T) {
	t.Parallel()
	d := setup(t, Config{MaxPerWorkflow: 2, QueueLength: 100})
	late := acceptedOf("a", 20)
	for i := range late.Deliveries {
		late.Deliveries[i].ReceivedAt = time.Now().Add(-queueTime)
	}
	d.Accepted(late)
	d.Accepted(acceptedOf("a", 1))
	d.Accepted(acceptedOf("b", 1))
	require.ElementsMatch(t, []string{"a", "b"}, tenantsOf(d.nextBatch()))
	require.Equal(t, 1, d.permits.Held("a"))
	require.Equal(t, 1, d.permits.Held("b"))

	d.Accepted(acceptedOf("c", 2))
	d.temporalDown.Store(true)
	require.Empty(t, d.nextBatch(), "the outbox keeps them")
	require.Zero(t, d.Waiting())
	require.Zero(t, d.permits.Held("c"))
}

// ReserveRoom does not wait because of another tenant that has too much in the queue, and permits go to the tenant that holds the
// fewest.
func TestReserveRoomIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, Config{QueueLength: 100})
		d.Accepted(acceptedOf("dominant", 1000))
		refused := make(chan error, 500)
		for range cap(refused) {
			go func() {
				_, err := d.ReserveRoom(t.Context(), "dominant", 1)
				refused <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 25 { // half of what the other has left
			_, err := d.ReserveRoom(t.Context(), "quiet", 1)
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(began), "no time has passed")
		synctest.Wait()
		require.Empty(t, refused)
		for range cap(refused) {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(<-refused))
		}
		require.Equal(t, reserveTimeout, time.Since(began))
		require.Equal(t, 2, d.permits.Tenants())
	})
}
