package deliveries_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// takeAll takes all that is in the outbox, whenever it is due.
func takeAll(t *testing.T, b *storetest.Bundle, call string, limit int) []webhook.Start {
	t.Helper()
	b.Exec(t, `update outbox set relay_at = least(relay_at, now() - interval '1 second')`)
	starts, err := b.TakeStarts(t.Context(), call, limit)
	require.NoError(t, err)
	return starts
}

// groupsOf counts the starts of each workflow.
func groupsOf(starts []webhook.Start) map[string]int {
	groups := map[string]int{}
	for _, start := range starts {
		groups[start.AssignedTo]++
	}
	return groups
}

// R1: what the relay takes is in a workflow from then on, and a start that is repeated names the same one. What waits for its time has none.
func TestTakeStartsAssigns(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.FillOutbox(t, 2*webhook.MaxAssigned+1, 0, 0)
	waits := b.AcceptOne(t)
	b.Exec(t, `update outbox set not_before = now() + interval '1 hour' where delivery_id = $1`, waits.DeliveryID)

	first := takeAll(t, b, "one", 1000)
	require.Equal(t, map[string]int{"": 1, "fanout/one/0": webhook.MaxAssigned, "fanout/one/1": webhook.MaxAssigned, "fanout/one/2": 1}, groupsOf(first))
	for _, start := range first {
		require.False(t, start.Assigned, "nothing may have been started before")
		require.Equal(t, 1, start.Relayed)
	}
	again := takeAll(t, b, "two", 1000)
	require.Equal(t, groupsOf(first), groupsOf(again))
	for _, start := range again {
		require.Equal(t, start.AssignedTo != "", start.Assigned)
		require.Equal(t, 2, start.Relayed)
	}
}

// The deliveries of a workflow are taken together, beyond the limit, so that it begins with all of them.
func TestTakeStartsTakesWorkflowsWhole(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.FillOutbox(t, 5*webhook.MaxAssigned, 0, 0)
	require.Len(t, takeAll(t, b, "one", 1000), 5*webhook.MaxAssigned)
	b.Exec(t, `update outbox set relay_at = now() - random() * interval '1 minute'`) // in no order
	seen := map[string]int{}
	for calls := 0; len(seen) < 5; calls++ {
		require.Less(t, calls, 5)
		starts, err := b.TakeStarts(t.Context(), "two", webhook.MaxAssigned*9/2)
		require.NoError(t, err)
		for id, n := range groupsOf(starts) {
			require.Equal(t, webhook.MaxAssigned, n, id)
			seen[id] += n
		}
	}
}

// What a call reads is in proportion to what it takes, and not to what waits.
func TestTakeStartsIsBounded(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.FillOutbox(t, 14_000, 0, 0)
	stores, recorder := storetest.Record(t, b.Address)
	for range 3 {
		b.Exec(t, `update outbox set relay_at = now()`)
		recorder.Take(t)
		starts, err := stores.TakeStarts(t.Context(), "one", 200)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(starts), 200)
		for _, e := range recorder.Take(t) {
			require.LessOrEqual(t, e.Blocks, 30*len(starts), e.Text)
		}
	}
}

// The transaction that opens a run, or ends a hold, names the workflow: the run's own, or one for up to MaxAssigned deliveries.
func TestReplaysAndReleasesNameTheirWorkflow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	one := b.AcceptOne(t)
	b.EndIn(t, one, webhook.StateDeadLettered)
	d, _, err := b.CommandOne(t, one.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	require.Equal(t, one.Ref.WorkflowID(2), d.WorkflowID)
	starts := takeAll(t, b, "relay", 10)
	require.Len(t, starts, 1)
	require.Equal(t, []any{d.WorkflowID, true}, []any{starts[0].AssignedTo, starts[0].Assigned})
	b.Exec(t, `delete from outbox`)

	var held []webhook.Start
	for range webhook.MaxAssigned + 2 {
		held = append(held, b.AcceptOne(t))
	}
	for _, start := range held {
		b.Hold(t, start, "", webhook.ReasonBacklog)
	}
	released := b.Released(t, 1000)
	require.Len(t, released, len(held))
	groups := groupsOf(released)
	require.Len(t, groups, 2)
	for id, n := range groups {
		require.True(t, strings.HasPrefix(id, webhook.SharedWorkflowPrefix))
		require.Contains(t, []int{2, webhook.MaxAssigned}, n)
	}
	require.Equal(t, groups, groupsOf(takeAll(t, b, "relay", 1000)), "the relay repeats the same")
}

// A command of a delivery that is still to be started needs no workflow of its own: the start finds it.
func TestTakeCommandsOfWhatIsStillToBeStarted(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	waiting, begun := b.AcceptOne(t), b.AcceptOne(t)
	step := storetest.StepOf(begun, 1, webhook.StateRetrying)
	step.DueAt = time.Now().Add(time.Hour)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	for _, start := range []webhook.Start{waiting, begun} {
		_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
		require.NoError(t, err)
	}
	b.Exec(t, `update deliveries set commanded_at = now() - interval '1 hour' where command <> 0`)
	commands, err := b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, commands, 2)
	for _, c := range commands {
		require.Equal(t, c.Delivery.DeliveryID == waiting.DeliveryID, c.Waiting, fmt.Sprint(c.Delivery.Ref))
	}
}
