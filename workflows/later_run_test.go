package workflows_test

import (
	"fmt"
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

// R8: a dead letter of the first run is left behind, because the signal that another run was opened is lost. Its workflow ends
// when it looks at the store, which is within a day, or with the signal, and changes nothing: whether the other run is open,
// held, or has become a dead letter, too.
func TestADeadLetterOfAnEarlierRunEnds(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(*life) func(environment){
		"the signal is lost": func(*life) func(environment) { return func(environment) {} },
		"the signal is late": func(l *life) func(environment) {
			return after(time.Hour, signal(workflows.SignalReplay, l.openedRun(2)))
		},
		"discarded by hand": func(*life) func(environment) { return after(time.Hour, signal(workflows.SignalDiscard, "enough")) },
		"replayed by hand":  func(*life) func(environment) { return after(time.Hour, signal(workflows.SignalReplay, nil)) },
	} {
		for _, held := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, held %t", name, held), func(t *testing.T) {
				t.Parallel()
				l := deadLetter(t)
				leftBehind := l.input
				l.b.command(t, l.start.DeliveryID, webhook.CommandReplay, "")
				if held {
					l.b.setState(t, l.b.endpoint.ID, webhook.EndpointPaused)
				}
				l.next = ""
				l.relay()
				l.b.receiver.Script("/hook", receivertest.Step{Status: 400})
				l.run()
				after := l.b.delivery(t, l.start.DeliveryID)
				require.Equal(t, 2, after.Run)
				began := l.now

				l.next, l.input = "DeadLetterWorkflow", leftBehind
				l.run(script(l))
				require.Empty(t, l.next)
				require.LessOrEqual(t, l.now.Sub(began), 25*time.Hour)
				require.Equal(t, after, l.b.delivery(t, l.start.DeliveryID))
				require.Contains(t, l.details(), "Run 2 of the delivery ")
			})
		}
	}
}

// R8: so does the workflow of an earlier run that is still open, as after the store was restored from an older copy and the delivery
// was replayed there.
func TestADeliveryOfAnEarlierRunEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Script("/hook", receivertest.Step{Status: 503})
	l := b.deliver(t)
	l.run(after(time.Second, func(environment) {
		b.exec(t, `update deliveries set run = 2, seq = 0, workflow_id = $2 where id = $1`, l.start.DeliveryID, l.start.Ref.WorkflowID(2))
	}))
	require.Empty(t, l.next)
	require.Equal(t, 1, b.receiver.Count(), "that run has another workflow")
	require.Contains(t, l.details(), "Run 2 of the delivery")
}
