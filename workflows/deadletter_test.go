package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// deadLetter is a delivery that its receiver has refused once, permanently.
func deadLetter(t *testing.T) *life {
	t.Helper()
	b := setup(t, "default")
	b.receiver.Script("/hook", receivertest.Step{Status: 400})
	l := b.deliver(t)
	l.run()
	l.deadLettered("http_400")
	return l
}

// opened requires that the workflow has ended because another run was opened, and goes on with the workflow of that.
func (l *life) opened(run int) *workflows.Member {
	require.Empty(l.t, l.next)
	l.relay()
	require.Equal(l.t, "DeliveryWorkflow", l.next)
	in := l.member()
	d := l.b.delivery(l.t, l.start.DeliveryID)
	require.Equal(l.t, []any{run, webhook.StatePending, d.GiveUpAt}, []any{d.Run, d.State, in.GiveUpAt})
	require.Equal(l.t, webhook.StatePending, in.State)
	require.Equal(l.t, run, in.Run)
	require.Zero(l.t, in.Seq)
	require.Zero(l.t, in.RunAttempts, "a fresh budget")
	require.Empty(l.t, in.Reason)
	return in
}

func TestReplayed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ask  func(*life) func(environment)
	}{
		{"by hand", func(*life) func(environment) { return signal(workflows.SignalReplay, nil) }},
		{"by hand with a reason", func(*life) func(environment) { return signal(workflows.SignalReplay, "they have repaired it") }},
		{"by hand with what PostgreSQL refuses", func(*life) func(environment) { return signal(workflows.SignalReplay, "a\x00b") }},
		{"by the API, which has opened the run", func(l *life) func(environment) {
			return func(env environment) {
				l.b.command(l.t, l.start.DeliveryID, webhook.CommandReplay, "")
				env.SignalWorkflow(workflows.SignalReplay, l.openedRun(2))
			}
		}},
		{"twice", func(l *life) func(environment) {
			return func(env environment) {
				l.b.command(l.t, l.start.DeliveryID, webhook.CommandReplay, "")
				env.SignalWorkflow(workflows.SignalReplay, l.openedRun(2))
				env.SignalWorkflow(workflows.SignalReplay, nil)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := deadLetter(t)
			before := l.b.delivery(t, l.start.DeliveryID)
			l.run(after(10*24*time.Hour, test.ask(l)))
			in := l.opened(2)
			require.True(t, in.GiveUpAt.After(before.GiveUpAt), "a fresh give-up time")
			require.Equal(t, []string{"dead_lettered", ""}, l.states)

			l.run()
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, 2, d.Attempts, "the number goes on")
			attempts := l.b.attempts(t, l.start.DeliveryID)
			require.Equal(t, []int{1, 2}, []int{attempts[0].Run, attempts[1].Run})
			requests := l.b.receiver.Requests()
			require.Equal(t, requests[0].WebhookID(), requests[1].WebhookID())
			require.Equal(t, "2", requests[1].Header.Get("everpost-attempt"))
			require.Equal(t, "delivered", l.states[len(l.states)-1])
		})
	}
}

func TestDiscarded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		ask          func(*life) func(environment)
	}{
		{"by the API", "of no use", func(l *life) func(environment) {
			return l.asked(webhook.CommandDiscard, workflows.SignalDiscard, "of no use")
		}},
		{"by hand", webhook.ReasonDiscarded, func(*life) func(environment) { return signal(workflows.SignalDiscard, nil) }},
		{"by hand with a text", "old", func(*life) func(environment) { return signal(workflows.SignalDiscard, "old") }},
		{"by cancelling the workflow", "the workflow was cancelled", func(*life) func(environment) { return environment.CancelWorkflow }},
		{"twice", "first", func(*life) func(environment) {
			return func(env environment) {
				env.SignalWorkflow(workflows.SignalDiscard, "first")
				env.SignalWorkflow(workflows.SignalDiscard, "second")
				env.CancelWorkflow()
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := deadLetter(t)
			l.run(after(time.Hour, test.ask(l)))
			d := l.ends(webhook.StateDiscarded, test.reason)
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, []string{"dead_lettered", "discarded"}, l.states)
		})
	}
}

func TestADeadLetterIsKeptForItsRetention(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	began := l.now
	l.run(after(time.Hour, func(environment) {
		require.Equal(t, webhook.StateDeadLettered, l.statuses()[0].State)
		require.Contains(t, l.details(), "**dead_lettered**")
		require.Contains(t, l.details(), ": attempt 1 got 400 Bad Request, which is final; kept as a dead letter until ")
	}))
	l.ends(webhook.StateDiscarded, webhook.ReasonRetention)
	require.InDelta(t, keep.Seconds(), l.now.Sub(began).Seconds(), slack.Seconds())
	require.Equal(t, 1, l.b.receiver.Count())
}

// What means nothing to a dead letter does not end its wait, and does not
// prolong its retention.
func TestADeadLetterPassesOverOtherCommands(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	began := l.now
	l.run(after(time.Hour, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, nil)
		env.SignalWorkflow(workflows.SignalRetryNow, nil)
		env.SignalWorkflow(workflows.SignalReplay, l.openedRun(1)) // of the run that it has been through
		env.SignalWorkflow(workflows.SignalReplay, l.openedRun(1)) // twice
	}))
	l.ends(webhook.StateDiscarded, webhook.ReasonRetention)
	require.InDelta(t, keep.Seconds(), l.now.Sub(began).Seconds(), slack.Seconds())
}

// R6: the API opens a run in the store before the workflow gets a signal. A discard
// that is carried out then finds the store further on and does not end it.
func TestDiscardFindsAnOpenedRun(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(environment){
		"signal":   signal(workflows.SignalDiscard, nil),
		"workflow": environment.CancelWorkflow,
		"both":     func(env environment) { env.SignalWorkflow(workflows.SignalDiscard, nil); env.CancelWorkflow() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := deadLetter(t)
			l.run(after(time.Hour, func(env environment) {
				l.b.command(t, l.start.DeliveryID, webhook.CommandReplay, "")
				ask(env)
			}))
			l.opened(2)
			l.run()
			l.ends(webhook.StateDelivered, "")
		})
	}
}

// R7: replayed and cancelled again by the API before the workflow gets either signal, in
// whatever order the two signals arrive: the cancel is kept in the store.
func TestCancelOfARunThatAReplayHasOpened(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"replay", "cancel"}, {"cancel", "replay"}, {"replay"}} {
		for name, apart := range map[string]time.Duration{"together": 0, "apart": time.Minute} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := deadLetter(t)
				l.run(
					after(time.Hour, func(env environment) {
						l.b.command(t, l.start.DeliveryID, webhook.CommandReplay, "")
						c := l.b.command(t, l.start.DeliveryID, webhook.CommandCancel, "not again")
						send := func(name string) {
							if name == "replay" {
								env.SignalWorkflowSkippingWorkflowTask(workflows.SignalReplay, l.openedRun(2))
								return
							}
							env.SignalWorkflowSkippingWorkflowTask(workflows.SignalCancel, workflows.CommandSignal{CommandID: c.ID, Reason: c.Reason})
						}
						for i, name := range order {
							env.RegisterDelayedCallback(func() { send(name) }, time.Second+time.Duration(i)*apart)
						}
					}),
					after(2*time.Hour, func(env environment) { env.SignalWorkflow(workflows.SignalRetryNow, nil) }), // starts a task
				)
				l.opened(2)
				l.run()
				l.ends(webhook.StateCancelled, "not again")
				require.Equal(t, 1, l.b.receiver.Count(), "nothing was sent again")
			})
		}
	}
}

// A cancel by hand before there was a run to cancel does not end the one that a
// later replay opens.
func TestAnOldCancelDoesNotEndAReplay(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	l.run(after(time.Hour, signal(workflows.SignalCancel, nil)), after(2*time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.run()
	l.ends(webhook.StateDelivered, "")
}

// R5: a command to a dead letter can reach the delivery's workflow between the write and the continuation. The dead letter's workflow
// gets it.
func TestCommandBetweenWriteAndContinuation(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ask  func(l *life) func(environment)
		then func(l *life)
	}{
		{
			"discard",
			func(l *life) func(environment) {
				return l.asked(webhook.CommandDiscard, workflows.SignalDiscard, "of no use")
			},
			func(l *life) { l.ends(webhook.StateDiscarded, "of no use") },
		},
		{
			"discard by hand",
			func(*life) func(environment) { return signal(workflows.SignalDiscard, nil) },
			func(l *life) { l.ends(webhook.StateDiscarded, webhook.ReasonDiscarded) },
		},
		{
			"replay",
			func(l *life) func(environment) {
				return func(env environment) {
					l.b.command(l.t, l.start.DeliveryID, webhook.CommandReplay, "")
					env.SignalWorkflow(workflows.SignalReplay, l.openedRun(2))
				}
			},
			func(l *life) { l.opened(2) },
		},
		{
			"replay by hand",
			func(*life) func(environment) { return signal(workflows.SignalReplay, nil) },
			func(l *life) { l.opened(2) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Default(receivertest.Step{Status: 400})
			l := b.deliver(t)
			tell := func() { test.ask(l)(l.env.Load()) }
			b.record.recorded.Store(&tell)
			l.run()
			require.Equal(t, "DeadLetterWorkflow", l.next)
			l.run()
			test.then(l)
		})
	}
}

func TestDeadLetterContinuesAsItself(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	began := l.now
	l.run(after(time.Hour, func(env environment) {
		env.SetContinueAsNewSuggested(true)
		env.SignalWorkflow(workflows.SignalRetryNow, nil)
	}))
	in := l.deadLettered("http_400")
	require.WithinDuration(t, began.Add(keep), in.KeepUntil, slack, "the retention does not start again")
	l.run()
	l.ends(webhook.StateDiscarded, webhook.ReasonRetention)
	require.InDelta(t, keep.Seconds(), l.now.Sub(began).Seconds(), slack.Seconds())
}

// A replay of a delivery whose endpoint is gone opens nothing.
func TestReplayWithoutAnEndpoint(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	require.NoError(t, l.b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, l.b.endpoint.ID))
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)), after(2*time.Hour, signal(workflows.SignalDiscard, nil)))
	require.Equal(t, 1, l.ends(webhook.StateDiscarded, webhook.ReasonDiscarded).Run)
}

// R7: a store that is not available delays a command and does not lose it.
func TestDiscardWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	fail := failing(20)
	away := func(webhook.Step) error { return fail() }
	l.b.record.onRecord.Store(&away)
	l.run(after(time.Hour, signal(workflows.SignalDiscard, "of no use")))
	l.ends(webhook.StateDiscarded, "of no use")
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, l.timers[1:4])
	require.Equal(t, time.Minute, l.timers[len(l.timers)-1])
}

// R5: a discard that the store refuses, because it is further than the workflow knows,
// is written again behind what was there.
func TestADiscardIsNotLostOnARecordThatIsFurther(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	l.run(after(time.Second, func(env environment) {
		l.b.exec(t, `update deliveries set seq = seq + 3 where id = $1`, l.start.DeliveryID)
		env.SignalWorkflow(workflows.SignalDiscard, "enough")
	}))
	require.Equal(t, 5, l.ends(webhook.StateDiscarded, "enough").Seq)
}
