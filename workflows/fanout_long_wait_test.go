package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// far is a policy whose retries are not near.
func far() retry.Policy {
	policy, _ := retry.Lookup("default")
	policy.Strategy, policy.Base, policy.Cap, policy.Jitter = retry.StrategyFixed, 6*time.Hour, 6*time.Hour, retry.JitterNone
	return policy
}

// R8: where many wait for long, they stay together: each is tried again at its time, by
// the workflow that the store names.
func TestFanoutKeepsThoseWhoWaitForLong(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 6)
	for i, start := range starts {
		steps := make([]receivertest.Step, i)
		for n := range steps {
			steps[n] = busyStep
		}
		b.receiver.Script(start.EventID.String(), steps...)
	}
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, func(environment) {
		for i, start := range starts[1:] {
			d := b.delivery(t, start.DeliveryID)
			require.Equal(t, webhook.StateRetrying, d.State, "of number %d", i+1)
			require.Equal(t, l.id, d.WorkflowID)
		}
	}))
	require.Empty(t, l.next)
	require.Zero(t, l.handed.count())
	require.Len(t, l.timers, 5, "one for each round")
	for i, start := range starts {
		l.stayed(start, webhook.StateDelivered, i+1)
		for n, a := range b.attempts(t, start.DeliveryID)[:i] {
			require.Equal(t, 6*time.Hour, a.Delay, "after attempt %d", n+1)
		}
	}
}

// A member that waits for a long time gets commands like any other, and is given up at its time.
func TestFanoutLongWaits(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 2)
	b.receiver.Default(busyStep)
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, signal(workflows.SignalCancel, workflows.CommandSignal{Reason: "asked", DeliveryID: starts[1].DeliveryID})))
	cancelled := l.handedOver(starts[1])
	require.Equal(t, 1, cancelled.Attempts)
	require.Equal(t, webhook.CommandCancel, cancelled.Command.Command)
	given := l.handedOver(starts[0])
	require.Equal(t, webhook.StateDeadLettered, given.State, "after 72 h")
	require.Equal(t, webhook.StateDeadLettered, b.delivery(t, starts[0].DeliveryID).State)
}

// A long history is continued as a short one, with all deliveries in the state that they had.
func TestFanoutContinuesAsNew(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 3)
	for _, start := range starts[1:] {
		b.receiver.Script(start.EventID.String(), busyStep, busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, func(env environment) { env.SetCurrentHistoryLength(501) }))
	require.Equal(t, "FanoutWorkflow", l.next)
	in, ok := l.input.(workflows.FanoutInput)
	require.True(t, ok)
	require.Empty(t, in.Deliveries)
	require.Len(t, in.Members, 2, "delivered members are not")
	for i, m := range in.Members {
		require.Equal(t, starts[i+1].Ref, m.Ref)
		require.Equal(t, b.delivery(t, m.DeliveryID).Progress, m.Progress)
		require.Equal(t, 2, m.Attempts)
		require.Equal(t, "503", m.LastOutcome.String())
	}
	l.run()
	require.Empty(t, l.next)
	for _, start := range starts[1:] {
		l.stayed(start, webhook.StateDelivered, 3)
	}
}

// It continues as new although a member could not be handed over yet. The member takes its command along.
func TestFanoutContinuesAsNewWithLeavingMembers(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 2)
	b.receiver.Script(starts[0].EventID.String(), busyStep)
	b.receiver.Script(starts[1].EventID.String(), busyStep)
	l := b.share(t, time.Hour, starts...)
	l.handed.failing(func(activities.DeliveryState) error { return activities.ErrTooManyHandOvers })
	l.run(after(time.Hour, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{Reason: "by hand", DeliveryID: starts[1].DeliveryID})
		env.SetCurrentHistoryLength(501)
	}))
	require.Equal(t, "FanoutWorkflow", l.next)
	in, ok := l.input.(workflows.FanoutInput)
	require.True(t, ok)
	require.True(t, in.Members[1].Leaving)
	require.False(t, in.Members[0].Leaving)
	l.handed.failing(nil)
	l.run()
	h := l.handedOver(starts[1])
	require.Equal(t, webhook.CommandCancel, h.Command.Command)
	require.Equal(t, "by hand", h.Command.Reason)
	l.stayed(starts[0], webhook.StateDelivered, 2)
}

// Those whose endpoint is deleted end where they are: it may be very many at once.
func TestFanoutEndsWhoseEndpointIsDeleted(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 3)
	b.receiver.Default(busyStep)
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, func(env environment) {
		require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID))
		for _, start := range starts {
			env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{
				CommandID: 1, Reason: webhook.ReasonEndpointDeleted, DeliveryID: start.DeliveryID,
			})
		}
	}))
	require.Empty(t, l.next)
	require.Zero(t, l.handed.count())
	for _, start := range starts {
		l.stayed(start, webhook.StateCancelled, 1)
		require.Equal(t, webhook.ReasonEndpointDeleted, b.delivery(t, start.DeliveryID).Reason)
	}
}
