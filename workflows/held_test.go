package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// elsewhere is a delivery that another process is sending: its claim is alive.
func elsewhere(t *testing.T, preset string) (*life, webhook.Progress) {
	t.Helper()
	b := setup(t, preset)
	l := b.deliver(t)
	progress := webhook.Progress{Run: 1, GiveUpAt: l.start.GiveUpAt}
	b.foreignClaim(t, l.start, progress)
	return l, progress
}

// deliversElsewhere is the other process's record of its attempt.
func (l *life) deliversElsewhere(progress webhook.Progress) func(environment) {
	return func(environment) {
		step := webhook.Step{Ref: l.start.Ref, Progress: progress, WorkflowID: l.start.WorkflowID(), Claimant: "another process"}
		step.Seq, step.State, step.Attempts, step.RunAttempts = progress.Seq+1, webhook.StateDelivered, 1, 1
		step.Attempt = &webhook.Attempt{Number: 1, Run: 1, StartedAt: time.Now(), Outcome: retry.Outcome{Decision: retry.Delivered, Status: 200}}
		_, err := l.b.store.Deliveries.RecordStep(context.Background(), step)
		require.NoError(l.t, err)
	}
}

// R5: a command to end a delivery while another process sends does not override the outcome of that request: delivered wins.
func TestCancelledWhileAnotherProcessSends(t *testing.T) {
	t.Parallel()
	cancel := after(10*time.Second, signal(workflows.SignalCancel, "enough"))
	t.Run("which delivers", func(t *testing.T) {
		t.Parallel()
		l, progress := elsewhere(t, "default")
		l.run(cancel, after(20*time.Second, l.deliversElsewhere(progress)))
		l.ends(webhook.StateDelivered, "")
		require.Zero(t, l.b.receiver.Count())
		require.Len(t, l.b.attempts(t, l.start.DeliveryID), 1)
	})
	t.Run("that has died", func(t *testing.T) {
		t.Parallel()
		l, _ := elsewhere(t, "default")
		began := l.now
		l.run(cancel, after(20*time.Second, func(environment) {
			require.Equal(t, webhook.StatePending, l.b.delivery(t, l.start.DeliveryID).State)
			l.b.exec(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1`, l.start.DeliveryID)
		}))
		l.ends(webhook.StateCancelled, "enough")
		require.Zero(t, l.b.receiver.Count())
		require.InDelta(t, 35, l.now.Sub(began).Seconds(), slack.Seconds(), "one wait for the claim, no polling")
	})
}

// R5: nor does giving up. If a claim has ended by the workflow's clock and not by the store's, the step is repeated after a pause.
func TestGivenUpWhileAnotherProcessSends(t *testing.T) {
	t.Parallel()
	l, progress := elsewhere(t, "fast") // an hour
	l.b.refuse(-1)
	l.run(after(time.Hour+90*time.Second, func(env environment) {
		d := l.b.delivery(t, l.start.DeliveryID)
		require.Equal(t, webhook.StatePending, d.State)
		progress.Seq = d.Seq
		l.deliversElsewhere(progress)(env)
	}))
	l.ends(webhook.StateDelivered, "")
	require.GreaterOrEqual(t, l.timers[len(l.timers)-1], time.Second)
}
