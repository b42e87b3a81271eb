package workflows_test

import (
	"context"
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// underWay is a delivery whose request waits for Release while its workflow continues as new: another worker may have it next.
func underWay(t *testing.T, step receivertest.Step) *life {
	t.Helper()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Script(start.EventID.String(), step)
	b.receiver.Hold()
	l := b.share(t, 100*time.Millisecond, start)
	l.run(func(env environment) { env.SetCurrentHistoryLength(1000) })
	require.False(t, l.member().CheckAt.IsZero())
	require.NoError(t, b.receiver.WaitHeld(t.Context(), 1))
	d := b.delivery(t, start.DeliveryID)
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, l.id, d.WorkflowID, "R4: others see which process sends, and which workflow goes on")
	return l
}

// inAnother is the next run of a life, in another process.
func (l *life) inAnother(t *testing.T, fastWait time.Duration) *life {
	t.Helper()
	other := l.b.beginIn(t, "another process", l.start, fastWait)
	other.next, other.input, other.id, other.now = l.next, l.input, l.id, l.now
	return other
}

// R4: a request is under way in another process. Its outcome is looked for until that has recorded it. If that process has died, the request is
// sent again under the same attempt number.
func TestARequestOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		died bool
		sent int
	}{
		"which answers":  {false, 1},
		"which has died": {true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := underWay(t, receivertest.Step{})
			b := first.b
			second := first.inAnother(t, time.Hour)
			began := second.now
			second.run(after(10*time.Second, func(environment) {
				require.Equal(t, 1, b.receiver.Count())
				if !test.died {
					b.receiver.Release()
					second.attempted(1)
					return
				}
				b.expire(t, first.start)
				go func() {
					_ = b.receiver.WaitHeld(context.Background(), 2)
					b.receiver.Release()
				}()
			}))
			d := second.ends(webhook.StateDelivered, "")
			require.Equal(t, []any{1, second.id}, []any{d.Attempts, d.WorkflowID})
			require.Equal(t, test.sent, b.receiver.Count())
			require.Less(t, second.now.Sub(began), 30*time.Second)
			for _, request := range b.receiver.Requests() {
				require.Equal(t, "1", request.Header.Get("everpost-attempt"))
			}
		})
	}
}

// R5: a cancel ends a delivery whose request another process had when it died, and nothing is sent again. While that process lives, its
// outcome decides.
func TestACancelWhileAnotherProcessSends(t *testing.T) {
	t.Parallel()
	for name, lives := range map[string]bool{"which answers": true, "which has died": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := underWay(t, receivertest.Step{})
			b := first.b
			second := first.inAnother(t, time.Hour)
			second.run(after(10*time.Second, func(env environment) {
				second.asked(webhook.CommandCancel, "cancel", "enough")(env)
			}), after(15*time.Second, func(environment) {
				if lives {
					b.receiver.Release()
					second.attempted(1)
				} else {
					b.expire(t, first.start)
				}
			}))
			require.Equal(t, 1, b.receiver.Count())
			if lives {
				second.stayed(first.start, webhook.StateDelivered, 1)
				return
			}
			d := b.delivery(t, first.start.DeliveryID)
			require.Equal(t, []any{webhook.StateCancelled, "enough", 0}, []any{d.State, d.Reason, d.Attempts})
		})
	}
}

// R4: an internal fault does not make a workflow forget that the request is under way elsewhere.
func TestARequestOfAnotherProcessAfterAFault(t *testing.T) {
	t.Parallel()
	first := underWay(t, receivertest.Step{})
	b := first.b
	second := first.inAnother(t, time.Hour)
	fail := failing(1)
	b.record.onLook.Store(&fail)
	second.run(after(20*time.Second, func(environment) {
		b.receiver.Release()
		second.attempted(1)
	}))
	second.stayed(first.start, webhook.StateDelivered, 1)
}

// keptToken is a process that still has the fresh token for a first attempt that another process is making.
type keptToken struct{}

func (keptToken) Take(webhook.Ref) (content webhook.Content, ok bool) {
	content.Payload = []byte(`{"order":17}`)
	content.SHA256 = sha256.Sum256(content.Payload)
	return content, true
}

// R2: a token is no right to send what is being sent.
func TestATokenIsNotUsedForARequestOfAnotherProcess(t *testing.T) {
	t.Parallel()
	first := underWay(t, receivertest.Step{})
	first.b.change = func(_ *life, c *activities.Config) { c.Fresh = keptToken{} }
	second := first.inAnother(t, time.Hour)
	second.run(after(10*time.Second, func(environment) {
		first.b.receiver.Release()
		second.attempted(1)
	}))
	second.stayed(first.start, webhook.StateDelivered, 1)
}

// R8: of two shared workflows that have the same delivery, as after a relay that grouped
// it again, one sends; the other lets it go.
func TestTwoWorkflowsHaveOneDelivery(t *testing.T) {
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
		two.stayed(starts[1], webhook.StateDelivered, 1)
		require.Contains(t, two.details(), "continues in the workflow "+one.id)
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
			require.Empty(t, two.next, "the store names the first one")
			require.Equal(t, 1, b.receiver.Count(), "a workflow that does not own it sends nothing")
		}))
		one.stayed(start, webhook.StateDelivered, 2)
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
				env.SignalWorkflow("replay", own.openedRun(2)) // which is nothing to it
			}))
		}))
		shared.stayed(starts[1], webhook.StateDelivered, 2)
		require.Contains(t, shared.details(), "continues in the workflow "+starts[0].WorkflowID())
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

// An own workflow that takes over without knowing of the last step of the shared one still writes its takeover.
func TestTakeOverBehindTheStoredStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Script(start.EventID.String(), busyStep)
	l := b.share(t, time.Hour, start)
	l.run(after(time.Second, environment.CancelWorkflow))
	known := b.delivery(t, start.DeliveryID).Progress
	step := webhook.Step{Ref: start.Ref, Progress: known, WorkflowID: l.id}
	step.Seq++
	_, err := b.store.Deliveries.RecordStep(t.Context(), step)
	require.NoError(t, err)
	l.id = ""
	m := l.member()
	m.Unconfirmed, m.DueAt = true, m.DueAt.Add(time.Hour)
	l.run(after(time.Second, func(environment) {
		d := b.delivery(t, start.DeliveryID)
		require.Equal(t, start.WorkflowID(), d.WorkflowID)
		require.Equal(t, 3, d.Seq, "written once more, not repeatedly")
	}))
	l.ends(webhook.StateDelivered, "")
}
