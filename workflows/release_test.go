package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func (l *life) resume(environment) { l.b.setState(l.t, l.start.EndpointID, webhook.EndpointActive) }

// isHeld requires that the delivery waits for its endpoint.
func (l *life) isHeld(environment) {
	d := l.b.delivery(l.t, l.start.DeliveryID)
	require.Equal(l.t, webhook.StateHeld, d.State)
	require.True(l.t, d.DueAt.IsZero())
	require.Contains(l.t, l.details(), "**held**")
	require.Zero(l.t, l.b.receiver.Count())
}

// pending is the command that nobody has answered yet; 0 is none.
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
		env.SignalWorkflow(signalName, workflows.Asked{CommandID: pending.ID, Reason: pending.Reason, At: pending.At, DeliveryID: l.start.DeliveryID})
	}
}

func TestHeldIsReleased(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ask  func(l *life) func(environment)
	}{
		{"by the API", func(l *life) func(environment) {
			return l.askedWith(workflows.SignalRelease, webhook.PendingCommand{Command: webhook.CommandRelease})
		}},
		{"by hand", func(*life) func(environment) { return signal(workflows.SignalRelease, nil) }},
		{"by a retry", func(l *life) func(environment) {
			return l.askedWith(workflows.SignalRetryNow, webhook.PendingCommand{Command: webhook.CommandRetry})
		}},
		{"by a retry by hand", func(*life) func(environment) { return signal(workflows.SignalRetryNow, nil) }},
		// R7: the signal was lost, and the relay sends another.
		{"by the relay", func(l *life) func(environment) {
			return func(env environment) {
				id := l.stored(webhook.PendingCommand{Command: webhook.CommandRelease}).ID
				for range 3 {
					env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalRelease, workflows.Asked{CommandID: id}) }, 15*time.Second)
				}
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := paused(t)
			began := l.now
			l.run(after(time.Minute, func(env environment) {
				l.isHeld(env)
				l.resume(env)
				test.ask(l)(env)
			}))
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, []string{"held", "delivered"}, l.states)
			require.Less(t, l.now.Sub(began), 2*time.Minute)
			require.Zero(t, l.b.pending(t, l.start))
		})
	}
}

// Released while its endpoint is not active, or again by then, it goes on waiting, and
// its time runs.
func TestHeldIsReleasedInVain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{workflows.SignalRelease, workflows.SignalRetryNow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := paused(t)
			l.run(after(time.Minute, func(env environment) {
				l.isHeld(env)
				env.SignalWorkflow(name, nil)
			}), after(2*time.Minute, l.isHeld))
			l.expired()
			require.LessOrEqual(t, len(l.timers), 3, "no polling")
		})
	}
}

// expired requires that the delivery was given up because it was held for too long.
func (l *life) expired() {
	l.rests(webhook.ReasonHeldExpired)
	require.Zero(l.t, l.b.receiver.Count())
	require.WithinRange(l.t, l.now, l.start.GiveUpAt, l.start.GiveUpAt.Add(slack))
	require.Equal(l.t, []string{"held", "dead_lettered"}, l.states)
}

func TestHeldIsGivenUp(t *testing.T) {
	t.Parallel()
	l := paused(t)
	l.run(after(30*time.Minute, l.isHeld))
	l.expired()
	require.LessOrEqual(t, len(l.timers), 2, "once more when the two clocks are not of one mind")
	require.InDelta(t, time.Hour.Seconds(), l.timers[0].Seconds(), slack.Seconds())

	l.resume(nil) // what was not sent can be replayed
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.run()
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
}

// The worker's clock is behind that of the engine: the give-up time has come by one and
// not by the other, which is asked again, with a pause.
func TestHeldIsGivenUpByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	l := paused(t)
	l.behind = 10 * time.Second
	l.run()
	l.rests(webhook.ReasonHeldExpired)
	require.InDelta(t, 12, len(l.timers), 3)
}

func TestHeldIsCancelled(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*life) func(environment){
		"by the API": func(l *life) func(environment) {
			return l.askedWith(workflows.SignalCancel, webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "enough"})
		},
		"by hand": func(*life) func(environment) { return signal(workflows.SignalCancel, "enough") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := paused(t)
			l.run(after(time.Minute, ask(l)))
			l.ends(webhook.StateCancelled, "enough")
			require.Zero(t, l.b.receiver.Count())
			require.Equal(t, []string{"held", "cancelled"}, l.states)
		})
	}
}

// A release is not forgotten over a fault of our own.
func TestHeldIsReleasedDuringAFault(t *testing.T) {
	t.Parallel()
	l := paused(t)
	l.run(after(time.Minute, func(env environment) {
		l.resume(env)
		l.b.refuse(3)
		l.askedWith(workflows.SignalRelease, webhook.PendingCommand{Command: webhook.CommandRelease})(env)
	}))
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
	require.Less(t, time.Until(l.now), 10*time.Minute)
}

// A retry that is due while its endpoint is paused waits for it, and is the same attempt then.
func TestRetryIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, "fast")
	b.receiver.Script("/hook", receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(
		after(time.Millisecond, func(environment) {
			l.attempted(1)
			b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
		}),
		after(30*time.Minute, func(env environment) {
			d := b.delivery(t, l.start.DeliveryID)
			require.Equal(t, webhook.StateHeld, d.State)
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, 1, b.receiver.Count())
			l.resume(env)
			env.SignalWorkflow(workflows.SignalRelease, nil)
		}),
	)
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Equal(t, []string{"retrying", "held", "delivered"}, l.states)
}

// R5: a long history does not let a release be forgotten, nor a held delivery try by itself.
func TestContinueAsNewWhileHeld(t *testing.T) {
	t.Parallel()
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		l := paused(t)
		began := l.now
		l.run(after(time.Minute, func(env environment) {
			l.resume(env)
			env.SetContinueAsNewSuggested(true)
			env.SignalWorkflow(workflows.SignalRelease, nil)
		}))
		require.Equal(t, "DeliveryWorkflow", l.next)
		l.run()
		l.ends(webhook.StateDelivered, "")
		require.Less(t, l.now.Sub(began), 10*time.Minute)
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		l := paused(t)
		l.run(after(time.Minute, func(env environment) {
			env.SetContinueAsNewSuggested(true)
			env.SignalWorkflow(workflows.SignalReplay, nil) // which means nothing to it, and wakes it
		}))
		require.Equal(t, "DeliveryWorkflow", l.next)
		l.states = nil
		l.run()
		l.expired()
	})
}
