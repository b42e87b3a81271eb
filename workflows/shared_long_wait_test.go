package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
func TestSeveralWaitForLong(t *testing.T) {
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
	require.Zero(t, l.keepers.count())
	require.Len(t, l.timers, 5, "one for each round")
	for i, start := range starts {
		l.stayed(start, webhook.StateDelivered, i+1)
		for n, a := range b.attempts(t, start.DeliveryID)[:i] {
			require.Equal(t, 6*time.Hour, a.Delay, "after attempt %d", n+1)
		}
	}
}

// A member that waits for a long time gets commands like any other, and is given up at its time.
func TestLongWaits(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 2)
	b.receiver.Default(busyStep)
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, signal(workflows.SignalCancel, workflows.CommandSignal{Reason: "asked", DeliveryID: starts[1].DeliveryID})))
	require.Equal(t, "asked", l.stayed(starts[1], webhook.StateCancelled, 1).Reason)
	d := b.delivery(t, starts[0].DeliveryID)
	require.Equal(t, webhook.StateDeadLettered, d.State, "after 72 h")
	l.kept(starts[0], d.Reason, d.Attempts)
}

// A long history is continued as a short one, with all deliveries in the state that they had.
func TestSeveralContinueAsNew(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, far())
	starts := b.acceptSome(t, 3)
	for _, start := range starts[1:] {
		b.receiver.Script(start.EventID.String(), busyStep, busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	l.run(after(time.Hour, func(env environment) { env.SetCurrentHistoryLength(501) }))
	require.Equal(t, "DeliveryWorkflow", l.next)
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(t, ok)
	require.Equal(t, 1, in.Before)
	require.Len(t, in.Members, 2, "delivered members are not")
	for i, m := range in.Members {
		require.Equal(t, starts[i+1].Ref, m.Ref)
		require.Equal(t, b.delivery(t, m.DeliveryID).Progress, m.Progress)
		require.Equal(t, 1, m.Attempts)
		require.Equal(t, "503", m.LastOutcome.String())
	}
	l.run()
	require.Empty(t, l.next)
	for _, start := range starts[1:] {
		l.stayed(start, webhook.StateDelivered, 3)
	}
}

// Those whose endpoint is deleted end where they are: it may be very many at once.
func TestSeveralWhoseEndpointIsDeleted(t *testing.T) {
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
	require.Zero(t, l.keepers.count())
	for _, start := range starts {
		l.stayed(start, webhook.StateCancelled, 1)
		require.Equal(t, webhook.ReasonEndpointDeleted, b.delivery(t, start.DeliveryID).Reason)
	}
}
