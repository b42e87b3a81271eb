package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// unrecordable lets no step into the store but attempts.
func (b *bundle) unrecordable(away bool) {
	refuse := func(s webhook.Step) error {
		if away && s.Attempt == nil {
			return errAway
		}
		return nil
	}
	b.record.onRecord.Store(&refuse)
}

// The workflow of a delivery whose row is gone ends.
func TestTheRowIsGone(t *testing.T) {
	t.Parallel()
	gone := func(webhook.Step) error { return webhook.NotFound("delivery") }
	t.Run("replayed", func(t *testing.T) {
		t.Parallel()
		l := deadLetter(t)
		l.run(after(time.Hour, func(env environment) {
			l.b.exec(t, `delete from deliveries where id = $1`, l.start.DeliveryID)
			env.SignalWorkflow(workflows.SignalReplay, nil)
		}))
		require.Empty(t, l.next)
		require.Len(t, l.timers, 1, "it tried once")
	})
	t.Run("discarded", func(t *testing.T) {
		t.Parallel()
		l := deadLetter(t)
		l.b.record.onRecord.Store(&gone)
		l.run(after(time.Hour, signal(workflows.SignalDiscard, nil)))
		require.Empty(t, l.next)
		require.Len(t, l.timers, 1)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		b.receiver.Default(receivertest.Step{Status: 500})
		l := b.deliver(t)
		l.run(after(time.Second, func(env environment) {
			b.record.onRecord.Store(&gone)
			env.SignalWorkflow(workflows.SignalCancel, nil)
		}))
		require.Empty(t, l.next)
		require.Len(t, l.timers, 1)
	})
}

// R5: an end that cannot be written for a long time does not let the history grow without bound: it continues in a new run, with the
// command.
func TestContinueAsNewWhileAnEndCannotBeRecorded(t *testing.T) {
	t.Parallel()
	suggest := func(env environment) { env.SetContinueAsNewSuggested(true) }

	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		b.receiver.Default(receivertest.Step{Status: 500})
		l := b.deliver(t)
		l.run(after(time.Second, func(env environment) {
			b.unrecordable(true)
			l.asked(webhook.CommandCancel, workflows.SignalCancel, "enough")(env)
		}), after(time.Hour, suggest))
		require.Equal(t, "DeliveryWorkflow", l.next)
		b.unrecordable(false)
		l.run()
		require.Equal(t, 1, l.ends(webhook.StateCancelled, "enough").Attempts)
	})
	t.Run("give up", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "fast") // an hour
		b.refuse(-1)
		b.unrecordable(true)
		l := b.deliver(t)
		l.run(after(2*time.Hour, suggest))
		require.Equal(t, "DeliveryWorkflow", l.next)
		b.unrecordable(false)
		l.run()
		l.deadLettered(string(retry.ReasonInternal))
		require.Contains(t, b.delivery(t, l.start.DeliveryID).LastError, errAway.Error())
	})
	t.Run("discard", func(t *testing.T) {
		t.Parallel()
		l := deadLetter(t)
		l.b.unrecordable(true)
		l.run(after(time.Hour, l.asked(webhook.CommandDiscard, workflows.SignalDiscard, "of no use")), after(2*time.Hour, suggest))
		require.Equal(t, "DeadLetterWorkflow", l.next)
		l.b.unrecordable(false)
		l.run()
		l.ends(webhook.StateDiscarded, "of no use")
		require.Empty(t, l.timers, "at once: the command came before")
	})
}
