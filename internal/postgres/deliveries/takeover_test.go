package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A delivery belongs to its own workflow or to a shared one.
const (
	one   = "fanout/evt_1/aaaa"
	other = "fanout/evt_1/bbbb"
	own   = webhook.OwnWorkflowPrefix + "evt_1/ep_1"
)

// The whole table of which workflow continues a delivery after a step or a claim. Within a run its own workflow takes it from a shared one.
// No workflow takes it back, or from another shared one.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, holder := range []string{storetest.NoWorkflow, one, other, own} {
		for _, writer := range []string{one, other, own} {
			after := holder
			if holder == storetest.NoWorkflow || writer == own {
				after = writer
			}
			held := func() webhook.Start {
				start := b.AcceptOne(t)
				step := storetest.StepOf(start, 1, webhook.StateRetrying)
				step.WorkflowID = holder
				status, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)
				require.Equal(t, holder, status.WorkflowID)
				return start
			}
			for _, withAttempt := range []bool{true, false} {
				start := held()
				step := storetest.StepOf(start, 2, webhook.StateRetrying)
				step.WorkflowID = writer
				if withAttempt {
					step.Attempt = storetest.AttemptOf(1, 1, 503)
				}
				status, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)
				require.Equal(t, after, status.WorkflowID, "a step of %q after %q", writer, holder)
				require.Equal(t, 2, status.Seq, "the step of a workflow that does not own it is recorded all the same")
			}

			leaving := held()
			gone := storetest.StepOf(leaving, 2, webhook.StateHeld)
			gone.WorkflowID = storetest.NoWorkflow
			status, err := b.RecordStep(t.Context(), gone)
			require.NoError(t, err)
			require.Equal(t, storetest.NoWorkflow, status.WorkflowID, "no workflow carries what is held, of %q neither", holder)

			start := held()
			late := storetest.StepOf(start, 1, webhook.StateRetrying)
			late.WorkflowID = writer
			status, err = b.RecordStep(t.Context(), late)
			require.NoError(t, err)
			require.Equal(t, holder, status.WorkflowID, "a step that is not applied tells nothing")

			next := storetest.StepOf(start, 0, webhook.StatePending)
			next.Run, next.WorkflowID = 2, writer
			status, err = b.RecordStep(t.Context(), next)
			require.NoError(t, err)
			require.Equal(t, writer, status.WorkflowID, "a later run is its writer's, after %q", holder)

			start = held()
			claim := storetest.ClaimOf(start, 1, "me", time.Minute)
			claim.WorkflowID = writer
			begun, err := b.Claim(t.Context(), claim)
			require.NoError(t, err)
			require.True(t, begun.Granted)
			require.Equal(t, after, begun.Status.WorkflowID, "a claim of %q after %q", writer, holder)

			claim.Claimant = "you"
			claim.WorkflowID = own
			begun, err = b.Claim(t.Context(), claim)
			require.NoError(t, err)
			require.False(t, begun.Granted)
			require.Equal(t, after, begun.Status.WorkflowID, "a claim that is not granted tells nothing")
		}
	}
}

// The first write names the workflow, also when a command came before it.
func TestFirstWriteNamesTheWorkflow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, commanded := range []bool{false, true} {
		start := b.AcceptOne(t)
		if commanded {
			_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
			require.NoError(t, err)
			status, err := b.DeliveryStatus(t.Context(), start.Ref)
			require.NoError(t, err)
			require.Equal(t, storetest.NoWorkflow, status.WorkflowID)
		}
		claim := storetest.ClaimOf(start, 0, "me", time.Minute)
		claim.WorkflowID = one
		begun, err := b.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.True(t, begun.Granted)
		require.Equal(t, one, begun.Status.WorkflowID)
	}
}

// A replay opens a run in the delivery's own workflow, whichever workflow had the run before.
func TestReplayHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateDelivered)
	step.WorkflowID = one
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	d, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	require.Equal(t, start.Ref.WorkflowID(2), d.WorkflowID)
	status, err := b.DeliveryStatus(t.Context(), start.Ref)
	require.NoError(t, err)
	require.Equal(t, start.Ref.WorkflowID(2), status.WorkflowID)

	late := storetest.StepOf(start, 9, webhook.StateRetrying) // of the shared workflow, which knows nothing of it
	late.WorkflowID, late.Attempt = one, storetest.AttemptOf(1, 1, 503)
	status, err = b.RecordStep(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, 2, status.Run)
	require.Equal(t, start.Ref.WorkflowID(2), status.WorkflowID)
}

// Starts count how often they were taken up; those of a new run begin again.
func TestRelayedIsCounted(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	require.Zero(t, start.Relayed)
	take := func() []webhook.Start {
		_, err := b.Pool().Exec(t.Context(), `update outbox set relay_at = now() - interval '1 second'`)
		require.NoError(t, err)
		starts, err := b.TakeStarts(t.Context(), "test", 10)
		require.NoError(t, err)
		require.Len(t, starts, 1)
		return starts
	}
	for n := range 3 {
		require.Equal(t, n+1, take()[0].Relayed)
	}
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateDelivered))
	require.NoError(t, err)
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	require.Equal(t, 1, take()[0].Relayed)
}
