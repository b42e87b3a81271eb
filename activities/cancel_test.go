package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// R5: a command to end a delivery waits for a request of this process, whichever workflow made it: delivered wins. This process's own
// claim does not prevent the end from being recorded.
func TestAnEndWaitsForALiveRequest(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]string{"of the delivery's own workflow": "", "of a shared one": "fanout/it"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.process(t, slow)
			in := b.stored(t)
			b.Hold()
			asked := in
			asked.Shared = shared
			first := later(func() (activities.AttemptResult, error) { return p.attempt(asked) })
			require.NoError(t, b.WaitHeld(t.Context(), 1))
			require.NoError(t, (<-first).err)

			step := webhook.Step{Ref: in.Ref, Progress: in.Progress, WorkflowID: in.WorkflowID(in.Run)}
			step.Seq++
			step.State, step.Reason = webhook.StateCancelled, "enough"
			status, err := p.Steps.RecordStep(t.Context(), step)
			require.NoError(t, err)
			require.True(t, status.State.Open())
			require.True(t, status.ClaimedUntil.After(time.Now().Add(-time.Second)), "the command is repeated while the receiver is slow")
			require.True(t, b.delivery(t, in).State.Open())

			b.Release()
			require.Eventually(t, func() bool {
				status, err = p.Steps.RecordStep(t.Context(), step)
				require.NoError(t, err)
				return !status.State.Open()
			}, 10*time.Second, 5*time.Millisecond)
			require.Equal(t, webhook.StateDelivered, status.State)
			require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
			require.Len(t, b.attempts(t, in), 1)
			require.Equal(t, 1, b.Count())
		})
	}
}
