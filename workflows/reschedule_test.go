package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// in is a moment from now, as exact as a person says it.
func in(d time.Duration) time.Time { return time.Now().Add(d).UTC().Truncate(time.Second) }

// asking does something to a delivery's workflow that has to do with a time.
type asking func(l *life, at time.Time) func(environment)

func byAPI(l *life, at time.Time) func(environment) {
	return l.askedWith(workflows.SignalReschedule, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at})
}

func byHand(_ *life, at time.Time) func(environment) {
	return signal(workflows.SignalReschedule, workflows.CommandSignal{At: at})
}

func byHandAsText(_ *life, at time.Time) func(environment) {
	return signal(workflows.SignalReschedule, at.In(time.FixedZone("elsewhere", 3600)).Format(time.RFC3339))
}

// retryLater is a delivery that is to be tried again in half an hour, and is given up
// after an hour.
func retryLater(t *testing.T) *life {
	t.Helper()
	b := setup(t, "fast")
	l := b.deliver(t)
	b.receiver.Script("/hook", waitFor(30*time.Minute))
	return l
}

func TestRetryingIsRescheduled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		at   time.Duration // from now, when the command comes
		ask  asking
		want time.Duration // from now, when the second attempt is made
	}{
		{"by the API, sooner", 10 * time.Minute, byAPI, 10 * time.Minute},
		{"by the API, later", 50 * time.Minute, byAPI, 50 * time.Minute},
		{"by the API, now", -time.Hour, byAPI, time.Minute},
		{"by hand", 10 * time.Minute, byHand, 10 * time.Minute},
		{"by hand as a text", 10 * time.Minute, byHandAsText, 10 * time.Minute},
		{"by hand, without a time", 0, func(*life, time.Time) func(environment) {
			return signal(workflows.SignalReschedule, nil)
		}, 30 * time.Minute},
		{"by hand, with a text that is no time", 0, func(*life, time.Time) func(environment) {
			return signal(workflows.SignalReschedule, "soon")
		}, 30 * time.Minute},
		{"twice", 10 * time.Minute, func(l *life, at time.Time) func(environment) {
			return func(env environment) {
				byAPI(l, at.Add(20*time.Minute))(env)
				byAPI(l, at)(env)
			}
		}, 10 * time.Minute},
		// R7: the relay repeats the signal of a command that has been seen.
		{"by the API and by the relay", 10 * time.Minute, func(l *life, at time.Time) func(environment) {
			return func(env environment) {
				byAPI(l, at)(env)
				env.RegisterDelayedCallback(func() {
					env.SignalWorkflow(workflows.SignalReschedule, workflows.CommandSignal{CommandID: 1, At: at.Add(time.Minute)})
				}, 15*time.Second)
			}
		}, 10 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := retryLater(t)
			at, want := in(test.at), time.Now().Add(test.want)
			l.run(after(time.Minute, test.ask(l, at)), after(90*time.Second, func(environment) {
				require.Zero(t, l.b.pending(t, l.start), "it is answered")
				if l.b.receiver.Count() == 1 {
					require.WithinDuration(t, want, l.b.delivery(t, l.start.DeliveryID).DueAt, slack, "the store says when")
				}
			}))
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, 2, d.Attempts)
			require.Equal(t, l.start.GiveUpAt, d.GiveUpAt, "only the attempt moves")
			require.WithinDuration(t, want, l.b.attempts(t, l.start.DeliveryID)[1].StartedAt, slack)
		})
	}
}

// The API refuses a time after the give-up time; by hand it means then, and no attempt
// begins after it.
func TestRescheduledPastItsGiveUpTime(t *testing.T) {
	t.Parallel()
	l := retryLater(t)
	l.run(after(time.Minute, byHand(l, in(2*time.Hour))), after(2*time.Minute, func(environment) {
		require.Equal(t, l.start.GiveUpAt, l.b.delivery(t, l.start.DeliveryID).DueAt)
	}))
	require.WithinRange(t, l.now, l.start.GiveUpAt, l.start.GiveUpAt.Add(slack))
	for _, attempt := range l.b.attempts(t, l.start.DeliveryID) {
		require.False(t, attempt.StartedAt.After(l.start.GiveUpAt))
	}
}

// Before the first attempt both times move: the give-up time counts from there.
func TestDeliverAtIsRescheduled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		at   time.Duration
		ask  asking
	}{
		{"by the API, later", 30 * time.Hour, byAPI},
		{"by the API, sooner", 2 * time.Hour, byAPI},
		{"by hand", 30 * time.Hour, byHand},
		{"by hand as a text", 2 * time.Hour, byHandAsText},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "fast")
			l := b.begin(t, b.accept(t, in(10*time.Hour)), time.Hour)
			at := in(test.at)
			moved := l.start.GiveUpAt.Add(at.Sub(l.start.NotBefore))
			l.run(after(time.Hour, test.ask(l, at)), after(time.Hour+time.Second, func(environment) {
				d := b.delivery(t, l.start.DeliveryID)
				require.Equal(t, at, d.DueAt)
				require.Equal(t, moved, d.GiveUpAt)
				require.Zero(t, b.pending(t, l.start))
			}))
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, moved, d.GiveUpAt)
			require.WithinRange(t, b.attempts(t, l.start.DeliveryID)[0].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
		})
	}
}

// A held delivery that is rescheduled waits for the time in its own workflow, and is held again if
// its endpoint is not active by then.
func TestHeldIsRescheduled(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{0, 1} {
		for _, isPaused := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d attempts, paused again: %t", attempts, isPaused), func(t *testing.T) {
				t.Parallel()
				b := setup(t, "fast")
				l := b.deliver(t)
				if attempts > 0 {
					b.receiver.Script("/hook", waitFor(time.Minute))
				} else {
					b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
				}
				l.run(after(time.Second, func(environment) { b.setState(t, b.endpoint.ID, webhook.EndpointPaused) }))
				l.isHeld()
				l.resume(nil)
				at := l.now.Add(20 * time.Minute).UTC().Truncate(time.Second)
				command := l.stored(webhook.PendingCommand{Command: webhook.CommandReschedule, At: at})
				l.commanded(command).run(after(time.Second, func(environment) {
					d := b.delivery(t, l.start.DeliveryID)
					require.Equal(t, map[int]webhook.State{0: webhook.StatePending, 1: webhook.StateRetrying}[attempts], d.State)
					require.Equal(t, []any{at, "", l.start.WorkflowID(), l.start.GiveUpAt}, []any{d.DueAt, d.Reason, d.WorkflowID, d.GiveUpAt})
					require.Zero(t, b.pending(t, l.start))
					if isPaused {
						b.setState(t, b.endpoint.ID, webhook.EndpointPaused)
					}
				}))
				if isPaused {
					require.Equal(t, attempts, l.isHeld().Attempts)
					return
				}
				d := l.ends(webhook.StateDelivered, "")
				require.Equal(t, attempts+1, d.Attempts)
				require.WithinRange(t, b.attempts(t, l.start.DeliveryID)[attempts].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
			})
		}
	}
}

// R7: commands whose signal was lost are found in the store by the next attempt, and
// are for the one after it; a retry was that attempt.
func TestCommandsFromTheRecord(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		command  webhook.Command
		state    webhook.State
		attempts int
		third    time.Duration // when the third attempt is made, after the first; the second is after 30 min
	}{
		{"cancel", webhook.CommandCancel, webhook.StateCancelled, 1, 0},
		{"retry", webhook.CommandRetry, webhook.StateDelivered, 3, 40 * time.Minute},
		{"reschedule", webhook.CommandReschedule, webhook.StateDelivered, 3, 50 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := retryLater(t)
			l.b.receiver.Script("/hook", waitFor(10*time.Minute))
			at := in(50 * time.Minute)
			asked := after(time.Minute, func(environment) { l.stored(webhook.PendingCommand{Command: test.command, At: at}) })
			l.run(asked, after(31*time.Minute, func(environment) {
				require.Zero(t, l.b.pending(t, l.start), "it is answered with the attempt that finds it")
			}))
			require.Equal(t, test.attempts, l.b.delivery(t, l.start.DeliveryID).Attempts)
			require.Equal(t, test.state, l.b.delivery(t, l.start.DeliveryID).State)
			require.Equal(t, test.attempts, l.b.receiver.Count())
			if attempts := l.b.attempts(t, l.start.DeliveryID); test.third > 0 {
				require.InDelta(t, test.third.Seconds(), attempts[2].StartedAt.Sub(attempts[0].StartedAt).Seconds(), slack.Seconds())
			}
		})
	}
}
