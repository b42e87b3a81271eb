package workflows_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

var errAway = &webhook.Error{Code: webhook.CodeUnavailable, Message: "the store is away"}

// failing returns a function that fails the first n times; n < 0: always.
func failing(n int64) func() error {
	var calls atomic.Int64
	return func() error {
		if n >= 0 && calls.Add(1) > n {
			return nil
		}
		return errAway
	}
}

// refuse makes the next n claims fail; n < 0: all of them.
func (b *bundle) refuse(n int64) {
	fail := failing(n)
	refuse := func(webhook.Claim) error { return fail() }
	b.record.onBegin.Store(&refuse)
}

// An internal fault is no attempt: it is repeated after 1 s doubling to 1 min, and
// shown as the delivery's last error meanwhile.
func TestOwnFaultsAreRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.refuse(9)
	l := b.deliver(t)
	l.run(after(90*time.Second, func(environment) {
		d := b.delivery(t, l.start.DeliveryID)
		require.Equal(t, webhook.StatePending, d.State)
		require.Zero(t, d.Attempts)
		require.Contains(t, d.LastError, errAway.Error())
		require.Contains(t, l.status().LastError, errAway.Error())
		require.Contains(t, l.details(), "A fault of Everpost, not of the receiver, delays attempt 1: ")
	}))
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, d.Attempts)
	require.Empty(t, d.LastError)
	require.Equal(t, 1, b.receiver.Count())
	var seconds []int
	for _, timer := range l.timers {
		seconds = append(seconds, int(timer.Round(time.Second).Seconds()))
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 60, 60, 60}, seconds)
}

// Faults that never end are the delivery's end at its give-up time, not the receiver's fault.
func TestOwnFaultsUntilTheGiveUpTime(t *testing.T) {
	t.Parallel()
	b := setup(t, "fast") // an hour
	b.refuse(-1)
	l := b.deliver(t)
	l.run()
	in := l.deadLettered(string(retry.ReasonInternal))
	require.Zero(t, in.Attempts)
	require.Zero(t, b.receiver.Count())
	require.Contains(t, b.delivery(t, l.start.DeliveryID).LastError, errAway.Error())
	require.WithinRange(t, l.now, l.start.GiveUpAt, l.start.GiveUpAt.Add(time.Minute+slack))
	require.Empty(t, l.states)

	b.refuse(0)
	l.run(after(time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	l.run()
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
}

// R3: an outcome that could not be recorded is recorded later, and nothing is sent
// again, also when the fault itself was recorded in between.
func TestAnOutcomeThatCouldNotBeRecorded(t *testing.T) {
	t.Parallel()
	for name, faultRecorded := range map[string]bool{"the store is away for a while": false, "only this statement failed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			l := b.deliver(t)
			fail := failing(4)
			refuse := func(s webhook.Step) error {
				if s.Attempt == nil && faultRecorded {
					return nil
				}
				return fail()
			}
			b.record.onRecord.Store(&refuse)
			l.run()
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, 1, b.receiver.Count())
			require.Len(t, b.attempts(t, l.start.DeliveryID), 1)
		})
	}
}

// R5: a person can end a delivery that internal faults hold up.
func TestCancelledDuringOwnFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.refuse(-1)
	l := b.deliver(t)
	l.run(after(time.Hour, signal(workflows.SignalCancel, nil)))
	d := l.ends(webhook.StateCancelled, webhook.ReasonCancelled)
	require.Zero(t, d.Attempts)
}

func TestContinueAsNewDuringOwnFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.refuse(-1)
	l := b.deliver(t)
	l.run(after(time.Hour, func(env environment) { env.SetContinueAsNewSuggested(true) }))
	in := l.member()
	require.Greater(t, in.Faults, 10)
	require.Contains(t, in.LastError, errAway.Error())
	b.refuse(1)
	l.run()
	require.Equal(t, []time.Duration{time.Minute}, l.timers, "not from 1 s again")
	l.ends(webhook.StateDelivered, "")
}

// R4: the outcome of a request that takes longer than a workflow task may is looked for until it is there: one request, one attempt.
func TestSlowAttemptIsLookedFor(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]receivertest.Step{"delivered": {}, "retried": {Status: 500}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Script("/hook", step)
			b.receiver.Hold()
			l := b.begin(t, b.accept(t, time.Time{}), 10*time.Millisecond)
			l.run(after(time.Second, func(environment) {
				require.NoError(t, b.receiver.WaitHeld(t.Context(), 1))
				// The claim is stored by now.
				var owned bool
				require.NoError(t, b.store.Pool().QueryRow(t.Context(),
					`select owner_until > now() from deliveries where id = $1`, l.start.DeliveryID).Scan(&owned))
				require.True(t, owned)
				b.receiver.Release()
				l.attempted(1)
			}))
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, b.receiver.Count(), d.Attempts)
			require.Len(t, b.attempts(t, l.start.DeliveryID), d.Attempts)
			require.GreaterOrEqual(t, l.timers[0], 3*time.Second)
		})
	}
}

// foreignClaim lets another process have the right to send.
func (b *bundle) foreignClaim(t *testing.T, start webhook.Start, progress webhook.Progress) {
	t.Helper()
	begun, err := b.store.Deliveries.Claim(t.Context(), webhook.Claim{
		Ref: start.Ref, Progress: progress, WorkflowID: start.WorkflowID(), Claimant: "another process", For: 35 * time.Second,
	})
	require.NoError(t, err)
	require.True(t, begun.Granted)
}

// R2, R4: while another process has a claim, nothing is sent. Its outcome is looked for, and when the claim ends the attempt is made here.
func TestBusyElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("which tells its outcome", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		l := b.deliver(t)
		progress := webhook.Progress{Run: 1, GiveUpAt: l.start.GiveUpAt}
		b.foreignClaim(t, l.start, progress)
		l.run(after(10*time.Second, func(environment) {
			step := webhook.Step{Ref: l.start.Ref, Progress: progress, WorkflowID: l.start.WorkflowID()}
			step.Seq, step.State, step.Attempts, step.RunAttempts = 1, webhook.StateDelivered, 1, 1
			_, err := b.store.Deliveries.RecordStep(t.Context(), step)
			require.NoError(t, err)
		}))
		require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		require.Zero(t, b.receiver.Count())
		require.Len(t, l.timers, 3, "after 4, 8 and 16 s")
	})
	t.Run("that has died", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		l := b.deliver(t)
		b.foreignClaim(t, l.start, webhook.Progress{Run: 1, GiveUpAt: l.start.GiveUpAt})
		l.run(after(10*time.Second, func(environment) {
			require.Zero(t, b.receiver.Count())
			b.exec(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1`, l.start.DeliveryID)
		}))
		require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		require.Equal(t, 1, b.receiver.Count())
	})
	// The store's clock is behind: the claim has ended by the workflow's clock and not by the store's. The attempt is repeated after
	// a pause.
	t.Run("by a clock that is behind", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "default")
		l := b.deliver(t)
		l.now = l.now.Add(time.Hour)
		b.foreignClaim(t, l.start, webhook.Progress{Run: 1, GiveUpAt: l.start.GiveUpAt})
		l.run(after(30*time.Second, func(environment) {
			b.exec(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1`, l.start.DeliveryID)
		}))
		l.ends(webhook.StateDelivered, "")
		require.LessOrEqual(t, len(l.timers), 31)
		for _, timer := range l.timers {
			require.GreaterOrEqual(t, timer, time.Second-50*time.Millisecond)
		}
	})
}

// R3: the store can know more than the workflow: an outcome whose activity was lost.
func TestTheRecordIsFurtherThanTheWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.deliver(t)
	step := webhook.Step{Ref: l.start.Ref, WorkflowID: l.start.WorkflowID()}
	step.Progress = webhook.Progress{
		Run: 1, Seq: 1, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1, DueAt: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond),
		GiveUpAt: l.start.GiveUpAt,
	}
	_, err := b.store.Deliveries.RecordStep(t.Context(), step)
	require.NoError(t, err)
	l.run(after(time.Minute, func(environment) { require.Zero(t, b.receiver.Count()) }))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Equal(t, "2", b.receiver.Requests()[0].Header.Get("everpost-attempt"))
}
