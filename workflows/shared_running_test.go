package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// staying are deliveries in one workflow whose receivers are slow:
// their requests wait for Release.
func staying(t *testing.T, steps ...receivertest.Step) (*life, []webhook.Start) {
	t.Helper()
	b := setup(t, "default")
	starts := b.acceptSome(t, len(steps))
	for i, start := range starts {
		b.receiver.Script(start.EventID.String(), steps[i])
	}
	b.receiver.Hold()
	l := b.share(t, 100*time.Millisecond, starts...)
	return l, starts
}

// releasingAt lets the receiver answer before the n-th local activity of a run, and waits
// until all that is recorded.
func (l *life) releasingAt(n int64, starts []webhook.Start, local *[]string) func(environment) {
	var calls atomic.Int64
	return func(env environment) {
		env.SetOnLocalActivityStartedListener(func(info *activityInfo, _ contextOf, _ []any) {
			*local = append(*local, info.ActivityType.Name)
			if calls.Add(1) != n {
				return
			}
			l.b.receiver.Release()
			for _, start := range starts {
				require.Eventually(l.t, func() bool { return l.b.delivery(l.t, start.DeliveryID).Attempts == 1 }, 20*time.Second, time.Millisecond)
			}
		})
	}
}

// R4: a delivery whose request is under way stays. The workflow checks all such requests together until they have ended; then the delivery
// continues like any other.
func TestSlowRequestsOfSeveral(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, receivertest.Step{}, receivertest.Step{}, busyStep, wrongStep)
	var local []string
	l.run(l.releasingAt(3, starts, &local))
	require.Equal(t, []string{"Attempts", "Attempts", "Attempts"}, local[:3], "all with one question")
	// The retry comes when it is due, which it may be already; on a busy machine its request is checked once more.
	require.Subset(t, []string{"Attempts", "Keep"}, local[3:])
	require.Contains(t, local[3:], "Keep")
	require.GreaterOrEqual(t, l.timers[0], 4*time.Second)
	require.Less(t, l.timers[0], 10*time.Second)
	l.stayed(starts[0], webhook.StateDelivered, 1)
	l.stayed(starts[1], webhook.StateDelivered, 1)
	l.stayed(starts[2], webhook.StateDelivered, 2)
	require.False(t, l.kept(starts[3], "http_400", 1).Running)
	require.Equal(t, 1, l.keepers.calls)
}

// R5, R7: a command that comes during a request is carried out when its outcome is known, which decides. Nothing is sent twice.
func TestCommandDuringASlowRequest(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(30 * time.Minute).UTC().Truncate(time.Second)
	for name, test := range map[string]struct {
		step    receivertest.Step
		command webhook.PendingCommand
		state   webhook.State
		reason  string
		sent    int
	}{
		"cancel":                      {busyStep, webhook.PendingCommand{Command: webhook.CommandCancel}, webhook.StateCancelled, webhook.ReasonCancelled, 1},
		"cancel, and it is delivered": {receivertest.Step{}, webhook.PendingCommand{Command: webhook.CommandCancel}, webhook.StateDelivered, "", 1},
		"cancel, and it is given up":  {wrongStep, webhook.PendingCommand{Command: webhook.CommandCancel}, webhook.StateDeadLettered, "http_400", 1},
		"retry":                       {waitFor(time.Hour), webhook.PendingCommand{Command: webhook.CommandRetry}, webhook.StateDelivered, "", 2},
		"reschedule":                  {busyStep, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at}, webhook.StateDelivered, "", 2},
		"reschedule, delivered":       {receivertest.Step{}, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at}, webhook.StateDelivered, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, starts := staying(t, receivertest.Step{}, test.step)
			began := l.now
			l.run(after(time.Second, func(env environment) { // by hand: the store does not know of it
				env.SignalWorkflow(workflows.SignalName(test.command.Command), workflows.CommandSignal{At: test.command.At, DeliveryID: starts[1].DeliveryID})
			}), after(2*time.Second, func(environment) {
				l.b.receiver.Release()
				for _, start := range starts {
					l.attemptedOf(start, 1)
				}
			}))
			l.stayed(starts[0], webhook.StateDelivered, 1)
			if test.state == webhook.StateDeadLettered {
				l.kept(starts[1], test.reason, test.sent)
				return
			}
			require.Equal(t, test.reason, l.stayed(starts[1], test.state, test.sent).Reason)
			attempts := l.b.attempts(t, starts[1].DeliveryID)
			require.Len(t, attempts, test.sent)
			if test.command.Command == webhook.CommandReschedule && test.sent > 1 {
				require.WithinRange(t, attempts[1].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
			} else {
				require.Less(t, l.now.Sub(began), time.Minute, "a retry does not wait")
			}
		})
	}
}

// attemptedOf waits until so many attempts of a delivery are recorded.
func (l *life) attemptedOf(start webhook.Start, n int) {
	require.Eventually(l.t, func() bool { return l.b.delivery(l.t, start.DeliveryID).Attempts == n }, 20*time.Second, time.Millisecond)
}

// If the endpoint is deleted during a request, its outcome counts, and nothing is sent after it.
func TestEndpointIsDeletedDuringARequest(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, busyStep)
	l.run(after(time.Second, func(env environment) {
		require.NoError(t, l.b.store.Endpoints.DeleteEndpoint(context.Background(), webhook.Actor{Name: "test"}, tenant, starts[0].EndpointID))
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID, Reason: webhook.ReasonEndpointDeleted})
	}), after(2*time.Second, func(environment) { l.b.receiver.Release() }))
	d := l.ends(webhook.StateCancelled, webhook.ReasonEndpointDeleted)
	require.Equal(t, 1, d.Attempts)
	require.Equal(t, 1, l.b.receiver.Count())
}

// A delivery whose request is under way stays when the workflow continues as new.
func TestContinuesAsNewDuringSlowRequests(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, receivertest.Step{}, receivertest.Step{})
	l.run(func(env environment) { env.SetCurrentHistoryLength(1000) })
	require.Equal(t, "DeliveryWorkflow", l.next)
	in, ok := l.input.(workflows.DeliveryInput)
	require.True(t, ok)
	require.Len(t, in.Members, 2)
	for _, m := range in.Members {
		require.WithinDuration(t, l.now.Add(4*time.Second), m.CheckAt, 2*time.Second)
	}
	var local []string
	l.run(l.releasingAt(1, starts, &local))
	require.Equal(t, []string{"Attempts"}, local, "not before that time")
	require.GreaterOrEqual(t, l.timers[0], 2*time.Second)
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
}
