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

// R4: a member whose request is under way stays. The workflow checks all such requests together until they have ended; then the member
// continues like any other.
func TestFanoutChecksRunningRequests(t *testing.T) {
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
	h := l.handedOver(starts[3])
	require.Equal(t, webhook.StateDeadLettered, h.State)
	require.False(t, h.Running)
	require.False(t, h.Unconfirmed, "the store knows already")
	require.Equal(t, 1, requestsOf(l.b, starts[3].EventID))
	require.Equal(t, 1, l.handed.calls)
}

// R7: a member that leaves during its request takes it along: its own workflow waits for the request, and nothing is sent twice.
func TestMemberLeavesDuringItsRequest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		ask     func(of webhook.Start) func(environment)
		step    receivertest.Step
		command webhook.Command
		all     bool
		state   webhook.State
		sent    int
	}{
		{"cancel", func(of webhook.Start) func(environment) {
			return signal(workflows.SignalCancel, workflows.CommandSignal{CommandID: 1, DeliveryID: of.DeliveryID})
		}, busyStep, webhook.CommandCancel, false, webhook.StateCancelled, 1},
		{"cancel, and it is delivered", func(of webhook.Start) func(environment) {
			return signal(workflows.SignalCancel, workflows.CommandSignal{CommandID: 1, DeliveryID: of.DeliveryID})
		}, receivertest.Step{}, webhook.CommandCancel, false, webhook.StateDelivered, 1},
		{"retry", func(of webhook.Start) func(environment) {
			return signal(workflows.SignalRetryNow, workflows.CommandSignal{CommandID: 1, DeliveryID: of.DeliveryID})
		}, waitFor(time.Hour), webhook.CommandRetry, false, webhook.StateDelivered, 2},
		{"cancelling the workflow", func(webhook.Start) func(environment) { return environment.CancelWorkflow },
			busyStep, webhook.CommandNone, true, webhook.StateDelivered, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, starts := staying(t, receivertest.Step{}, test.step)
			l.run(after(time.Second, test.ask(starts[1])), after(2*time.Second, func(environment) {
				if !test.all {
					l.b.receiver.Release()
					require.Eventually(t, func() bool {
						return l.b.delivery(t, starts[0].DeliveryID).State == webhook.StateDelivered
					}, 20*time.Second, time.Millisecond)
				}
			}))
			if !test.all {
				l.stayed(starts[0], webhook.StateDelivered, 1)
				require.Equal(t, 1, l.handed.calls)
			} else {
				require.True(t, l.handedOver(starts[0]).Running)
			}
			h := l.handedOver(starts[1])
			require.True(t, h.Running)
			require.True(t, h.Unconfirmed)
			require.Equal(t, test.command, h.Command.Command)
			require.Zero(t, h.Attempts)
			l.goesOn(h).run(releasing(l.b))
			l.ends(test.state, map[bool]string{true: webhook.ReasonCancelled}[test.state == webhook.StateCancelled])
			require.Equal(t, test.sent, requestsOf(l.b, starts[1].EventID))
			if test.step.Status != 0 { // else the shared one has recorded its end
				require.Equal(t, starts[1].WorkflowID(), l.b.delivery(t, starts[1].DeliveryID).WorkflowID)
			}
		})
	}
}

// If the endpoint is deleted during a request, the member is checked at once and stays. The outcome of the request counts, and nothing
// is sent after it.
func TestEndpointIsDeletedDuringARequest(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, busyStep)
	l.run(after(time.Second, func(env environment) {
		require.NoError(t, l.b.store.Endpoints.DeleteEndpoint(context.Background(), webhook.Actor{Name: "test"}, tenant, starts[0].EndpointID))
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID, Reason: webhook.ReasonEndpointDeleted})
	}), after(2*time.Second, func(environment) { l.b.receiver.Release() }))
	if h, left := l.handed.of(starts[0].DeliveryID); left { // it was recorded before the cancel was answered
		require.False(t, h.Running)
		l.goesOn(h).run()
	}
	d := l.ends(webhook.StateCancelled, webhook.ReasonEndpointDeleted)
	require.Equal(t, 1, d.Attempts)
	require.Equal(t, 1, l.b.receiver.Count())
}

// A member whose request is under way stays one when the workflow continues as new.
func TestFanoutContinuesAsNewDuringARequest(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, receivertest.Step{}, receivertest.Step{})
	l.run(func(env environment) { env.SetCurrentHistoryLength(1000) })
	require.Equal(t, "FanoutWorkflow", l.next)
	in, ok := l.input.(workflows.FanoutInput)
	require.True(t, ok)
	require.Len(t, in.Members, 2)
	for _, m := range in.Members {
		require.WithinDuration(t, l.now.Add(4*time.Second), m.CheckAt, 2*time.Second)
		require.False(t, m.Leaving)
	}
	var local []string
	l.run(l.releasingAt(1, starts, &local))
	require.Equal(t, []string{"Attempts"}, local, "not before that time")
	require.GreaterOrEqual(t, l.timers[0], 2*time.Second)
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
}

// If a worker dies during a request, the next one finds the claim and hands the delivery over to its own workflow, which waits until the
// claim has ended.
func TestAnotherWorkerFindsTheClaim(t *testing.T) {
	t.Parallel()
	l, starts := staying(t, receivertest.Step{})
	l.run(func(env environment) { env.SetCurrentHistoryLength(1000) })
	require.Eventually(t, func() bool { return !l.b.ownerless(t, starts[0]) }, 20*time.Second, time.Millisecond)
	other := l.b.shareIn(t, "another process", time.Hour, starts...)
	other.next, other.input, other.id, other.now = l.next, l.input, l.id, l.now
	other.run()
	h := other.handedOver(starts[0])
	require.True(t, h.Unconfirmed)
	require.False(t, h.Running)
	require.False(t, h.DueAt.IsZero())
	require.Zero(t, h.Attempts)
	l.b.receiver.Release()
	require.Eventually(t, func() bool { return l.b.delivery(t, starts[0].DeliveryID).State == webhook.StateDelivered }, 20*time.Second, time.Millisecond)
	other.goesOn(h).run()
	other.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, l.b.receiver.Count())
}

// ownerless reports that no process has a claim on the delivery in the store.
func (b *bundle) ownerless(t *testing.T, start webhook.Start) (none bool) {
	t.Helper()
	require.NoError(t, b.store.Pool().QueryRow(t.Context(),
		`select not exists (select from deliveries where id = $1 and owner is not null)`, start.DeliveryID).Scan(&none))
	return none
}
