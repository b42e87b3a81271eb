package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// R7: a command to one of several deliveries is carried out where it is, and acknowledged. The others do not notice.
func TestCommandToOneOfSeveral(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Microsecond)
	for name, test := range map[string]struct {
		command  webhook.PendingCommand
		signal   string
		state    webhook.State
		reason   string
		attempts int
		second   time.Duration // when the second attempt is made at the latest, after the command
	}{
		"cancel": {webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "asked"}, workflows.SignalCancel,
			webhook.StateCancelled, "asked", 1, 0},
		"retry": {webhook.PendingCommand{Command: webhook.CommandRetry}, workflows.SignalRetryNow, webhook.StateDelivered, "", 2, slack},
		"reschedule": {webhook.PendingCommand{Command: webhook.CommandReschedule, At: at}, workflows.SignalReschedule,
			webhook.StateDelivered, "", 2, 20*time.Minute + slack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			l.start = starts[1]
			l.run(after(time.Second, l.askedWith(test.signal, test.command)), after(10*time.Minute, func(environment) {
				require.Zero(t, l.b.pending(t, starts[1]), "it is acknowledged, also before an attempt")
				if test.command.Command == webhook.CommandReschedule {
					d := l.b.delivery(t, starts[1].DeliveryID)
					require.Equal(t, []any{at, l.id}, []any{d.DueAt, d.WorkflowID})
				}
			}))
			l.stayed(starts[0], webhook.StateDelivered, 2)
			l.stayed(starts[2], webhook.StateDelivered, 2)
			require.Equal(t, test.reason, l.stayed(starts[1], test.state, test.attempts).Reason)
			require.Zero(t, l.b.pending(t, starts[1]))
			if attempts := l.b.attempts(t, starts[1].DeliveryID); len(attempts) > 1 {
				require.LessOrEqual(t, attempts[1].StartedAt.Sub(attempts[0].StartedAt), test.second+time.Second)
			}
		})
	}
}

// By hand, without a delivery's id, all are meant.
func TestAllOfSeveralAreAskedByHand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ask      func(environment)
		state    webhook.State
		reason   string
		attempts int
	}{
		"cancel":             {signal(workflows.SignalCancel, nil), webhook.StateCancelled, webhook.ReasonCancelled, 1},
		"cancel with a text": {signal(workflows.SignalCancel, "enough"), webhook.StateCancelled, "enough", 1},
		"retry-now":          {signal(workflows.SignalRetryNow, nil), webhook.StateDelivered, "", 2},
		// A cancel is not replaced by what comes after it.
		"cancel, then retry-now": {func(env environment) {
			env.SignalWorkflow(workflows.SignalCancel, "enough")
			env.SignalWorkflow(workflows.SignalRetryNow, nil)
		}, webhook.StateCancelled, "enough", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			var local []string
			began := l.now
			l.run(countLocal(&local), after(time.Second, test.ask))
			for _, start := range starts {
				require.Equal(t, test.reason, l.stayed(start, test.state, test.attempts).Reason)
			}
			require.Equal(t, 1, strings.Count(strings.Join(local[1:], " "), "Attempts")+strings.Count(strings.Join(local, " "), "RecordSteps"),
				"all with one activity: %v", local)
			require.Less(t, l.now.Sub(began), 4*time.Second, "at once")
		})
	}
}

// R5: cancelling a workflow of several ends none of them. It continues as new, with all of them as they are.
func TestCancellingAWorkflowOfSeveral(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	l.run(after(time.Second, environment.CancelWorkflow))
	require.Equal(t, "DeliveryWorkflow", l.next)
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(t, ok)
	for i, m := range in.Members {
		require.Equal(t, l.b.delivery(t, starts[i].DeliveryID).Progress, m.Progress)
	}
	l.run()
	require.Empty(t, l.next)
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
	}
}

// A delivery's id that cannot be read means none of them, and certainly not all. What is for dead letters is not for open deliveries.
func TestSeveralAreAskedForNothing(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(environment){
		"unreadable": signal(workflows.SignalCancel, map[string]string{"delivery_id": "dlv_nonsense"}),
		"another's":  signal(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())}),
		"replay":     signal(workflows.SignalReplay, nil),
		"discard":    signal(workflows.SignalDiscard, "of no use"),
		"no time":    signal(workflows.SignalReschedule, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := trio(t)
			l.run(after(time.Second, ask))
			for _, start := range starts {
				l.stayed(start, webhook.StateDelivered, 2)
			}
			require.Len(t, l.b.refusals(t, l.id), 1)
		})
	}
}

// A reschedule by hand has a time as its text.
func TestSeveralAreRescheduledByHand(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
	l.run(after(time.Second, signal(workflows.SignalReschedule, at.Format(time.RFC3339))))
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
		require.WithinRange(t, l.b.attempts(t, start.DeliveryID)[1].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
	}
}

// R7: a command whose signal was lost is found in the store by the next attempt.
func TestCommandsOfSeveralAreFoundInTheRecord(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	l.run(after(time.Second, func(environment) {
		l.b.command(t, starts[1].DeliveryID, webhook.CommandCancel, "too late for its signal")
	}))
	l.stayed(starts[0], webhook.StateDelivered, 2)
	require.Equal(t, "too late for its signal", l.stayed(starts[1], webhook.StateCancelled, 1).Reason, "nothing is sent after it")
}

// A command that comes during an attempt is carried out after it.
func TestCommandDuringAnAttemptOfSeveral(t *testing.T) {
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
	require.Equal(t, "enough", l.stayed(start, webhook.StateCancelled, 1).Reason)
}

// A cancel that cannot be stored is tried again, with longer and longer pauses, also by the next run. The others go on meanwhile.
func TestACancelOfOneOfSeveralThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 2)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	l.start = starts[1]
	l.run(after(time.Hour, func(env environment) {
		b.unrecordable(true)
		l.askedWith(workflows.SignalCancel, webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "enough"})(env)
	}), after(2*time.Hour, func(env environment) { env.SetCurrentHistoryLength(501) }))
	require.Equal(t, "DeliveryWorkflow", l.next)
	require.Contains(t, l.timers, time.Minute, "the longest pause")
	b.unrecordable(false)
	l.run()
	require.Equal(t, "enough", l.stayed(starts[1], webhook.StateCancelled, 1).Reason)
	l.stayed(starts[0], webhook.StateDelivered, 2)
}

// A retry while its endpoint is paused is a hold, once: it is not tried again and again.
func TestARetryOfOneOfSeveralIsHeld(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	l.start = starts[1]
	var local []string
	l.run(countLocal(&local), after(time.Second, func(env environment) {
		l.askedWith(workflows.SignalRetryNow, webhook.PendingCommand{Command: webhook.CommandRetry})(env)
		l.b.setState(t, l.b.endpoint.ID, webhook.EndpointPaused)
	}))
	require.LessOrEqual(t, len(local), 4, "%v", local)
	for _, start := range starts {
		d := l.b.delivery(t, start.DeliveryID)
		require.Equal(t, []any{webhook.StateHeld, 2, 1, ""}, []any{d.State, d.Seq, d.Attempts, d.WorkflowID})
		require.Zero(t, l.b.pending(t, start))
	}
}

// A reschedule whose step is refused, because the store is further than the workflow knows, is set again behind what was there.
func TestARescheduleIsNotLostOnARecordThatIsFurther(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	l.start = starts[1]
	at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Microsecond)
	l.run(after(time.Second, func(env environment) {
		l.b.exec(t, `update deliveries set seq = seq + 3 where id = $1`, starts[1].DeliveryID)
		l.askedWith(workflows.SignalReschedule, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at})(env)
	}), after(10*time.Minute, func(environment) { require.Equal(t, at, l.b.delivery(t, starts[1].DeliveryID).DueAt) }))
	l.stayed(starts[1], webhook.StateDelivered, 2)
	require.WithinRange(t, l.b.attempts(t, starts[1].DeliveryID)[1].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
}

// A workflow with deliveries of several tenants takes only signals by hand that name one.
func TestSeveralTenantsAreNotAskedTogether(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(t, ok)
	in.Members = append(in.Members, &workflows.Member{DeliveryState: workflows.DeliveryState{
		Ref: webhook.Ref{TenantID: "another"}, Progress: webhook.Progress{Run: 1, DueAt: time.Now().Add(time.Minute), GiveUpAt: time.Now().Add(time.Hour)},
	}})
	l.input = in
	var shown string
	l.run(after(time.Second, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, nil)
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID})
	}), after(2*time.Second, func(environment) { shown = l.details() }))
	l.stayed(starts[0], webhook.StateCancelled, 1)
	l.stayed(starts[1], webhook.StateDelivered, 2)
	require.Contains(t, shown, "`cancel` at ")
	require.Contains(t, shown, "the workflow has deliveries of several tenants")
}

// A thousand commands to a hundred deliveries are carried out by a handful of activities.
func TestAThousandCommandsToOpenDeliveries(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, webhook.MaxAssigned)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	var local []string
	l.run(countLocal(&local), after(time.Hour, func(env environment) {
		for n := range 10 {
			for _, start := range starts {
				env.SignalWorkflow(workflows.SignalReschedule, workflows.CommandSignal{
					CommandID: int64(n + 1), DeliveryID: start.DeliveryID, At: time.Now().Add(time.Duration(10+n) * time.Hour).UTC(),
				})
			}
		}
	}))
	require.LessOrEqual(t, len(local), 20, "%v", local)
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
		attempts := b.attempts(t, start.DeliveryID)
		require.InDelta(t, 19, attempts[1].StartedAt.Sub(attempts[0].StartedAt).Hours(), 0.1)
	}
}
