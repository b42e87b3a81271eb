package starter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// eager is a starter whose first requests are all sent eagerly. sent accepts deliveries and returns their eager starts.
func eager(t *testing.T, c Config) (d *Starter, f *frontend, record *outbox, sent func(webhook.Accepted) []activities.EagerStart) {
	t.Helper()
	f, c.Client = newFrontend(t)
	record = &outbox{}
	c.LocalWorker, c.Outbox = true, record
	d = setup(t, c)
	var starts []activities.EagerStart
	d.uses(requests{eager: func(_ activities.AttemptInput, start activities.EagerStart) bool {
		starts = append(starts, start)
		return true
	}})
	return d, f, record, func(a webhook.Accepted) []activities.EagerStart {
		starts = nil
		d.Accepted(a)
		return starts
	}
}

// joins returns the id of the workflow that will be started for a delivered delivery.
func joins(t *testing.T, start activities.EagerStart) string {
	t.Helper()
	id, willStart := start.WorkflowForDelivered()
	require.True(t, willStart)
	return id
}

// A delivery that is alone has its own workflow, at once. Those that are delivered within 500 ms after another share one: its id
// is known before they are recorded, and it is started when the 500 ms are over.
func TestDeliveredShareAWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, send := eager(t, Config{})
		d.workers.Go(d.runStartLoop)
		defer d.Stop()
		all := accepted(4)
		starts := send(all)
		require.Len(t, starts, 4)
		pass(time.Second)
		require.Empty(t, f.started(), "they are under way")

		require.Equal(t, all.Deliveries[0].WorkflowID(), joins(t, starts[0]))
		starts[0].StartDelivered()
		synctest.Wait()
		require.Equal(t, refsOf(all.Deliveries[:1]), begunBy(t, f))

		id := joins(t, starts[1])
		require.True(t, workflows.IsFanout(id))
		starts[1].StartDelivered()
		pass(gatherTime / 2)
		require.Equal(t, id, joins(t, starts[2]))
		require.Equal(t, id, joins(t, starts[3]))
		starts[2].StartDelivered()
		pass(gatherTime/2 - 1)
		require.Equal(t, 1, countBegun(t, f))
		pass(time.Second)
		require.Equal(t, 1, countBegun(t, f), "one is still being recorded")
		starts[3].StartDelivered()
		synctest.Wait()
		require.ElementsMatch(t, refsOf(all.Deliveries), begunBy(t, f))
		require.Equal(t, id, f.started()[1].GetWorkflowId())
		require.Zero(t, d.gatherings.len())
		require.Zero(t, d.permits.Tenants())
		require.Empty(t, record.ended, "their rows went with the attempts")
	})
}

// A gathering that is full is started at once, and the next delivery opens another one.
func TestFullGathering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, Config{MaxPerWorkflow: 3})
		d.workers.Go(d.runStartLoop)
		defer d.Stop()
		d.gatherings.started(time.Now())
		starts := send(accepted(4))
		ids := map[string]int{}
		for _, start := range starts {
			ids[joins(t, start)]++
			start.StartDelivered()
		}
		require.Len(t, ids, 2)
		synctest.Wait()
		require.Equal(t, 3, countBegun(t, f))
		pass(gatherTime)
		require.Equal(t, 4, countBegun(t, f))
		shared, own := groups(t, f)
		require.Len(t, shared, 2)
		require.Empty(t, own)
	})
}

// A delivery that was not delivered gets its own workflow at once. The outbox row of a recorded one is deleted when the start is
// answered, and not before.
func TestUndeliveredHaveOwnWorkflows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, send := eager(t, Config{})
		d.workers.Go(d.runStartLoop)
		defer d.Stop()
		d.gatherings.started(time.Now())
		all := accepted(3)
		starts := send(all)
		require.True(t, starts[0].StartOwn(false))
		synctest.Wait()
		require.Equal(t, refsOf(all.Deliveries[:1]), begunBy(t, f))
		require.Empty(t, record.ended, "nothing is recorded")

		f.failing(alreadyStarted())
		require.True(t, starts[1].StartOwn(true))
		synctest.Wait()
		require.Equal(t, []webhook.DeliveryID{all.Deliveries[1].DeliveryID}, record.ended, "it was started before")
		record.ended = nil
		open := f.shut()
		require.True(t, starts[2].StartOwn(true))
		synctest.Wait()
		require.Empty(t, record.ended)
		open()
		synctest.Wait()
		require.Equal(t, []webhook.DeliveryID{all.Deliveries[2].DeliveryID}, record.ended)
		_, own := groups(t, f)
		require.Len(t, own, 3)
		require.Zero(t, d.permits.Tenants())
		pass(2 * gatherTime)
		require.Equal(t, 3, countBegun(t, f), "there is nothing to gather")
	})
}

// Deliveries in a gathering have no outbox row any more: a start that fails, or cannot be made while Temporal is down, is made later
// with the same id.
func TestGatheringsAreStartedAgain(t *testing.T) {
	t.Parallel()
	for name, width := range map[string]int{"a shared workflow": 100, "own workflows": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, f, _, send := eager(t, Config{MaxPerWorkflow: width})
				d.workers.Go(d.runStartLoop)
				defer d.Stop()
				d.gatherings.started(time.Now())
				all := accepted(2)
				for _, start := range send(all) {
					joins(t, start)
					start.StartDelivered()
				}
				f.failing(serviceerror.NewInvalidArgument("not now"))
				pass(gatherTime + startAgainAfter/2)
				require.Equal(t, 2, d.gatherings.len())
				d.temporalDown.Store(true)
				pass(time.Minute)
				started := len(f.started())
				f.failing(nil)
				d.markUp()
				synctest.Wait()
				require.Zero(t, d.gatherings.len())
				ids := map[string]bool{}
				for _, start := range f.started() {
					ids[start.GetWorkflowId()] = true
				}
				require.Greater(t, len(f.started()), started)
				require.Len(t, ids, map[int]int{100: 1, 1: 2}[width])
			})
		})
	}
}

// A start that Temporal refuses permanently is tried with growing pauses, each of which logs an error. It does not
// keep other gatherings waiting.
func TestRefusedGatheringIsTriedLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = 6 * longestStartPause
		d, f, _, send := eager(t, Config{})
		d.workers.Go(d.runStartLoop)
		defer d.Stop()
		deliver := func() {
			for _, start := range send(accepted(1)) {
				joins(t, start)
				start.StartDelivered()
			}
		}
		f.failing(serviceerror.NewInvalidArgument("no such attribute"))
		deliver()
		pass(long)
		require.Equal(t, 1, d.gatherings.len())
		tries := len(f.started())
		require.GreaterOrEqual(t, tries, int(long/longestStartPause))
		require.LessOrEqual(t, tries, int(long/longestStartPause)+10)
		f.failing(nil)
		deliver()
		synctest.Wait()
		require.Len(t, f.started(), tries+1, "the other one")
		require.Equal(t, 1, d.gatherings.len())
		pass(longestStartPause)
		require.Zero(t, d.gatherings.len())
	})
}

// With MaxPerWorkflow 1, each delivery has its own workflow.
func TestNoGatheringWithOnePerWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, Config{MaxPerWorkflow: 1})
		d.workers.Go(d.runStartLoop)
		defer d.Stop()
		for _, start := range send(accepted(3)) {
			start.WorkflowForDelivered()
			start.StartDelivered()
		}
		synctest.Wait()
		_, own := groups(t, f)
		require.Len(t, own, 3)
	})
}

// Stop starts gatherings, without the members that are still being recorded, and deliveries with their own workflow. What is
// recorded later is left to the outbox.
func TestStopStartsWhatHasGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, Config{})
		d.gatherings.started(time.Now())
		all := accepted(5)
		starts := send(all)
		for _, start := range starts[:2] {
			joins(t, start)
			start.StartDelivered()
		}
		joins(t, starts[4])
		require.True(t, starts[2].StartOwn(true))
		d.workers.Go(d.runStartLoop)
		d.Stop()
		require.ElementsMatch(t, refsOf(all.Deliveries[:3]), begunBy(t, f))
		starts[4].StartDelivered()
		id, willStart := starts[3].WorkflowForDelivered()
		require.False(t, willStart)
		require.Equal(t, all.Deliveries[3].WorkflowID(), id)
		starts[3].StartDelivered()
		require.False(t, starts[3].StartOwn(true))
		require.Zero(t, d.Waiting())
	})
}

// The relay starts deliveries that were recorded and not started, each in its own workflow, and then deletes their rows.
func TestRelayStartsTheRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, _ := eager(t, Config{})
		defer d.Stop()
		all := accepted(3)
		for i := range all.Deliveries {
			all.Deliveries[i].Relayed, all.Deliveries[i].Recorded = 1, true
			record.starts = append(record.starts, all.Deliveries[i])
		}
		d.relayOnce()
		synctest.Wait()
		_, own := groups(t, f)
		require.Len(t, own, 3)
		require.Len(t, record.ended, 3)
	})
}
