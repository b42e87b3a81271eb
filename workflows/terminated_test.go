package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A delivery whose workflow was terminated by hand is given up, unless a command was accepted for it.
func TestTerminatedWithACommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked  webhook.Command
		due    time.Duration // of the next attempt, when the workflow is made again
		state  webhook.State
		reason string
	}{
		"nothing":                      {state: webhook.StateDeadLettered, reason: webhook.ReasonTerminated},
		"a cancel":                     {asked: webhook.CommandCancel, state: webhook.StateCancelled, reason: "enough"},
		"a cancel, long before it due": {asked: webhook.CommandCancel, due: time.Hour, state: webhook.StateCancelled, reason: "enough"},
		"a retry":                      {asked: webhook.CommandRetry, state: webhook.StateDelivered},
		"a retry, long before it due":  {asked: webhook.CommandRetry, due: time.Hour, state: webhook.StateDelivered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "exponential-1h")
			l := b.deliver(t)
			progress := webhook.Progress{
				Run: 1, Seq: 1, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1,
				DueAt: l.now.Add(c.due).Truncate(time.Microsecond), GiveUpAt: l.start.GiveUpAt,
			}
			_, err := b.store.Deliveries.RecordStep(t.Context(), webhook.Step{Ref: l.start.Ref, Progress: progress, WorkflowID: l.start.WorkflowID()})
			require.NoError(t, err)
			if c.asked != webhook.CommandNone {
				b.command(t, l.start.DeliveryID, c.asked, "enough")
			}
			began := l.now
			m := l.member()
			m.Progress, m.Unconfirmed, m.Terminated = progress, true, true
			l.run()
			if c.state == webhook.StateDeadLettered {
				l.deadLettered(c.reason)
				return
			}
			l.ends(c.state, c.reason)
			require.Less(t, l.now.Sub(began), time.Minute, "at once")
			require.Zero(t, b.pending(t, l.start))
		})
	}
}
