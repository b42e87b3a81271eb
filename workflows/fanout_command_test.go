package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// trio are three deliveries in one workflow, of which each waits for its second attempt.
func trio(t *testing.T) (*life, []webhook.Start) {
	t.Helper()
	b := setup(t, "default") // the second attempt comes after 5 to 10 s
	starts := b.acceptSome(t, 3)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), busyStep)
	}
	return b.share(t, time.Hour, starts...), starts
}

// R7: a member with a command continues in its own workflow, which gets the command. Other members stay.
func TestFanoutCommandToOneMember(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Microsecond)
	for _, test := range []struct {
		name, signal string
		command      webhook.Command
	}{
		{"cancel", workflows.SignalCancel, webhook.CommandCancel},
		{"retry", workflows.SignalRetryNow, webhook.CommandRetry},
		{"reschedule", workflows.SignalReschedule, webhook.CommandReschedule},
		{"replay", workflows.SignalReplay, webhook.CommandReplay},
		{"discard", workflows.SignalDiscard, webhook.CommandDiscard},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			l.run(after(time.Second, signal(test.signal,
				workflows.CommandSignal{CommandID: 1, Reason: "asked", At: at, DeliveryID: starts[1].DeliveryID})))
			l.stayed(starts[0], webhook.StateDelivered, 2)
			l.stayed(starts[2], webhook.StateDelivered, 2)
			h := l.handedOver(starts[1])
			require.Equal(t, webhook.PendingCommand{ID: 1, Command: test.command, Reason: "asked", At: at}, h.Command)
			require.True(t, h.Unconfirmed)
			require.Equal(t, 1, requestsOf(l.b, starts[1].EventID))
			require.Equal(t, l.b.delivery(t, starts[1].DeliveryID).Progress, h.Progress)
			require.Equal(t, 1, l.handed.calls)
		})
	}
}

// By hand, without a delivery's id, all are meant.
func TestFanoutIsAskedByHand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		ask          func(environment)
		command      webhook.Command
	}{
		{"cancel", "", signal(workflows.SignalCancel, nil), webhook.CommandCancel},
		{"cancel with a text", "enough", signal(workflows.SignalCancel, "enough"), webhook.CommandCancel},
		{"retry-now", "", signal(workflows.SignalRetryNow, nil), webhook.CommandRetry},
		// R5: cancelling the workflow means to hand everything over now.
		{"cancelling the workflow", "", environment.CancelWorkflow, webhook.CommandNone},
		// A cancel is not replaced by what comes after it.
		{"cancel, then retry-now", "enough", func(env environment) {
			env.SignalWorkflow(workflows.SignalCancel, "enough")
			env.SignalWorkflow(workflows.SignalRetryNow, nil)
		}, webhook.CommandCancel},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			l.run(after(time.Second, test.ask))
			require.Equal(t, 3, l.handed.calls)
			for _, start := range starts {
				h := l.handedOver(start)
				require.True(t, h.Unconfirmed)
				require.Equal(t, test.command, h.Command.Command)
				require.Equal(t, test.reason, h.Command.Reason)
				require.Equal(t, webhook.StateRetrying, h.State, "nothing is ended here")
				require.Equal(t, 1, requestsOf(l.b, start.EventID))
			}
		})
	}
}

// A delivery's id that cannot be read means none of them, and certainly not all.
func TestFanoutIsAskedAboutSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]any{
		"unreadable": map[string]string{"delivery_id": "dlv_nonsense"},
		"another's":  workflows.CommandSignal{DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			l.run(after(time.Second, signal(workflows.SignalCancel, input)))
			for _, start := range starts {
				l.stayed(start, webhook.StateDelivered, 2)
			}
		})
	}
}

// A reschedule by hand with a time as its text keeps the time.
func TestFanoutIsRescheduledByHand(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
	l.run(after(time.Second, signal(workflows.SignalReschedule, at.Format(time.RFC3339))))
	for _, start := range starts {
		h := l.handedOver(start)
		require.Equal(t, at, h.Command.At)
	}
	l.goesOn(l.handedOver(starts[0]))
	l.run(after(10*time.Minute, func(environment) {
		d := l.b.delivery(t, starts[0].DeliveryID)
		require.Equal(t, at, d.DueAt)
		require.Equal(t, starts[0].WorkflowID(), d.WorkflowID)
	}))
	l.ends(webhook.StateDelivered, "")
	require.WithinRange(t, l.b.attempts(t, starts[0].DeliveryID)[1].StartedAt, at, at.Add(slack))
}

// R7: a command whose signal was lost is found in the store by the next attempt.
func TestFanoutFindsCommandsInTheRecord(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	var pending webhook.PendingCommand
	l.run(after(time.Second, func(environment) {
		pending = l.b.command(t, starts[1].DeliveryID, webhook.CommandCancel, "too late for its signal")
	}))
	l.stayed(starts[0], webhook.StateDelivered, 2)
	h := l.handedOver(starts[1])
	require.Equal(t, pending, h.Command)
	require.True(t, h.Unconfirmed)
	require.Equal(t, 1, requestsOf(l.b, starts[1].EventID), "nothing is sent after it")
	l.goesOn(h).run()
	l.ends(webhook.StateCancelled, "too late for its signal")
}

// R8: a hand-over that fails is repeated until it is made, with what is left of it.
func TestFanoutHandsOverUntilItIsDone(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	calls := 0
	l.handed.failing(func(h activities.DeliveryState) error {
		calls++
		if h.DeliveryID == starts[2].DeliveryID && calls < 6 {
			return errAway
		}
		return nil
	})
	l.run(after(time.Second, environment.CancelWorkflow))
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, l.timers[1:])
	require.Equal(t, 6, l.handed.calls, "no member is handed over twice")
	require.Equal(t, 3, l.handed.count())
	for _, start := range starts {
		require.True(t, l.handedOver(start).Unconfirmed)
	}
}

// A command that comes during an attempt is handed over with the member after it.
func TestFanoutCommandDuringAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Default(receivertest.Step{Status: 500})
	b.receiver.Hold()
	l := b.share(t, time.Hour, start)
	done := make(chan error, 1)
	go func() {
		done <- b.receiver.WaitHeld(context.Background(), 1)
		l.env.Load().SignalWorkflow(workflows.SignalCancel, "enough")
		b.receiver.Release()
	}()
	l.run()
	require.NoError(t, <-done)
	h := l.handedOver(start)
	require.Equal(t, 1, h.Attempts)
	require.Equal(t, webhook.CommandCancel, h.Command.Command)
	l.goesOn(h).run()
	l.ends(webhook.StateCancelled, "enough")
	require.Equal(t, 1, b.receiver.Count())
}

// A hand-over that fails does not delay other members: near retries are made at their time.
func TestFanoutContinuesWhileAHandOverFails(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	near, slow := b.accept(t, time.Time{}), b.accept(t, time.Time{})
	b.receiver.Default(receivertest.Step{Status: 503})
	l := b.share(t, time.Hour, near, slow)
	l.handed.failing(func(h activities.DeliveryState) error {
		if h.DeliveryID == slow.DeliveryID && requestsOf(b, near.EventID) < 2 {
			return errAway
		}
		return nil
	})
	l.run(after(time.Second, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: slow.DeliveryID})
	}))
	require.GreaterOrEqual(t, requestsOf(b, near.EventID), 2, "it was tried again meanwhile")
	require.Equal(t, webhook.CommandCancel, l.handedOver(slow).Command.Command)
}
