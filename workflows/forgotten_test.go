package workflows_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// heldByAnother is what the record says when a shared workflow, which knew of nothing, has held
// the delivery beside its own one.
func (l *life) heldByAnother() {
	tag, err := l.b.store.Pool().Exec(context.Background(), `
		update deliveries set seq = seq + 1, state = 2, reason = 'endpoint_paused', due_at = null, owner = null, owner_until = null
		where id = $1`, l.start.DeliveryID)
	require.NoError(l.t, err)
	require.Equal(l.t, int64(1), tag.RowsAffected())
}

// released asks a hold to end as the store does, and returns the command's id.
func (l *life) released() int64 {
	return l.stored(webhook.PendingCommand{Command: webhook.CommandRelease}).ID
}

// told signals a command of the record now and, as the relay does while nobody answers, later.
func (l *life) told(env environment, id int64) {
	for _, wait := range []time.Duration{0, 15 * time.Second, 45 * time.Second} {
		env.RegisterDelayedCallback(func() {
			if wait == 0 || l.b.pending(l.t, l.start) != 0 {
				env.SignalWorkflow(workflows.SignalRelease, workflows.Asked{CommandID: id, DeliveryID: l.start.DeliveryID})
			}
		}, wait)
	}
}

// Each of these left a delivery held until its give-up time, although its endpoint was active.
func TestAHeldDeliveryIsNotForgotten(t *testing.T) {
	t.Parallel()
	// A release finds the right to send taken, by a process that has died.
	t.Run("released while another process has the right to send", func(t *testing.T) {
		t.Parallel()
		l := paused(t)
		began := l.now
		l.run(after(time.Minute, func(env environment) {
			l.resume(env)
			d := l.b.delivery(t, l.start.DeliveryID)
			l.b.foreignClaim(t, l.start, d.Progress)
			l.told(env, l.released())
		}), after(80*time.Second, func(environment) {
			l.b.exec(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1`, l.start.DeliveryID)
		}))
		require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		require.Less(t, l.now.Sub(began), 5*time.Minute)
	})
	// A release is obeyed, and the attempt finds that a shared workflow has held the delivery once
	// more: the command is seen, and not answered.
	t.Run("released and held by another workflow before the attempt", func(t *testing.T) {
		t.Parallel()
		l := paused(t)
		began := l.now
		l.run(after(time.Minute, func(env environment) {
			l.resume(env)
			id := l.released()
			l.heldByAnother()
			l.told(env, id)
		}))
		require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		require.Less(t, l.now.Sub(began), 5*time.Minute)
	})
	// A release comes to a workflow that waits for a retry, and does not know that a shared one
	// has held the delivery.
	t.Run("released where the workflow does not know that it is held", func(t *testing.T) {
		t.Parallel()
		for name, ask := range map[string]func(*life, environment){
			"by the record": func(l *life, env environment) { l.told(env, l.released()) },
			// By the relay, which finds the delivery in the outbox and its workflow there already.
			"by the outbox": func(_ *life, env environment) { env.SignalWorkflow(workflows.SignalRelease, workflows.Asked{}) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, "exponential-1h")
				b.receiver.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "3600"}})
				l := b.deliver(t)
				began := l.now
				l.run(after(time.Minute, func(env environment) {
					l.attempted(1)
					l.heldByAnother()
					ask(l, env)
				}))
				require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
				require.Less(t, l.now.Sub(began), 5*time.Minute)
			})
		}
	})
	// A retry that a person asked for is not lost either.
	t.Run("retried and held by another workflow before the attempt", func(t *testing.T) {
		t.Parallel()
		l := paused(t)
		began := l.now
		l.run(after(time.Minute, func(env environment) {
			l.resume(env)
			id := l.stored(webhook.PendingCommand{Command: webhook.CommandRetry}).ID
			l.heldByAnother()
			env.SignalWorkflow(workflows.SignalRetryNow, workflows.Asked{CommandID: id})
			env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalRetryNow, workflows.Asked{CommandID: id}) }, 15*time.Second)
		}))
		require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
		require.Less(t, l.now.Sub(began), 5*time.Minute)
	})
}

// A release that comes after the delivery went on by itself changes nothing.
func TestAReleaseThatIsTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t, "exponential-1h")
	b.receiver.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "3600"}})
	l := b.deliver(t)
	l.run(after(time.Minute, func(env environment) {
		l.attempted(1)
		env.SignalWorkflow(workflows.SignalRelease, nil)
	}), after(30*time.Minute, func(environment) { l.attempted(1) }))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Equal(t, []string{"retrying", "delivered"}, l.states)
}

// A delivery whose workflow somebody has terminated is given up, unless something was asked of
// it: that was accepted.
func TestTerminatedAndAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked  webhook.Command
		due    time.Duration // of the next attempt, when the workflow is made anew
		state  webhook.State
		reason string
	}{
		"nothing":                      {state: webhook.StateDeadLettered, reason: webhook.ReasonTerminated},
		"a cancel":                     {asked: webhook.CommandCancel, state: webhook.StateCancelled, reason: "enough"},
		"a cancel, long before it due": {asked: webhook.CommandCancel, due: time.Hour, state: webhook.StateCancelled, reason: "enough"},
		"a retry":                      {asked: webhook.CommandRetry, state: webhook.StateDelivered},
		"a retry, long before it due":  {asked: webhook.CommandRetry, due: time.Hour, state: webhook.StateDelivered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "exponential-1h")
			l := b.deliver(t)
			progress := webhook.Progress{
				Run: 1, Seq: 1, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1,
				DueAt: l.now.Add(c.due).Truncate(time.Microsecond), GiveUpAt: l.start.GiveUpAt,
			}
			_, err := b.store.Deliveries.RecordStep(t.Context(), webhook.Step{Ref: l.start.Ref, Progress: progress, WorkflowID: l.start.WorkflowID()})
			require.NoError(t, err)
			if c.asked != webhook.CommandNone {
				b.command(t, l.start.DeliveryID, c.asked, "enough")
			}
			began := l.now
			l.input = workflows.DeliveryInput{Ref: l.start.Ref, Progress: progress, TakeOver: true, Terminated: true}
			l.run()
			if c.state == webhook.StateDeadLettered {
				l.rests(c.reason)
				return
			}
			l.ends(c.state, c.reason)
			require.Less(t, l.now.Sub(began), time.Minute, "at once")
			require.Zero(t, b.pending(t, l.start))
		})
	}
}
