package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// paused is a delivery whose endpoint is paused. It is given up after an hour.
func paused(t *testing.T) *life {
	t.Helper()
	b := setup(t, "fast")
	b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
	return b.deliver(t)
}

// heldDelivery is a delivery that is held because its endpoint is paused.
func heldDelivery(t *testing.T) *life {
	t.Helper()
	l := paused(t)
	l.run()
	l.isHeld()
	return l
}

func (l *life) resume(environment) { l.b.setState(l.t, l.start.EndpointID, webhook.EndpointActive) }

// isHeld requires that the delivery is held: only a row, which no workflow carries.
func (l *life) isHeld() webhook.Delivery {
	require.Empty(l.t, l.next, "the workflow goes on")
	d := l.b.delivery(l.t, l.start.DeliveryID)
	require.Equal(l.t, webhook.StateHeld, d.State)
	require.Empty(l.t, d.WorkflowID)
	require.True(l.t, d.DueAt.IsZero())
	require.Contains(l.t, l.details(), "**held**")
	require.Equal(l.t, "held", l.states[len(l.states)-1])
	return d
}

// released lets the store release the delivery, and returns what is to be started.
func (l *life) released() webhook.Start {
	starts := storetest.ReleaseNow(l.t, l.b.store, l.start.EndpointID)
	require.Len(l.t, starts, 1)
	return starts[0]
}

// tryNow begins the held delivery's own workflow, as a release does.
func (l *life) tryNow() *life {
	d := l.b.delivery(l.t, l.start.DeliveryID)
	l.next, l.input = "DeliveryWorkflow", workflows.InputOf(webhook.Start{Ref: d.Ref, Run: d.Run, Resume: &d.Progress})
	return l
}

// commanded begins the held delivery's own workflow with a command, as a command does that finds none.
func (l *life) commanded(c webhook.PendingCommand) *life {
	l.tryNow()
	m := l.member()
	m.Unconfirmed, m.Pending = true, []webhook.PendingCommand{c}
	return l
}

// pending is the command that is not handled yet; 0 for none.
func (b *bundle) pending(t require.TestingT, start webhook.Start) (command int) {
	require.NoError(t, b.store.Pool().QueryRow(context.Background(), `select command from deliveries where id = $1`, start.DeliveryID).Scan(&command))
	return command
}

// stored stores a command as the API does; its signal is lost.
func (l *life) stored(c webhook.PendingCommand) webhook.PendingCommand {
	_, pending, err := l.b.store.Deliveries.Command(context.Background(), webhook.Actor{Name: "test"}, tenant, l.start.DeliveryID, c)
	require.NoError(l.t, err)
	return pending
}

// askedWith stores a command as the API does, and signals it.
func (l *life) askedWith(signalName string, c webhook.PendingCommand) func(environment) {
	return func(env environment) {
		pending := l.stored(c)
		env.SignalWorkflow(signalName, workflows.CommandSignal{CommandID: pending.ID, Reason: pending.Reason, At: pending.At, DeliveryID: l.start.DeliveryID})
	}
}

// A delivery that is held ends its workflow at once: no timer, no outbox row.
func TestHeldIsARow(t *testing.T) {
	t.Parallel()
	l := heldDelivery(t)
	require.Empty(t, l.timers)
	require.Equal(t, []string{"held"}, l.states)
	require.Zero(t, l.b.receiver.Count())
	require.Zero(t, l.b.outboxRows(t))
}

// R1: a release is an outbox row and a start; the first step ends the row.
func TestHeldIsReleased(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(l *life){
		"by a release": func(l *life) {
			require.Equal(t, l.b.delivery(t, l.start.DeliveryID).Progress, *l.released().Resume)
			require.Equal(t, 1, l.b.outboxRows(t))
			l.tryNow()
		},
		"by a retry": func(l *life) { l.commanded(l.stored(webhook.PendingCommand{Command: webhook.CommandRetry})) },
		// R7: the workflow was started for something else, and finds the command in the store.
		"by a retry that only the store knows of": func(l *life) {
			l.stored(webhook.PendingCommand{Command: webhook.CommandRetry})
			l.tryNow()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := heldDelivery(t)
			l.resume(nil)
			start(l)
			l.run()
			require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
			require.Empty(t, l.timers)
			require.Zero(t, l.b.pending(t, l.start))
			require.Zero(t, l.b.outboxRows(t))
		})
	}
}

// Tried while its endpoint is not active, or again by then, it is held again, and the command
// that it was tried for is answered.
func TestHeldIsTriedInVain(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(l *life){
		"by a release": func(l *life) {
			l.released()
			l.tryNow()
		},
		"by a retry": func(l *life) { l.commanded(l.stored(webhook.PendingCommand{Command: webhook.CommandRetry})) },
		"by a retry that only the store knows of": func(l *life) {
			l.stored(webhook.PendingCommand{Command: webhook.CommandRetry})
			l.tryNow()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := heldDelivery(t)
			l.resume(nil)
			before := l.b.delivery(t, l.start.DeliveryID)
			start(l)
			l.b.setState(t, l.start.EndpointID, webhook.EndpointPaused)
			l.run()
			require.Greater(t, l.isHeld().Seq, before.Seq)
			require.Zero(t, l.b.pending(t, l.start))
			require.Zero(t, l.b.outboxRows(t))
			require.Zero(t, l.b.receiver.Count())

			l.resume(nil)
			l.released()
			l.tryNow().run()
			require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		})
	}
}

// expired requires that the delivery was given up because it was held for too long.
func (l *life) expired() {
	l.deadLettered(webhook.ReasonHeldExpired)
	require.Zero(l.t, l.b.receiver.Count())
	require.NotContains(l.t, l.states, "dead_lettered")
}

// expires is when the delivery is given up if it stays held.
func (l *life) expires() time.Time { return l.b.delivery(l.t, l.start.DeliveryID).Expires() }

// One that is tried when it has been held for as long as it may is given up, whatever its endpoint's state.
func TestHeldIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, state := range []webhook.EndpointState{webhook.EndpointActive, webhook.EndpointPaused, webhook.EndpointDisabled} {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			l := heldDelivery(t)
			l.b.setState(t, l.start.EndpointID, state)
			l.now = l.expires().Add(time.Second)
			l.tryNow().run()
			l.expired()

			l.resume(nil) // what was not sent can be replayed
			l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
			l.opened(2)
			l.run()
			require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		})
	}
}

// The worker's clock is behind that of the store: its time has come by one and not by the
// other. It is held again, until it is tried next.
func TestHeldIsGivenUpByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	l := heldDelivery(t)
	l.behind = 10 * time.Second
	l.now = l.expires().Add(time.Second)
	l.tryNow().run()
	l.isHeld()
	l.now = l.expires().Add(11 * time.Second)
	l.tryNow().run()
	l.expired()
}

// A cancel ends it while its endpoint is paused, however its workflow is started.
func TestHeldIsCancelled(t *testing.T) {
	t.Parallel()
	cancel := webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "enough"}
	for name, start := range map[string]func(l *life){
		"with the command": func(l *life) { l.commanded(l.stored(cancel)) },
		"which only the store knows of": func(l *life) {
			l.stored(cancel)
			l.tryNow()
		},
		"while its endpoint is active": func(l *life) {
			l.stored(cancel)
			l.resume(nil)
			l.tryNow()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := heldDelivery(t)
			start(l)
			l.run()
			l.ends(webhook.StateCancelled, "enough")
			require.Zero(t, l.b.receiver.Count())
			require.Zero(t, l.b.pending(t, l.start))
		})
	}
}

// An internal fault puts a released delivery off. It is not held meanwhile: else it would be
// released again and again.
func TestHeldIsReleasedDuringAFault(t *testing.T) {
	t.Parallel()
	l := heldDelivery(t)
	l.resume(nil)
	l.released()
	l.b.refuse(3)
	l.tryNow().run(after(500*time.Millisecond, func(environment) {
		d := l.b.delivery(t, l.start.DeliveryID)
		require.Equal(t, webhook.StatePending, d.State)
		require.Empty(t, d.Reason)
		require.Contains(t, d.LastError, errAway.Error())
		require.Equal(t, l.start.WorkflowID(), d.WorkflowID)
		starts := storetest.ReleaseNow(t, l.b.store, l.start.EndpointID)
		require.Empty(t, starts)
	}))
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
	require.Len(t, l.timers, 3)
}

// A retry that is due while its endpoint is paused waits for it, and is the same attempt then.
func TestRetryIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, "fast")
	b.receiver.Script("/hook", receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Millisecond, func(environment) {
		l.attempted(1)
		b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
	}))
	require.Equal(t, 1, l.isHeld().Attempts)
	l.resume(nil)
	l.released()
	l.tryNow().run()
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Equal(t, []string{"retrying", "held", "delivered"}, l.states)
}

// A later run is held and released like the first one.
func TestReplayedRunIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, "fast")
	b.receiver.Script("/hook", receivertest.Step{Status: 400})
	l := b.deliver(t)
	l.run()
	l.deadLettered("http_400")
	b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.run()
	require.Equal(t, 2, l.isHeld().Run)
	l.resume(nil)
	require.Equal(t, 2, l.released().Run)
	l.tryNow().run()
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, []int{2, 2}, []int{d.Run, d.Attempts})
}
