package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

type environment = *testsuite.TestWorkflowEnvironment

// asked stores a command as the API does, and signals it.
func (l *life) asked(c webhook.Command, signalName, reason string) func(environment) {
	return func(env environment) {
		pending := l.b.command(l.t, l.start.DeliveryID, c, reason)
		env.SignalWorkflow(signalName, workflows.CommandSignal{CommandID: pending.ID, Reason: reason})
	}
}

// R5: every way to ask for an end while the delivery waits for its next attempt.
func TestCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		ask          func(*life) func(environment)
	}{
		{"by the API", "duplicate order", func(l *life) func(environment) {
			return l.asked(webhook.CommandCancel, workflows.SignalCancel, "duplicate order")
		}},
		{"by hand", "by hand", func(*life) func(environment) {
			return signal(workflows.SignalCancel, workflows.CommandSignal{Reason: "by hand"})
		}},
		{"by hand without an input", webhook.ReasonCancelled, func(*life) func(environment) { return signal(workflows.SignalCancel, nil) }},
		{"by hand with a text", "enough of it", func(*life) func(environment) { return signal(workflows.SignalCancel, "enough of it") }},
		{"by hand with a number", webhook.ReasonCancelled, func(*life) func(environment) { return signal(workflows.SignalCancel, 17) }},
		{"by hand with what PostgreSQL refuses", "ab", func(*life) func(environment) { return signal(workflows.SignalCancel, "a\x00b") }},
		{"by cancelling the workflow", "the workflow was cancelled", func(*life) func(environment) { return environment.CancelWorkflow }},
		{"twice", "first", func(l *life) func(environment) {
			return func(env environment) {
				l.asked(webhook.CommandCancel, workflows.SignalCancel, "first")(env)
				env.CancelWorkflow()
			}
		}},
		{"twice by the API", "first", func(l *life) func(environment) {
			return func(env environment) {
				l.asked(webhook.CommandCancel, workflows.SignalCancel, "first")(env)
				l.asked(webhook.CommandCancel, workflows.SignalCancel, "second")(env)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Default(receivertest.Step{Status: 500})
			l := b.deliver(t)
			l.run(after(time.Second, test.ask(l)))
			d := l.ends(webhook.StateCancelled, test.reason)
			require.Equal(t, 1, d.Attempts)
			require.True(t, d.DueAt.IsZero())
			require.Equal(t, []string{"retrying", "cancelled"}, l.states)
			require.Contains(t, l.details(), "**cancelled**")
			require.Equal(t, d.Progress, l.status().Progress)
		})
	}
}

// held runs with a receiver that answers with the step only after something was
// done while the request was under way.
func held(t *testing.T, step receivertest.Step, fastWait time.Duration, during func(l *life, env environment)) *life {
	t.Helper()
	b := setup(t, "default")
	b.receiver.Default(step)
	b.receiver.Hold()
	l := b.begin(t, b.accept(t, time.Time{}), fastWait)
	done := make(chan error, 1)
	go func() {
		err := b.receiver.WaitHeld(t.Context(), 1)
		if err == nil {
			during(l, l.env.Load())
			b.receiver.Release()
		}
		done <- err
	}()
	l.run()
	require.NoError(t, <-done)
	return l
}

// R5: a cancel never aborts a request that is under way: its outcome decides.
func TestCancelledDuringAnAttempt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		step   receivertest.Step
		state  webhook.State
		reason string
	}{
		{"delivered wins", receivertest.Step{Status: 200}, webhook.StateDelivered, ""},
		{"before the next attempt", receivertest.Step{Status: 500}, webhook.StateCancelled, "enough"},
		{"dead letter", receivertest.Step{Status: 400}, webhook.StateDeadLettered, "http_400"},
	} {
		for _, way := range []struct {
			name     string
			fastWait time.Duration
			ask      func(l *life, env environment)
		}{
			{"signal", time.Hour, func(_ *life, env environment) { env.SignalWorkflow(workflows.SignalCancel, "enough") }},
			{"signal, while it is slow", 10 * time.Millisecond, func(_ *life, env environment) { env.SignalWorkflow(workflows.SignalCancel, "enough") }},
			{"workflow, while it is slow", 10 * time.Millisecond, func(_ *life, env environment) { env.CancelWorkflow() }},
			// The signal does not arrive: the store has the command.
			{"stored only", time.Hour, func(l *life, _ environment) { l.b.command(l.t, l.start.DeliveryID, webhook.CommandCancel, "enough") }},
		} {
			t.Run(test.name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				l := held(t, test.step, way.fastWait, way.ask)
				reason := test.reason
				if reason == "enough" && way.name == "workflow, while it is slow" {
					reason = "the workflow was cancelled"
				}
				if test.state == webhook.StateDeadLettered {
					// A continued run does not inherit the request, so it is handed on: it ends the dead letter.
					require.Equal(t, way.name == "workflow, while it is slow", l.deadLettered(reason).Discard != nil)
				} else {
					l.ends(test.state, reason)
				}
				require.Equal(t, 1, l.b.receiver.Count())
				require.Len(t, l.b.attempts(t, l.start.DeliveryID), 1, "the attempt that was under way is recorded")
			})
		}
	}
}

// R7: a cancel that came before the first attempt is found in the store, although
// its signal came before the workflow was started and is lost.
func TestCancelledBeforeTheFirstAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.deliver(t)
	b.command(t, l.start.DeliveryID, webhook.CommandCancel, "too early to know")
	l.run()
	l.ends(webhook.StateCancelled, "too early to know")
	require.Zero(t, b.receiver.Count())
}

func TestRetryNow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ask  func(*life) func(environment)
	}{
		{"by the API", func(l *life) func(environment) { return l.asked(webhook.CommandRetry, workflows.SignalRetryNow, "") }},
		{"by hand", func(*life) func(environment) { return signal(workflows.SignalRetryNow, nil) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			l := b.deliver(t)
			b.receiver.Script("/hook", receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "36000"}})
			l.run(after(time.Minute, test.ask(l)))
			l.ends(webhook.StateDelivered, "")
			attempts := b.attempts(t, l.start.DeliveryID)
			require.Len(t, attempts, 2)
			require.InDelta(t, 60, attempts[1].StartedAt.Sub(attempts[0].StartedAt).Seconds(), slack.Seconds())
		})
	}
}

// R7: the relay repeats a command's signal, and a single attempt is made at once.
func TestRetryCommandIsHandledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Default(receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "36000"}})
	l := b.deliver(t)
	l.run(
		after(time.Minute, func(env environment) {
			c := b.command(t, l.start.DeliveryID, webhook.CommandRetry, "")
			for range 3 { // the relay repeats it
				env.SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{CommandID: c.ID})
			}
		}),
		after(time.Hour, func(env environment) {
			require.Equal(t, 2, b.receiver.Count())
			env.CancelWorkflow()
		}),
	)
	l.ends(webhook.StateCancelled, "the workflow was cancelled")
}

// R7: an attempt that finds a retry when it is recorded has handled it. The store gets that at once, or the relay would repeat the
// signal until the next attempt, which keeps its time.
func TestRetryCommandDuringAnAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ signalled, away bool }{
		"stored only":                 {},
		"signalled":                   {signalled: true},
		"the store is away meanwhile": {away: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Script("/hook", receivertest.Step{Status: 500},
				receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "36000"}})
			l := b.begin(t, b.accept(t, time.Time{}), 10*time.Millisecond)
			done := make(chan bool, 1)
			during := func() {
				defer b.receiver.Release()
				if b.receiver.WaitHeld(t.Context(), 1) != nil {
					done <- false
					return
				}
				c, taken := b.tryCommand(t, l.start.DeliveryID, webhook.CommandRetry, "")
				if test.signalled {
					l.env.Load().SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{CommandID: c.ID})
				}
				done <- taken
			}
			pending := func() (command int) {
				require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select command from deliveries where id = $1`, l.start.DeliveryID).Scan(&command))
				return command
			}
			l.run(
				after(time.Second, func(environment) {
					l.attempted(1)
					b.unrecordable(test.away)
					b.receiver.Hold()
					go during()
				}),
				after(time.Hour, func(env environment) {
					if test.away { // the relay signals again, once the store is back
						require.NotZero(t, pending())
						b.unrecordable(false)
						env.SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{CommandID: 1})
					}
				}),
				after(2*time.Hour, func(environment) {
					require.Zero(t, pending())
					require.Equal(t, 2, b.receiver.Count())
					require.InDelta(t, 10, time.Until(b.delivery(t, l.start.DeliveryID).DueAt).Hours(), 0.1)
				}),
			)
			require.True(t, <-done)
			l.ends(webhook.StateDelivered, "")
			attempts := b.attempts(t, l.start.DeliveryID)
			require.Len(t, attempts, 3)
			require.GreaterOrEqual(t, attempts[2].StartedAt.Sub(attempts[1].StartedAt), 10*time.Hour)
		})
	}
}

func TestRetryNowBeforeDeliverAt(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.begin(t, b.accept(t, time.Now().Add(10*time.Hour)), time.Hour)
	l.run(after(time.Hour, l.asked(webhook.CommandRetry, workflows.SignalRetryNow, "")))
	l.ends(webhook.StateDelivered, "")
	require.Less(t, time.Until(b.attempts(t, l.start.DeliveryID)[0].StartedAt), 2*time.Hour)
}

// Commands for which a delivery under way has no use change nothing.
func TestCommandsThatMakeNoSenseArePassedOver(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Script("/hook", receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, func(env environment) {
		env.SignalWorkflow(workflows.SignalReplay, nil)
		env.SignalWorkflow(workflows.SignalDiscard, nil)
	}))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
}

// R5: a long history ends in a new run with everything that was not carried out yet.
func TestContinueAsNewCarriesEverythingOver(t *testing.T) {
	t.Parallel()
	suggest := func(env environment) { env.SetContinueAsNewSuggested(true) }

	t.Run("an attempt that is due", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		b.receiver.Default(receivertest.Step{Status: 500})
		l := b.deliver(t)
		l.run(after(time.Second, suggest))
		in := l.member()
		require.Equal(t, b.delivery(t, l.start.DeliveryID).Progress, in.Progress)
		require.Equal(t, "500", in.LastOutcome.String())
		require.Equal(t, l.start.Ref, in.Ref)
		b.receiver.Default(receivertest.Step{})
		l.run()
		require.Equal(t, in.Attempts+1, l.ends(webhook.StateDelivered, "").Attempts)
	})
	t.Run("retry-now during a slow request", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		b.receiver.Script("/hook", receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "36000"}})
		b.receiver.Hold()
		l := b.begin(t, b.accept(t, time.Time{}), 10*time.Millisecond)
		l.run(after(time.Second, func(env environment) {
			suggest(env)
			env.SignalWorkflow(workflows.SignalRetryNow, nil)
		}))
		require.Equal(t, "DeliveryWorkflow", l.next)
		require.Equal(t, []webhook.PendingCommand{{Command: webhook.CommandRetry}}, l.member().Pending)
		l.run(after(0, func(environment) {
			b.receiver.Release()
			l.attempted(1)
		}))
		l.ends(webhook.StateDelivered, "")
		attempts := b.attempts(t, l.start.DeliveryID)
		require.Len(t, attempts, 2)
		require.Less(t, attempts[1].StartedAt.Sub(attempts[0].StartedAt), 10*time.Minute)
	})
	t.Run("a cancel is carried out first", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		b.receiver.Default(receivertest.Step{Status: 500})
		l := b.deliver(t)
		l.run(after(time.Second, func(env environment) {
			suggest(env)
			env.SignalWorkflow(workflows.SignalCancel, nil)
		}))
		l.ends(webhook.StateCancelled, webhook.ReasonCancelled)
	})
}

// R5: a cancel that the store refuses, because it is further than the workflow knows
// but not at its end, is written again behind what was there.
func TestACancelIsNotLostOnARecordThatIsFurther(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Default(receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, func(env environment) {
		b.exec(t, `update deliveries set seq = seq + 3 where id = $1`, l.start.DeliveryID)
		env.SignalWorkflow(workflows.SignalCancel, "enough")
	}))
	d := l.ends(webhook.StateCancelled, "enough")
	require.Equal(t, 5, d.Seq)
}

// R7: a retry is asked for after an attempt was recorded and before its workflow knows: the attempt was eager and its process has ended, or
// the workflow task was lost. The attempt that is found is not the retry.
func TestRetryAfterAnAttemptThatIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ running, obeyed bool }{
		"eager": {running: true}, "task lost": {}, "task lost, and it is signalled": {obeyed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Script("/hook", waitFor(time.Hour))
			start := b.accept(t, time.Time{})
			ended := b.beginIn(t, "a process that has ended", start, time.Hour)
			ended.prepare()
			progress := webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}
			_, err := ended.activities.Attempts.Attempts(t.Context(), []activities.AttemptInput{{Ref: start.Ref, Progress: progress}})
			require.NoError(t, err)
			require.Equal(t, webhook.StateRetrying, b.delivery(t, start.DeliveryID).State)
			b.command(t, start.DeliveryID, webhook.CommandRetry, "")

			l := b.begin(t, start, time.Hour)
			m := l.member()
			m.Running = test.running
			if test.obeyed {
				m.Synced, m.Pending = true, []webhook.PendingCommand{{ID: 1, Command: webhook.CommandRetry}}
			}
			l.run()
			require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
			attempts := b.attempts(t, start.DeliveryID)
			require.Len(t, attempts, 2)
			require.WithinDuration(t, attempts[0].StartedAt, attempts[1].StartedAt, 10*time.Second)
			require.Zero(t, b.pending(t, start))
		})
	}
}
