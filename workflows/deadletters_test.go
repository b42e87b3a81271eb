package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// several are dead letters of a shared workflow, in the workflow that keeps them.
func several(t *testing.T, n int) (*life, []webhook.Start) {
	t.Helper()
	b := setup(t, "default")
	starts := b.acceptSome(t, n)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), receivertest.Step{Status: 400})
	}
	l := b.share(t, time.Hour, starts...)
	l.run()
	require.Empty(t, l.next)
	require.Len(t, l.keepers.kept, 1, "one workflow for all")
	l.keeps(0)
	return l, starts
}

// keeps makes the life that of the workflow of one batch of dead letters.
func (l *life) keeps(batch int) {
	kept := l.keepers.kept[batch]
	in := workflows.DeadLetterInput{}
	for _, dead := range kept.DeadLetters {
		in.DeadLetters = append(in.DeadLetters, workflows.NewDeadLetter(workflows.DeliveryState(dead)))
	}
	l.id, l.next, l.input, l.states = kept.WorkflowID, "DeadLetterWorkflow", in, nil
}

// states are what the store says.
func (l *life) statesOf(starts []webhook.Start) (all []webhook.State) {
	for _, start := range starts {
		all = append(all, l.b.delivery(l.t, start.DeliveryID).State)
	}
	return all
}

// Deliveries that are given up within 10 s go to one workflow, and later ones to another one, which the store names from the start. The
// deliveries that are still open do not wait for them, nor they for those.
func TestDeadLettersAreGathered(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 5)
	wrong := receivertest.Step{Status: 400}
	b.receiver.Script(starts[0].EventID.String(), wrong)
	b.receiver.Script(starts[1].EventID.String(), waitFor(5*time.Second), wrong)
	b.receiver.Script(starts[2].EventID.String(), waitFor(30*time.Second), wrong)
	b.receiver.Script(starts[3].EventID.String(), waitFor(time.Hour))
	l := b.share(t, time.Hour, starts...)
	l.run(after(9*time.Second, func(environment) {
		require.Empty(t, l.keepers.kept, "they are gathered")
		require.Equal(t, webhook.DeadLettersWorkflowID(l.id, 0), b.delivery(t, starts[0].DeliveryID).WorkflowID)
	}), after(15*time.Second, func(environment) {
		require.Len(t, l.keepers.kept, 1)
		require.Len(t, l.statuses(), 2, "the others are open")
	}))
	require.Len(t, l.keepers.kept, 2)
	for i, batch := range map[int]int{0: 0, 1: 0, 2: 1} {
		keeper, dead := l.keepers.of(starts[i].DeliveryID)
		require.Equal(t, webhook.DeadLettersWorkflowID(l.id, batch), keeper)
		d := b.delivery(t, starts[i].DeliveryID)
		require.Equal(t, keeper, d.WorkflowID)
		require.Equal(t, d.Progress, dead.Progress)
		require.Equal(t, "400", dead.LastOutcome.String())
	}
	for _, i := range []int{3, 4} {
		require.Equal(t, webhook.StateDelivered, b.delivery(t, starts[i].DeliveryID).State)
	}
}

// R3: a workflow task that was lost has started the workflow with fewer; the others go to the next one.
func TestDeadLettersOfALostTask(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 2)
	b.receiver.Default(receivertest.Step{Status: 400})
	l := b.share(t, time.Hour, starts...)
	l.keepers.kept = []activities.Keeping{{
		WorkflowID: webhook.DeadLettersWorkflowID(l.id, 0), DeadLetters: []activities.DeliveryState{{Ref: starts[0].Ref}},
	}}
	l.run()
	require.Len(t, l.keepers.kept, 2)
	for batch, start := range starts {
		keeper, _ := l.keepers.of(start.DeliveryID)
		require.Equal(t, webhook.DeadLettersWorkflowID(l.id, batch), keeper)
		require.Equal(t, keeper, b.delivery(t, start.DeliveryID).WorkflowID)
	}
}

// The numbers of the batches go on when the shared workflow continues as new, and a dead letter that waits is taken along.
func TestBatchesGoOnInTheNextRun(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 3)
	wrong := receivertest.Step{Status: 400}
	b.receiver.Script(starts[0].EventID.String(), wrong)
	b.receiver.Script(starts[1].EventID.String(), waitFor(30*time.Second), wrong)
	b.receiver.Script(starts[2].EventID.String(), waitFor(time.Hour))
	l := b.share(t, time.Hour, starts...)
	l.run(after(31*time.Second, func(env environment) {
		env.SetCurrentHistoryLength(501)
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())})
	}))
	require.Equal(t, "DeliveryWorkflow", l.next)
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(t, ok)
	require.Equal(t, 1, in.Batch)
	require.Equal(t, webhook.StateDeadLettered, in.Members[0].State)
	shared := l.id
	l.run()
	require.Len(t, l.keepers.kept, 2)
	for batch, start := range starts[:2] {
		keeper, _ := l.keepers.of(start.DeliveryID)
		require.Equal(t, webhook.DeadLettersWorkflowID(shared, batch), keeper)
		require.Equal(t, keeper, b.delivery(t, start.DeliveryID).WorkflowID)
	}
	require.Equal(t, webhook.StateDelivered, b.delivery(t, starts[2].DeliveryID).State)
}

// A dead letter that is still gathered takes the commands that are for dead letters along, whatever else is signalled to all; it refuses others
// that name it. That a run was opened is nothing to open deliveries.
func TestCommandsToADeadLetterThatIsGathered(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 2)
	b.receiver.Script(starts[0].EventID.String(), receivertest.Step{Status: 400})
	b.receiver.Script(starts[1].EventID.String(), waitFor(time.Hour))
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Second, func(env environment) {
		env.SignalWorkflow(workflows.SignalReplay, l.openedRun(2))
		require.Len(t, l.statuses(), 2)
		env.SignalWorkflow(workflows.SignalDiscard, workflows.CommandSignal{Reason: "of no use", DeliveryID: starts[0].DeliveryID})
		env.SignalWorkflow(workflows.SignalRetryNow, nil)
		env.SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID})
	}))
	_, dead := l.keepers.of(starts[0].DeliveryID)
	require.Equal(t, webhook.PendingCommand{Command: webhook.CommandDiscard, Reason: "of no use"}, dead.Command)
	l.stayed(starts[1], webhook.StateDelivered, 2)
	require.Len(t, b.refusals(t, l.id), 1)
}

// While Temporal does not start their workflow, dead letters stay, and the others go on.
func TestDeadLettersStayUntilTheirWorkflowStarts(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 2)
	b.receiver.Script(starts[0].EventID.String(), receivertest.Step{Status: 400})
	b.receiver.Script(starts[1].EventID.String(), waitFor(time.Minute))
	l := b.share(t, time.Hour, starts...)
	l.keepers.failing(func(activities.DeliveryState) error { return errAway })
	l.run(after(5*time.Minute, func(environment) {
		require.Equal(t, webhook.StateDelivered, b.delivery(t, starts[1].DeliveryID).State)
		require.Len(t, l.statuses(), 1)
		l.keepers.failing(nil)
	}))
	require.Len(t, l.keepers.kept, 1)
	require.Contains(t, l.timers, time.Minute, "the longest pause")
}

// A command reaches the dead letter that it names, and leaves the others alone. The details list what has become of each.
func TestCommandsToOneOfSeveralDeadLetters(t *testing.T) {
	t.Parallel()
	l, starts := several(t, 4)
	line := func(start webhook.Start, words string) string {
		return "- `" + start.DeliveryID.String() + "` · `order.paid` to `" + start.EndpointID.String() + "`: " + words
	}
	l.run(after(time.Hour, func(env environment) {
		require.Contains(t, l.details(), "**4 deliveries**, 4 of them still here\n\n")
		require.Contains(t, l.details(), line(starts[0], "dead_lettered. "))
		c := l.b.command(t, starts[0].DeliveryID, webhook.CommandDiscard, "of no use")
		env.SignalWorkflow(workflows.SignalDiscard, workflows.CommandSignal{CommandID: c.ID, Run: 1, Reason: c.Reason, DeliveryID: starts[0].DeliveryID})
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{DeliveryID: starts[1].DeliveryID}) // by hand
		l.b.command(t, starts[2].DeliveryID, webhook.CommandReplay, "")
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{Opened: []workflows.OpenedRun{
			{DeliveryID: starts[2].DeliveryID, Run: 2, WorkflowID: "fanout/next"}, {DeliveryID: starts[3].DeliveryID, Run: 1},
		}})
		env.SignalWorkflow(workflows.SignalDiscard, map[string]string{"delivery_id": "dlv_nonsense"})
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())})
		env.SignalWorkflow(workflows.SignalRetryNow, nil)
	}), after(2*time.Hour, func(environment) {
		require.Equal(t, []webhook.State{webhook.StateDiscarded, webhook.StatePending, webhook.StatePending, webhook.StateDeadLettered}, l.statesOf(starts))
		shown := l.details()
		require.Contains(t, shown, "**4 deliveries**, 1 of them still here\n\n")
		require.Contains(t, shown, line(starts[0], "discarded: of no use\n"))
		require.Contains(t, shown, line(starts[1], "Run 2 of the delivery is in the workflow "+starts[1].Ref.WorkflowID(2)+".\n"))
		require.Contains(t, shown, line(starts[2], "Run 2 of the delivery is in the workflow fanout/next.\n"))
		require.Contains(t, shown, line(starts[3], "dead_lettered. "))
		require.Contains(t, shown, "- `retry-now` at ")
		require.Contains(t, shown, "names a delivery that is not in this workflow, or no longer\n")
		require.Len(t, l.statuses(), 1)
		require.Len(t, l.b.refusals(t, l.id), 3)
	}))
	require.Empty(t, l.next)
	d := l.b.delivery(t, starts[3].DeliveryID)
	require.Equal(t, []any{webhook.StateDiscarded, webhook.ReasonRetention, l.id}, []any{d.State, d.Reason, d.WorkflowID})
	require.Equal(t, []string{"dead_lettered", ""}, l.states, "some were replayed")
}

// All that a person asks without naming a delivery is for each of them, in a few activities.
func TestCommandsToAllDeadLetters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ask   func(environment)
		state webhook.State
		shown string
	}{
		"replay":  {signal(workflows.SignalReplay, "they have repaired it"), webhook.StatePending, ""},
		"discard": {signal(workflows.SignalDiscard, nil), webhook.StateDiscarded, "discarded"},
		"cancel":  {environment.CancelWorkflow, webhook.StateDiscarded, "discarded"},
		"nothing": {func(environment) {}, webhook.StateDiscarded, "discarded"}, // at the end of their retention
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := several(t, 30)
			var local []string
			l.run(countLocal(&local), after(time.Hour, test.ask))
			require.Empty(t, l.next)
			for _, state := range l.statesOf(starts) {
				require.Equal(t, test.state, state)
			}
			require.Equal(t, []string{"dead_lettered", test.shown}, l.states)
			require.LessOrEqual(t, len(local), 2+5, "the retention, the looks and one for all: %v", local)
		})
	}
}

// A thousand commands are few events: the workflow takes all that are there at once.
func TestAThousandCommandsToOneWorkflow(t *testing.T) {
	t.Parallel()
	l, starts := several(t, 20)
	var local []string
	l.run(countLocal(&local), after(time.Hour, func(env environment) {
		for range 50 {
			for _, start := range starts[1:] {
				env.SignalWorkflowSkippingWorkflowTask(workflows.SignalDiscard, workflows.CommandSignal{DeliveryID: start.DeliveryID})
			}
		}
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID})
	}))
	require.Empty(t, l.next)
	require.Equal(t, webhook.StatePending, l.b.delivery(t, starts[0].DeliveryID).State)
	require.Equal(t, webhook.StateDiscarded, l.b.delivery(t, starts[19].DeliveryID).State)
	require.Len(t, local, 3, "retention, replay, discard: %v", local)
}

// R9: one that the store refuses does not keep the others, and is tried again; one that is gone leaves.
func TestOneOfSeveralDeadLettersCannotBeStored(t *testing.T) {
	t.Parallel()
	l, starts := several(t, 3)
	away := func(s webhook.Step) error {
		if s.DeliveryID == starts[0].DeliveryID && l.clock().Before(l.now.Add(2*time.Hour)) {
			return errAway
		}
		return nil
	}
	l.b.record.onRecord.Store(&away)
	l.b.exec(t, `delete from deliveries where id = $1`, starts[1].DeliveryID)
	l.run(after(time.Hour, signal(workflows.SignalDiscard, "of no use")), after(90*time.Minute, func(environment) {
		require.Len(t, l.statuses(), 1)
		require.Contains(t, l.statuses()[0].LastError, errAway.Message)
		require.Equal(t, webhook.StateDiscarded, l.b.delivery(t, starts[2].DeliveryID).State)
		require.Contains(t, l.details(), "no longer in the store\n")
	}))
	require.Empty(t, l.next)
	require.Equal(t, webhook.StateDiscarded, l.b.delivery(t, starts[0].DeliveryID).State)
}

// A long history is continued as a short one, with those that are still dead letters, and with commands that are not carried out yet.
func TestSeveralDeadLettersContinueAsNew(t *testing.T) {
	t.Parallel()
	l, starts := several(t, 3)
	began := l.now
	away := func(s webhook.Step) error {
		if s.DeliveryID == starts[1].DeliveryID && l.clock().Before(began.Add(2*time.Hour)) {
			return errAway
		}
		return nil
	}
	l.b.record.onRecord.Store(&away)
	l.run(after(time.Hour, func(env environment) {
		for _, start := range starts[:2] {
			env.SignalWorkflow(workflows.SignalDiscard, workflows.CommandSignal{CommandID: 1, Run: 1, Reason: "enough", DeliveryID: start.DeliveryID})
		}
	}), after(61*time.Minute, func(env environment) {
		env.SetContinueAsNewSuggested(true)
	}))
	require.Equal(t, "DeadLetterWorkflow", l.next)
	in, ok := l.input.(workflows.DeadLetterInput)
	require.True(t, ok)
	require.Len(t, in.DeadLetters, 2)
	require.Equal(t, 1, in.Before)
	require.Equal(t, &workflows.CommandSignal{Reason: "enough", Run: 1, DeliveryID: starts[1].DeliveryID}, in.DeadLetters[0].Discard)
	l.run(after(2*time.Hour, func(environment) {
		require.Contains(t, l.details(), "- in earlier runs of this workflow: 1 delivery\n")
	}))
	require.Empty(t, l.next)
	d := l.b.delivery(t, starts[1].DeliveryID)
	require.Equal(t, []any{webhook.StateDiscarded, "enough"}, []any{d.State, d.Reason})
	d = l.b.delivery(t, starts[2].DeliveryID)
	require.Equal(t, []any{webhook.StateDiscarded, webhook.ReasonRetention}, []any{d.State, d.Reason})
	require.InDelta(t, keep.Seconds(), l.now.Sub(began).Seconds(), slack.Seconds(), "the retention does not start again")
}

// R8: those whose signal was lost leave when the workflow looks at the store, with one query for all, within a day.
func TestReplayedDeadLettersLeaveWithoutASignal(t *testing.T) {
	t.Parallel()
	l, starts := several(t, 3)
	for _, start := range starts[1:] {
		l.b.command(t, start.DeliveryID, webhook.CommandReplay, "")
	}
	var local []string
	l.run(countLocal(&local), after(25*time.Hour, func(environment) {
		require.Len(t, l.statuses(), 1)
		require.Equal(t, []string{"KeepFor", "Look"}, local)
	}))
	require.Equal(t, webhook.StateDiscarded, l.b.delivery(t, starts[0].DeliveryID).State)
}
