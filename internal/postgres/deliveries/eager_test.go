package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R1: what an eager request came to, or its claim, leaves the outbox row there until the workflow of the delivery
// has been started: the relay takes it up like any other, in a workflow of its own.
func TestOutboxRowIsKeptUntilTheStart(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]func(*testing.T, *storetest.Bundle, webhook.Start){
		"attempt": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			step := storetest.StepOf(start, 1, webhook.StateRetrying)
			step.Attempt, step.KeepOutbox = storetest.AttemptOf(1, 1, 503), true
			status, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			require.Equal(t, webhook.StateRetrying, status.State)
		},
		"dead letter": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			step := storetest.StepOf(start, 1, webhook.StateDeadLettered)
			step.Attempt, step.KeepOutbox = storetest.AttemptOf(1, 1, 400), true
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
		},
		"claim": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			claim := storetest.ClaimOf(start, 0, "me", time.Minute)
			claim.KeepOutbox = true
			begun, err := b.Claim(t.Context(), claim)
			require.NoError(t, err)
			require.True(t, begun.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start, other := b.AcceptOne(t), b.AcceptOne(t)
			record(t, b, start)
			require.Equal(t, 2, b.Count(t, "outbox"))
			_, err := b.Pool().Exec(t.Context(), `update outbox set relay_at = now() - interval '1 second'`)
			require.NoError(t, err)
			left, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			recorded := map[webhook.DeliveryID]bool{}
			for _, one := range left {
				require.Nil(t, one.Resume)
				recorded[one.DeliveryID] = one.Recorded
			}
			require.Equal(t, map[webhook.DeliveryID]bool{start.DeliveryID: true, other.DeliveryID: false}, recorded)

			require.NoError(t, b.DeleteRecorded(t.Context(), []webhook.DeliveryID{start.DeliveryID, other.DeliveryID}))
			require.Equal(t, 1, b.Count(t, "outbox"), "nothing is recorded of the other")
			require.NoError(t, b.DeleteRecorded(t.Context(), []webhook.DeliveryID{start.DeliveryID}))
		})
	}
}

// The next step of the workflow ends a row that was kept, and so does the end of an eager request that was slow.
func TestNextStepEndsAKeptOutboxRow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	claim := storetest.ClaimOf(start, 0, "me", time.Minute)
	claim.KeepOutbox = true
	_, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	step := storetest.StepOf(start, 1, webhook.StateRetrying)
	step.Attempt, step.KeepOutbox = storetest.AttemptOf(1, 1, 503), true
	_, err = b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, 1, b.Count(t, "outbox"))
	step = storetest.StepOf(start, 2, webhook.StateDelivered)
	step.Attempt = storetest.AttemptOf(2, 1, 200)
	_, err = b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "outbox"))
}

// A flush that keeps some rows deletes the others'.
func TestKeptAmongOthers(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var all []*deliveries.Recording
	for i := range 10 {
		step := storetest.StepOf(b.AcceptOne(t), 1, webhook.StateRetrying)
		step.Attempt, step.KeepOutbox = storetest.AttemptOf(1, 1, 503), i%3 == 0
		all = append(all, &deliveries.Recording{Step: step})
	}
	require.NoError(t, b.FlushRecords(t.Context(), all))
	require.Equal(t, 4, b.Count(t, "outbox"))
}

// A replay that is opened while the workflow of the first run is being started keeps its row.
func TestReplaysOutboxRowIsNotTheStarts(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateDeadLettered)
	step.Attempt, step.KeepOutbox = storetest.AttemptOf(1, 1, 400), true
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	_, err = b.Reopen(t.Context(), start.Ref, 1, "fixed")
	require.NoError(t, err)
	_, err = b.Pool().Exec(t.Context(), `update outbox set run = 2`)
	require.NoError(t, err)
	require.NoError(t, b.DeleteRecorded(t.Context(), []webhook.DeliveryID{start.DeliveryID}))
	require.Equal(t, 1, b.Count(t, "outbox"))
}
