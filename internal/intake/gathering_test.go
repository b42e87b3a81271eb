package intake

import (
	"maps"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// eager is an intake whose first requests are all sent eagerly. sent accepts deliveries and returns their eager starts.
func eager(t *testing.T, c parts) (d *bundle, f *enginetest.Frontend, record *outbox, sent func(webhook.Accepted) []activities.EagerStart) {
	t.Helper()
	f, c.Client = enginetest.New(t)
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
		d, f, record, send := eager(t, parts{})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		all := enginetest.Accepted(4)
		starts := send(all)
		require.Len(t, starts, 4)
		enginetest.Pass(time.Second)
		require.Empty(t, f.Started(), "they are under way")

		require.Equal(t, all.Deliveries[0].WorkflowID(), joins(t, starts[0]))
		starts[0].StartDelivered()
		synctest.Wait()
		require.Equal(t, enginetest.RefsOf(all.Deliveries[:1]), enginetest.Begun(t, f))

		id := joins(t, starts[1])
		require.True(t, workflows.IsShared(id))
		starts[1].StartDelivered()
		enginetest.Pass(gatherTick / 2)
		require.Equal(t, id, joins(t, starts[2]))
		require.Equal(t, id, joins(t, starts[3]))
		starts[2].StartDelivered()
		enginetest.Pass(gatherTick/2 + gatherPatience - 1)
		require.Len(t, enginetest.Begun(t, f), 1, "one is still being recorded")
		starts[3].StartDelivered()
		synctest.Wait()
		require.ElementsMatch(t, enginetest.RefsOf(all.Deliveries), enginetest.Begun(t, f))
		require.Equal(t, id, f.Started()[1].GetWorkflowId())
		require.Zero(t, d.starts.gatherings.len())
		require.Zero(t, d.queue.permits.Tenants())
		require.Empty(t, record.ended, "their rows went with the attempts")
	})
}

// A tick that is over starts without a member whose recording takes more than a second longer. The late one gets its own workflow, and the
// next tick has another id.
func TestLateMemberHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, parts{})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		d.starts.gatherings.started(time.Now())
		all := enginetest.Accepted(4)
		starts := send(all)
		id := joins(t, starts[0])
		require.Equal(t, id, joins(t, starts[1]))
		starts[0].StartDelivered()
		enginetest.Pass(gatherTick)
		d.starts.gatherings.started(time.Now())
		next := joins(t, starts[2])
		require.NotEqual(t, id, next)
		require.Equal(t, path.Dir(path.Dir(id)), path.Dir(path.Dir(next)), "the same process")
		enginetest.Pass(gatherPatience)
		require.Equal(t, enginetest.RefsOf(all.Deliveries[:1]), enginetest.Begun(t, f))
		require.Equal(t, id, f.Started()[0].GetWorkflowId())

		starts[1].StartDelivered()
		synctest.Wait()
		require.Equal(t, enginetest.RefsOf(all.Deliveries[:2]), enginetest.Begun(t, f))
		require.Contains(t, enginetest.StartedIDs(f), all.Deliveries[1].WorkflowID())
		enginetest.Pass(gatherTick)
		require.Zero(t, d.starts.gatherings.len(), "no member of the next one has returned")
		starts[2].StartDelivered()
		synctest.Wait()
		require.Contains(t, enginetest.StartedIDs(f), all.Deliveries[2].WorkflowID())
	})
}

// A gathering that is full is started at once, and the next delivery opens another one.
func TestFullGathering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, parts{MaxPerWorkflow: 3})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		d.starts.gatherings.started(time.Now())
		starts := send(enginetest.Accepted(4))
		ids := map[string]int{}
		for _, start := range starts {
			ids[joins(t, start)]++
			start.StartDelivered()
		}
		require.Len(t, ids, 2)
		synctest.Wait()
		require.Len(t, enginetest.Begun(t, f), 3)
		enginetest.Pass(gatherTick)
		require.Len(t, enginetest.Begun(t, f), 4)
		shared, own := enginetest.Groups(t, f)
		require.Len(t, shared, 2)
		require.Empty(t, own)
	})
}

// No two gatherings have one id, also if times are read in another order than they are used in.
func TestGatheringsHaveIdsOfTheirOwn(t *testing.T) {
	t.Parallel()
	g, ids := newGatherings(2), map[*gathering]string{}
	begun := time.Now().Add(5 * gatherTick)
	g.started(begun)
	for i := range 20 {
		at := begun.Add(gatherTick - time.Millisecond) // the end of one tick, or the beginning of the next
		if i%3 != 0 {
			at = begun.Add(gatherTick + time.Millisecond)
		}
		one := g.join(new(enginetest.Accepted(1).Deliveries[0]), at)
		ids[one] = one.id
	}
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(ids))), len(ids))
}

// A delivery that was not delivered gets its own workflow at once. The outbox row of a recorded one is deleted when the start is
// answered, and not before.
func TestUndeliveredHaveOwnWorkflows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, record, send := eager(t, parts{})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		d.starts.gatherings.started(time.Now())
		all := enginetest.Accepted(3)
		starts := send(all)
		require.True(t, starts[0].StartOwn(false))
		synctest.Wait()
		require.Equal(t, enginetest.RefsOf(all.Deliveries[:1]), enginetest.Begun(t, f))
		require.Empty(t, record.ended, "nothing is recorded")

		f.Failing(enginetest.AlreadyStarted())
		require.True(t, starts[1].StartOwn(true))
		synctest.Wait()
		require.Equal(t, []webhook.DeliveryID{all.Deliveries[1].DeliveryID}, record.ended, "it was started before")
		record.ended = nil
		open := f.Shut()
		require.True(t, starts[2].StartOwn(true))
		synctest.Wait()
		require.Empty(t, record.ended)
		open()
		synctest.Wait()
		require.Equal(t, []webhook.DeliveryID{all.Deliveries[2].DeliveryID}, record.ended)
		_, own := enginetest.Groups(t, f)
		require.Len(t, own, 3)
		require.Zero(t, d.queue.permits.Tenants())
		enginetest.Pass(2 * gatherTick)
		require.Len(t, enginetest.Begun(t, f), 3, "there is nothing to gather")
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
				d, f, _, send := eager(t, parts{MaxPerWorkflow: width})
				d.lifetime.Go(d.starts.run)
				defer d.stop()
				d.starts.gatherings.started(time.Now())
				all := enginetest.Accepted(2)
				for _, start := range send(all) {
					joins(t, start)
					start.StartDelivered()
				}
				f.Failing(serviceerror.NewInvalidArgument("not now"))
				enginetest.Pass(gatherTick + startAgainAfter/2)
				require.Equal(t, 2, d.starts.gatherings.len())
				d.health.MarkDown(errDown)
				enginetest.Pass(time.Minute)
				started := len(f.Started())
				f.Failing(nil)
				d.health.MarkUp()
				synctest.Wait()
				require.Zero(t, d.starts.gatherings.len())
				ids := map[string]bool{}
				for _, start := range f.Started() {
					ids[start.GetWorkflowId()] = true
				}
				require.Greater(t, len(f.Started()), started)
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
		d, f, _, send := eager(t, parts{})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		deliver := func() {
			for _, start := range send(enginetest.Accepted(1)) {
				joins(t, start)
				start.StartDelivered()
			}
		}
		f.Failing(serviceerror.NewInvalidArgument("no such attribute"))
		deliver()
		enginetest.Pass(long)
		require.Equal(t, 1, d.starts.gatherings.len())
		tries := len(f.Started())
		require.GreaterOrEqual(t, tries, int(long/longestStartPause))
		require.LessOrEqual(t, tries, int(long/longestStartPause)+10)
		f.Failing(nil)
		deliver()
		synctest.Wait()
		require.Len(t, f.Started(), tries+1, "the other one")
		require.Equal(t, 1, d.starts.gatherings.len())
		enginetest.Pass(longestStartPause)
		require.Zero(t, d.starts.gatherings.len())
	})
}

// With MaxPerWorkflow 1, each delivery has its own workflow.
func TestNoGatheringWithOnePerWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, parts{MaxPerWorkflow: 1})
		d.lifetime.Go(d.starts.run)
		defer d.stop()
		for _, start := range send(enginetest.Accepted(3)) {
			start.WorkflowForDelivered()
			start.StartDelivered()
		}
		synctest.Wait()
		_, own := enginetest.Groups(t, f)
		require.Len(t, own, 3)
	})
}

// Stop starts gatherings, without the members that are still being recorded, and deliveries with their own workflow. What is
// recorded later is left to the outbox.
func TestStopStartsWhatHasGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, f, _, send := eager(t, parts{})
		d.starts.gatherings.started(time.Now())
		all := enginetest.Accepted(5)
		starts := send(all)
		for _, start := range starts[:2] {
			joins(t, start)
			start.StartDelivered()
		}
		joins(t, starts[4])
		require.True(t, starts[2].StartOwn(true))
		d.lifetime.Go(d.starts.run)
		d.stop()
		require.ElementsMatch(t, enginetest.RefsOf(all.Deliveries[:3]), enginetest.Begun(t, f))
		starts[4].StartDelivered()
		id, willStart := starts[3].WorkflowForDelivered()
		require.False(t, willStart)
		require.Equal(t, all.Deliveries[3].WorkflowID(), id)
		starts[3].StartDelivered()
		require.False(t, starts[3].StartOwn(true))
		require.Zero(t, d.Waiting())
	})
}
