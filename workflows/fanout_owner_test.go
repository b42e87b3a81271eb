package workflows_test

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// underWay is a delivery that was handed over while its request goes on, which waits for
// Release. during has it handed over while the shared workflow makes the attempt; where it is
// nil, that workflow is cancelled.
func underWay(t *testing.T, step receivertest.Step, during func(*life)) (*life, activities.DeliveryState) {
	t.Helper()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Script(start.EventID.String(), step)
	b.receiver.Hold()
	l := b.share(t, 300*time.Millisecond, start)
	done := make(chan error, 1)
	go func() {
		done <- b.receiver.WaitHeld(context.Background(), 1)
		if during != nil {
			during(l)
		}
	}()
	if during == nil {
		l.run(after(time.Second, environment.CancelWorkflow))
	} else {
		l.run()
	}
	require.NoError(t, <-done)
	h := l.handedOver(start)
	require.True(t, h.Running)
	require.True(t, h.Unconfirmed)
	d := b.delivery(t, start.DeliveryID)
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, l.id, d.WorkflowID, "R4: others see which process sends, and which workflow goes on")
	return l, h
}

// releasing lets the receiver answer once the request is joined.
func releasing(b *bundle) func(environment) {
	return func(env environment) {
		var once sync.Once
		env.SetOnActivityStartedListener(func(*activityInfo, contextOf, encodedValues) { once.Do(b.receiver.Release) })
	}
}

// R4: a delivery to a slow receiver joins its request in its own workflow. There is one request, and its outcome decides, whatever
// command came meanwhile.
func TestHandedOverJoins(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		step   receivertest.Step
		signal string // sent while the request is under way
		state  webhook.State
		reason string
		sent   int
	}{
		{"delivered", receivertest.Step{}, "", webhook.StateDelivered, "", 1},
		{"retried", busyStep, "", webhook.StateDelivered, "", 2},
		{"permanent", wrongStep, "", webhook.StateDeadLettered, "http_400", 1},
		{"delivered, cancelled meanwhile", receivertest.Step{}, workflows.SignalCancel, webhook.StateDelivered, "", 1},
		{"failed, cancelled meanwhile", busyStep, workflows.SignalCancel, webhook.StateCancelled, webhook.ReasonCancelled, 1},
		{"permanent, cancelled meanwhile", wrongStep, workflows.SignalCancel, webhook.StateDeadLettered, "http_400", 1},
		{"failed, to be sent at once", waitFor(time.Hour), workflows.SignalRetryNow, webhook.StateDelivered, "", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, h := underWay(t, test.step, func(l *life) {
				if test.signal != "" {
					l.env.Load().SignalWorkflow(test.signal, nil)
				} else {
					l.env.Load().CancelWorkflow()
				}
			})
			began := l.now
			l.goesOn(h).run(releasing(l.b))
			if test.state == webhook.StateDeadLettered {
				l.deadLettered(test.reason)
			} else {
				l.ends(test.state, test.reason)
			}
			require.Equal(t, test.sent, l.b.receiver.Count())
			require.Len(t, l.b.attempts(t, h.DeliveryID), test.sent)
			require.Less(t, l.now.Sub(began), time.Minute, "a retry does not wait")
		})
	}
}

// A command that is signalled to the new workflow before it has joined comes after the
// request, too.
func TestHandedOverIsCancelledBeforeItJoins(t *testing.T) {
	t.Parallel()
	l, h := underWay(t, receivertest.Step{}, nil)
	l.goesOn(h).run(releasing(l.b), after(0, signal(workflows.SignalCancel, nil)), after(0, environment.CancelWorkflow))
	l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, l.b.receiver.Count())
}

// R4: a reschedule that comes during the request is for the next attempt.
func TestHandedOverIsRescheduledBeforeItJoins(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(30 * time.Minute).UTC().Truncate(time.Second)
	l, h := underWay(t, busyStep, func(l *life) {
		l.env.Load().SignalWorkflow(workflows.SignalReschedule, at.Format(time.RFC3339))
	})
	l.goesOn(h).run(releasing(l.b))
	l.ends(webhook.StateDelivered, "")
	attempts := l.b.attempts(t, h.DeliveryID)
	require.Len(t, attempts, 2)
	require.WithinRange(t, attempts[1].StartedAt, at, at.Add(slack))
}

// R4: the same in another process. It waits until the first process has recorded the outcome. If that process has died, it sends
// again under the same attempt number.
func TestHandedOverJoinsElsewhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		do   func(t *testing.T, b *bundle, start webhook.Start)
		sent int
	}{
		{"which answers", func(_ *testing.T, b *bundle, _ webhook.Start) { b.receiver.Release() }, 1},
		{"which has died", func(t *testing.T, b *bundle, start webhook.Start) {
			t.Helper()
			b.expire(t, start)
			go func() {
				_ = b.receiver.WaitHeld(context.Background(), 2)
				b.receiver.Release()
			}()
		}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			first, h := underWay(t, receivertest.Step{}, nil)
			b := first.b
			second := b.beginIn(t, "another process", first.start, time.Hour)
			second.now = first.now
			var once sync.Once
			second.goesOn(h).run(func(env environment) {
				env.SetOnActivityStartedListener(func(*activityInfo, contextOf, encodedValues) {
					once.Do(func() { test.do(t, b, first.start) })
				})
			})
			second.ends(webhook.StateDelivered, "")
			require.Equal(t, test.sent, b.receiver.Count())
			require.Len(t, b.attempts(t, h.DeliveryID), 1)
			require.Empty(t, second.timers, "it joins once and does not poll")
			for _, request := range b.receiver.Requests() {
				require.Equal(t, "1", request.Header.Get("everpost-attempt"))
			}
		})
	}
}

// R4: an internal fault does not make a workflow forget that the request is under way elsewhere.
func TestHandedOverJoinsAfterAFault(t *testing.T) {
	t.Parallel()
	first, h := underWay(t, receivertest.Step{}, nil)
	b := first.b
	second := b.beginIn(t, "another process", first.start, time.Hour)
	second.now = first.now
	var looks atomic.Int32
	failsOnce := func() error {
		if looks.Add(1) == 1 {
			return errAway
		}
		return nil
	}
	b.record.onLook.Store(&failsOnce)
	release := sync.OnceFunc(b.receiver.Release)
	second.goesOn(h).run(func(env environment) {
		env.SetOnActivityStartedListener(func(*activityInfo, contextOf, encodedValues) { release() })
	})
	second.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, b.receiver.Count())
	require.Len(t, second.timers, 1)
	require.LessOrEqual(t, second.timers[0], time.Second, "after the fault, and not until the claim ends")
}

// keptToken is a process that still has the fresh token for a first attempt that another process is making.
type keptToken struct{}

func (keptToken) Take(webhook.Ref) (content webhook.Content, ok bool) {
	content.Payload = []byte(`{"order":17}`)
	content.SHA256 = sha256.Sum256(content.Payload)
	return content, true
}

// R2: a token is no right to send what is being sent.
func TestHandedOverDoesNotUseAToken(t *testing.T) {
	t.Parallel()
	first, h := underWay(t, receivertest.Step{}, nil)
	first.b.change = func(_ *life, c *activities.Config) { c.Fresh = keptToken{} }
	second := first.b.beginIn(t, "another process", first.start, 300*time.Millisecond)
	second.now = first.now
	second.goesOn(h).run(releasing(first.b))
	second.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, first.b.receiver.Count())
}

// R8: of two shared workflows that have the same delivery, as after a relay that grouped
// it again, one sends; the other hands it over, and so does the first when it looks again.
func TestTwoFanoutsOverOneDelivery(t *testing.T) {
	t.Parallel()
	t.Run("side by side, in two processes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		starts := b.acceptSome(t, 2)
		b.receiver.Hold()
		one := b.shareIn(t, "one", time.Hour, starts[0])
		two := b.shareIn(t, "two", time.Hour, starts[0], starts[1])
		ended, refused := make(chan struct{}), make(chan struct{})
		refuse := sync.OnceFunc(func() { close(refused) })
		b.record.onRefused.Store(&refuse)
		go func() {
			defer close(ended)
			one.run()
		}()
		require.NoError(t, b.receiver.WaitHeld(t.Context(), 1))
		go func() {
			_ = b.receiver.WaitHeld(context.Background(), 2) // the other's second delivery
			<-refused                                        // its first one
			b.receiver.Release()
		}()
		two.run()
		<-ended
		one.stayed(starts[0], webhook.StateDelivered, 1)
		h := two.handedOver(starts[0])
		require.True(t, h.Unconfirmed)
		require.False(t, h.DueAt.IsZero(), "while the first one sends")
		two.stayed(starts[1], webhook.StateDelivered, 1)

		two.goesOn(h).run()
		two.ends(webhook.StateDelivered, "")
		require.Equal(t, 2, b.receiver.Count())
	})
	t.Run("while the first one waits", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		start := b.accept(t, time.Time{})
		b.receiver.Script(start.EventID.String(), busyStep)
		one := b.shareIn(t, "one", time.Hour, start)
		two := b.shareIn(t, "two", time.Hour, start)
		two.id += "-again"
		one.run(after(time.Second, func(environment) {
			two.now = one.env.Load().Now()
			two.run()
			h := two.handedOver(start)
			require.True(t, h.Unconfirmed, "the store names the first one")
			require.Equal(t, 1, h.Attempts)
			two.goesOn(h).run(after(time.Second, func(env environment) {
				require.Equal(t, start.WorkflowID(), b.delivery(t, start.DeliveryID).WorkflowID)
				env.SetContinueAsNewSuggested(true) // so that the first one is due before it
			}))
		}))
		require.Equal(t, 1, b.receiver.Count(), "a workflow that does not own it sends nothing")
		one.handedOver(start) // which starts nothing: there is one already
		two.run()
		d := two.ends(webhook.StateDelivered, "")
		require.Equal(t, start.WorkflowID(), d.WorkflowID)
		require.Equal(t, 2, b.receiver.Count())
	})
}

// A workflow of its own that the relay has started in addition to the shared one takes the
// delivery from it, and never the other way: one request for each attempt's number.
func TestRelayedBesideAShared(t *testing.T) {
	t.Parallel()
	t.Run("while the shared one waits", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		starts := b.acceptSome(t, 2)
		for _, start := range starts {
			b.receiver.Script(start.EventID.String(), busyStep)
		}
		shared := b.shareIn(t, "one", time.Hour, starts...)
		own := b.beginIn(t, "two", starts[0], time.Hour)
		shared.run(after(time.Second, func(environment) {
			own.now = shared.env.Load().Now()
			own.run(after(time.Second, func(env environment) {
				require.Equal(t, starts[0].WorkflowID(), b.delivery(t, starts[0].DeliveryID).WorkflowID, "it is written to the store at once")
				env.SetContinueAsNewSuggested(true)
			}))
		}))
		shared.stayed(starts[1], webhook.StateDelivered, 2)
		h := shared.handedOver(starts[0])
		require.False(t, h.Unconfirmed)
		require.Equal(t, 1, requestsOf(b, starts[0].EventID))
		own.run()
		require.Equal(t, starts[0].WorkflowID(), own.ends(webhook.StateDelivered, "").WorkflowID)
		require.Equal(t, 2, requestsOf(b, starts[0].EventID))
	})
	t.Run("in the middle of its attempt, in the same process", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		start := b.accept(t, time.Time{})
		b.receiver.Script(start.EventID.String(), busyStep)
		b.receiver.Hold()
		shared := b.share(t, time.Hour, start)
		own := b.begin(t, start, time.Hour)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			shared.run(after(time.Hour, func(environment) {}))
		}()
		require.NoError(t, b.receiver.WaitHeld(t.Context(), 1))
		own.activities = shared.activities // one process
		asked := make(chan struct{})
		go func() {
			<-asked
			b.receiver.Release()
		}()
		own.run(func(env environment) {
			env.SetOnLocalActivityStartedListener(func(*activityInfo, contextOf, []any) {
				select {
				case <-asked:
				default:
					close(asked)
				}
			})
		})
		<-ended
		// Each skips to the second attempt by a clock of its own: either may make it.
		require.Contains(t, []string{start.WorkflowID(), shared.id}, own.ends(webhook.StateDelivered, "").WorkflowID)
		require.Equal(t, 2, b.receiver.Count())
		require.Len(t, b.attempts(t, start.DeliveryID), 2)
	})
}

// A workflow that takes over without knowing of the last attempt of the shared workflow still writes its takeover.
func TestTakeOverBehindTheStoredStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Script(start.EventID.String(), busyStep, busyStep)
	l := b.share(t, time.Hour, start)
	l.run(after(time.Second, environment.CancelWorkflow))
	h := l.handedOver(start)
	step := webhook.Step{Ref: h.Ref, Progress: h.Progress, WorkflowID: l.id}
	step.Seq++
	_, err := b.store.Deliveries.RecordStep(t.Context(), step)
	require.NoError(t, err)
	l.goesOn(h).run(after(time.Second, func(environment) {
		d := b.delivery(t, start.DeliveryID)
		require.Equal(t, start.WorkflowID(), d.WorkflowID)
		require.Equal(t, 3, d.Seq, "written once more, not repeatedly")
	}))
	l.ends(webhook.StateDelivered, "")
}
