package workflows_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// heldByAnother is what the store says when a shared workflow, which knew of nothing, has held
// the delivery in addition to its own one.
func (l *life) heldByAnother() {
	l.b.exec(l.t, `update deliveries set seq = seq + 1, state = 2, reason = 'endpoint_paused', due_at = null, workflow_id = '', owner = null,
		owner_until = null where id = $1`, l.start.DeliveryID)
	l.b.exec(l.t, `insert into releases (endpoint_id, tenant_id) select endpoint_id, tenant_id from deliveries where id = $1
		on conflict (endpoint_id) do update set state = 0, next_at = now()`, l.start.DeliveryID)
}

// dueWhilePaused is a delivery whose endpoint is paused after its first attempt has failed. The
// retry is due in half an hour.
func dueWhilePaused(t *testing.T) *life {
	t.Helper()
	l := retryLater(t)
	l.b.setState(t, l.start.EndpointID, webhook.EndpointActive)
	return l
}

// R7: a command that arrives while the hold is being recorded is carried out by the workflow that
// records it: the step returns it, or its signal comes before the workflow has ended.
func TestACommandArrivesWhileTheHoldIsRecorded(t *testing.T) {
	t.Parallel()
	type asking struct {
		command webhook.Command
		signal  string
	}
	for name, c := range map[string]asking{
		"cancel":     {webhook.CommandCancel, workflows.SignalCancel},
		"retry":      {webhook.CommandRetry, workflows.SignalRetryNow},
		"reschedule": {webhook.CommandReschedule, workflows.SignalReschedule},
	} {
		for _, when := range []string{"before it is written", "before its writer knows"} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				l := dueWhilePaused(t)
				at := in(50 * time.Minute)
				ask := func() { // the endpoint is active again by then
					l.resume(nil)
					pending := l.stored(webhook.PendingCommand{Command: c.command, At: at, Reason: "asked"})
					if when != "before it is written" {
						l.env.Load().SignalWorkflow(c.signal, workflows.CommandSignal{CommandID: pending.ID, Reason: "asked", At: at})
					}
				}
				var once sync.Once
				onRecord := func(step webhook.Step) error {
					if step.State == webhook.StateHeld {
						once.Do(func() {
							if when == "before it is written" {
								ask()
							} else {
								l.b.record.recorded.Store(&ask)
							}
						})
					}
					return nil
				}
				l.b.record.onRecord.Store(&onRecord)
				l.run(after(time.Minute, func(environment) { l.b.setState(t, l.start.EndpointID, webhook.EndpointPaused) }))
				if c.command == webhook.CommandCancel {
					l.ends(webhook.StateCancelled, "asked")
				} else {
					require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
				}
				if c.command == webhook.CommandReschedule {
					require.WithinDuration(t, at, l.b.attempts(t, l.start.DeliveryID)[1].StartedAt, slack)
				}
				require.Zero(t, l.b.pending(t, l.start))
			})
		}
	}
}

// R1, R6: a worker dies between the hold and the end of its workflow. The task is repeated in
// another process, and ends without a step: the hold is known. A release that was refused
// meanwhile, because the workflow still ran, keeps its outbox row, and is started by that.
func TestAWorkerDiesBetweenTheHoldAndTheEnd(t *testing.T) {
	t.Parallel()
	for _, isReleased := range []bool{false, true} {
		l := paused(t)
		task := l.input
		l.run()
		before := l.isHeld()
		if isReleased {
			l.resume(nil)
			l.released()
		}
		again := l.b.beginIn(t, "another process", l.start, time.Hour)
		again.input = task
		again.run()
		require.Equal(t, before.Progress, again.isHeld().Progress)
		require.Zero(t, l.b.receiver.Count())
		if !isReleased {
			continue
		}
		require.Equal(t, 1, l.b.outboxRows(t))
		again.tryNow().run()
		require.Equal(t, 1, again.ends(webhook.StateDelivered, "").Attempts)
		require.Zero(t, l.b.outboxRows(t))
	}
}

// R6: two workflows try a delivery that was released twice. Whichever claims it sends it, and the
// other finds that.
func TestTwoReleasesAtOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		for _, when := range []string{"before the claim", "before the step", "after the step"} {
			t.Run(fmt.Sprintf("%d, %s", status, when), func(t *testing.T) {
				t.Parallel()
				l := heldDelivery(t)
				l.b.receiver.Script("/hook", receivertest.Step{Status: status})
				l.resume(nil)
				other := l.b.shareIn(t, "another process", time.Hour, l.released())
				var tried atomic.Bool
				tries := func() {
					if tried.CompareAndSwap(false, true) { // the other one comes here too
						other.run()
					}
				}
				switch when {
				case "before the claim":
					onBegin := func(webhook.Claim) error { tries(); return nil }
					l.b.record.onBegin.Store(&onBegin)
				case "before the step":
					onRecord := func(webhook.Step) error { tries(); return nil }
					l.b.record.onRecord.Store(&onRecord)
				default:
					l.b.record.recorded.Store(&tries)
				}
				l.tryNow().run()
				require.Empty(t, other.next)
				d := l.ends(webhook.StateDelivered, "")
				require.Len(t, l.b.attempts(t, l.start.DeliveryID), d.Attempts)
				require.Equal(t, d.Attempts, l.b.receiver.Count())
				require.Zero(t, l.b.outboxRows(t))
			})
		}
	}
}

// R6: the hold of a workflow that knows less than the store changes nothing.
func TestAStaleHoldAfterANewerAttempt(t *testing.T) {
	t.Parallel()
	l := heldDelivery(t)
	l.b.receiver.Script("/hook", waitFor(30*time.Minute))
	l.resume(nil)
	start := l.released()
	l.tryNow().run(after(time.Minute, func(environment) {
		l.attempted(1)
		l.b.setState(t, l.start.EndpointID, webhook.EndpointPaused)
		stale := l.b.shareIn(t, "another process", time.Hour, start)
		stale.run()
		d := l.b.delivery(t, l.start.DeliveryID)
		require.Equal(t, webhook.StateRetrying, d.State)
		require.Equal(t, l.start.WorkflowID(), d.WorkflowID)
		l.resume(nil)
	}))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
}

// R6: a stale workflow's hold comes between an attempt and the write of it. The attempt counts, and the
// delivery is not held.
func TestAStaleHoldDuringAnAttempt(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		l := heldDelivery(t)
		l.b.receiver.Script("/hook", receivertest.Step{Status: status})
		l.resume(nil)
		l.released()
		var once sync.Once
		onRecord := func(step webhook.Step) error {
			once.Do(l.heldByAnother)
			return nil
		}
		l.b.record.onRecord.Store(&onRecord)
		l.tryNow().run()
		d := l.ends(webhook.StateDelivered, "")
		require.Equal(t, l.b.receiver.Count(), d.Attempts)
	}
}

// A workflow that waits for a retry, and does not know that another one has held the delivery, ends
// when it is due, and leaves the delivery to its release.
func TestAWorkflowThatDoesNotKnowOfAHoldEnds(t *testing.T) {
	t.Parallel()
	l := retryLater(t)
	l.run(after(time.Minute, func(environment) {
		l.attempted(1)
		l.heldByAnother()
	}))
	l.isHeld()
	require.Equal(t, 1, l.b.receiver.Count())
	l.released()
	l.tryNow().run()
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
}

// A release finds the right to send taken by a process that has died: the workflow waits until
// that right ends.
func TestAReleaseFindsTheRightToSendTaken(t *testing.T) {
	t.Parallel()
	l := heldDelivery(t)
	l.resume(nil)
	start := l.released()
	l.b.foreignClaim(t, l.start, *start.Resume)
	l.tryNow().run(after(20*time.Second, func(environment) { l.b.expire(t, l.start) }))
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
	require.Len(t, l.timers, 4, "the claim is looked at after 4, 8, 16 and 32 s")
}
