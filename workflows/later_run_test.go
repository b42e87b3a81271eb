package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// secondRun is a delivery whose dead letter was replayed. The first attempt of its second run is answered with
// the step.
func secondRun(t *testing.T, step receivertest.Step) *life {
	t.Helper()
	l := deadLetter(t)
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.b.receiver.Script("/hook", step)
	return l
}

// R7: a signal of a stored command that is later than a replay is not applied to the run that the replay has
// opened, which has handled no command yet.
func TestALateSignalOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	late := workflows.CommandSignal{CommandID: 1, Run: 1, Reason: "of the first run"}
	for name, signalName := range map[string]string{"cancel": workflows.SignalCancel, "retry": workflows.SignalRetryNow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := secondRun(t, waitFor(30*time.Minute))
			l.run(after(time.Minute, signal(signalName, late)))
			require.Equal(t, 3, l.ends(webhook.StateDelivered, "").Attempts)
			attempts := l.b.attempts(t, l.start.DeliveryID)
			require.WithinDuration(t, attempts[1].StartedAt.Add(30*time.Minute), attempts[2].StartedAt, slack)
		})
	}
	t.Run("discard", func(t *testing.T) {
		t.Parallel()
		l := secondRun(t, receivertest.Step{Status: 400})
		l.run()
		require.Equal(t, 2, l.deadLettered("http_400").Run)
		l.run(after(time.Minute, signal(workflows.SignalDiscard, late)))
		l.ends(webhook.StateDiscarded, webhook.ReasonRetention)
	})
	t.Run("of this run", func(t *testing.T) {
		t.Parallel()
		l := secondRun(t, waitFor(30*time.Minute))
		now := late
		now.Run = 2
		l.run(after(time.Minute, signal(workflows.SignalCancel, now)))
		l.ends(webhook.StateCancelled, now.Reason)
	})
}

// A dead letter of the first run is left behind, while another workflow has held the second one. When its
// workflow gets a signal with the run, it continues that, and carries out the command that waits for it.
func TestAnOldDeadLetterContinuesTheOpenRun(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	leftBehind := l.input
	l.b.command(t, l.start.DeliveryID, webhook.CommandReplay, "")
	l.b.setState(t, l.b.endpoint.ID, webhook.EndpointPaused)
	l.tryNow().run()
	l.isHeld()
	cancel := l.b.command(t, l.start.DeliveryID, webhook.CommandCancel, "enough")

	l.next, l.input = "DeadLetterWorkflow", leftBehind
	signalled := workflows.CommandSignal{CommandID: cancel.ID, Reason: cancel.Reason, Run: 2}
	l.run(
		after(time.Hour, signal(workflows.SignalCancel, signalled)), // which it does not carry out
		after(2*time.Hour, func(env environment) {
			require.Equal(t, webhook.StateHeld, l.b.delivery(t, l.start.DeliveryID).State)
			env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{Run: 2})
			env.SignalWorkflow(workflows.SignalCancel, signalled)
		}),
	)
	require.Equal(t, "DeliveryWorkflow", l.next)
	l.run()
	l.ends(webhook.StateCancelled, "enough")
	require.Equal(t, 1, l.b.receiver.Count())
}

// If the later run is a dead letter, too, by the time the old workflow gets the signal, no further run is opened:
// the workflow keeps that dead letter.
func TestAnOldDeadLetterOpensNoFurtherRun(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	leftBehind := l.input
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.b.receiver.Script("/hook", receivertest.Step{Status: 400})
	l.run()
	require.Equal(t, 2, l.deadLettered("http_400").Run)

	l.next, l.input = "DeadLetterWorkflow", leftBehind
	l.run(after(time.Hour, signal(workflows.SignalReplay, workflows.CommandSignal{Run: 2})), after(2*time.Hour, signal(workflows.SignalDiscard, "enough")))
	require.Equal(t, 2, l.ends(webhook.StateDiscarded, "enough").Run)
}
