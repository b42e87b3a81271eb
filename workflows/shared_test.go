package workflows_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

var (
	busyStep  = receivertest.Step{Status: 503}
	wrongStep = receivertest.Step{Status: 400}
)

// waitFor is an answer with Retry-After.
func waitFor(d time.Duration) receivertest.Step {
	return receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": strconv.Itoa(int(d.Seconds()))}}
}

// R8: first attempts that all succeed cost one local activity between them.
func TestFirstAttemptsInOneGo(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 20)
	l := b.share(t, time.Hour, starts...)
	var local []string
	l.run(countLocal(&local))
	require.Equal(t, []string{"Attempts"}, local)
	require.Empty(t, l.timers)
	require.Empty(t, l.states, "no upsert")
	require.Zero(t, l.keepers.count())
	require.Zero(t, b.outboxRows(t), "R1")
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
}

// sharer is a delivery of a mixed lot: what happens to it, and where it then is.
type sharer struct {
	name   string
	script []receivertest.Step
	before func(t *testing.T, b *bundle, start webhook.Start)

	state    webhook.State
	reason   string
	attempts int
}

func sharers() []sharer {
	dead := webhook.StateDeadLettered
	return []sharer{
		{name: "delivered", state: webhook.StateDelivered, attempts: 1},
		{name: "in the second round", script: []receivertest.Step{busyStep}, state: webhook.StateDelivered, attempts: 2},
		{name: "in the third round", script: []receivertest.Step{busyStep, busyStep}, state: webhook.StateDelivered, attempts: 3},
		{name: "asked to wait, not for long", script: []receivertest.Step{waitFor(50 * time.Second)}, state: webhook.StateDelivered, attempts: 2},
		{name: "in the fourth round", script: []receivertest.Step{busyStep, busyStep, busyStep}, state: webhook.StateDelivered, attempts: 4},
		{name: "asked to wait for longer", script: []receivertest.Step{waitFor(time.Hour)}, state: webhook.StateDelivered, attempts: 2},
		{name: "permanent", script: []receivertest.Step{wrongStep}, state: dead, reason: "http_400", attempts: 1},
		{name: "permanent in the second round", script: []receivertest.Step{busyStep, wrongStep}, state: dead, reason: "http_400", attempts: 2},
		{name: "asked to wait for ten days", script: []receivertest.Step{waitFor(900_000 * time.Second)}, state: webhook.StateDelivered, attempts: 2},
		{name: "endpoint deleted", state: webhook.StateCancelled, reason: webhook.ReasonEndpointDeleted,
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, start.EndpointID))
			}},
		{name: "endpoint paused", state: webhook.StateHeld, reason: webhook.ReasonPaused, // the store alone holds it
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				b.setState(t, start.EndpointID, webhook.EndpointPaused)
			}},
		{name: "sent by another process, for another workflow", state: webhook.StatePending,
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				b.foreignClaim(t, start, webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt})
			}},
		{name: "an internal fault", state: dead, reason: string(retry.ReasonInternal), // at its give-up time
			before: func(_ *testing.T, b *bundle, start webhook.Start) {
				refuse := func(c webhook.Claim) error {
					if c.DeliveryID == start.DeliveryID {
						return errAway
					}
					return nil
				}
				b.record.onBegin.Store(&refuse)
			}},
		{name: "cancelled before", state: webhook.StateCancelled, reason: "not wanted",
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				b.command(t, start.DeliveryID, webhook.CommandCancel, "not wanted")
			}},
		{name: "replayed meanwhile", state: webhook.StatePending,
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				step := webhook.Step{Ref: start.Ref, WorkflowID: start.WorkflowID()}
				step.Progress = webhook.Progress{Run: 1, Seq: 1, State: webhook.StateCancelled, GiveUpAt: start.GiveUpAt}
				_, err := b.store.Deliveries.RecordStep(t.Context(), step)
				require.NoError(t, err)
				b.command(t, start.DeliveryID, webhook.CommandReplay, "")
			}},
	}
}

// The deliveries of a workflow do not affect each other. Each ends there, unless the store names another run or another workflow; those that are
// given up go on together.
func TestFirstAttemptsMixed(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	var (
		all    = sharers()
		starts = make([]webhook.Start, len(all))
		policy = b.endpoint.RetryPolicy
	)
	policy.Strategy, policy.Base, policy.Jitter = retry.StrategyFixed, 10*time.Second, retry.JitterNone // always near
	for i := range all {
		starts[i] = b.acceptFor(t, b.newEndpoint(t, policy).ID)
		b.receiver.Script(starts[i].EventID.String(), all[i].script...)
	}
	l := b.share(t, time.Hour, starts...)
	for i := range all {
		if all[i].before != nil {
			all[i].before(t, b, starts[i])
		}
	}
	l.run()
	require.Equal(t, 3, l.keepers.calls, "each dead letter once")
	require.Equal(t, []string{"retrying", ""}, l.states)
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			start := starts[i]
			d := b.delivery(t, start.DeliveryID)
			require.Equal(t, s.state, d.State)
			require.Equal(t, s.reason, d.Reason)
			require.Equal(t, s.attempts, d.Attempts)
			require.Len(t, b.attempts(t, start.DeliveryID), s.attempts)
			require.Equal(t, s.attempts, requestsOf(b, start.EventID))
			keeper, _ := l.keepers.of(start.DeliveryID)
			require.Equal(t, s.state == webhook.StateDeadLettered, keeper != "")
			if keeper != "" {
				require.Zero(t, l.kept(start, s.reason, s.attempts).Command)
			}
		})
	}
}

// A dead letter of a shared workflow is replayed from the workflow that keeps it, and its next run is the delivery's own workflow.
func TestADeadLetterOfSeveralIsReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	start := b.accept(t, time.Time{})
	b.receiver.Script(start.EventID.String(), busyStep, wrongStep)
	l := b.share(t, time.Hour, start)
	l.run()
	l.isKept(start).run(after(10*time.Millisecond, signal("replay", nil)))
	l.opened(2)
	l.run()
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 3, d.Attempts)
	require.Equal(t, start.Ref.WorkflowID(2), d.WorkflowID)
}

// R8: attempts that are due within a second of each other have one timer between them,
// and each goes out at its own time.
func TestRetriesHaveATimerBetweenThem(t *testing.T) {
	t.Parallel()
	policy, _ := retry.Lookup("default")
	policy.Strategy, policy.Base, policy.Jitter = retry.StrategyFixed, 10*time.Second, retry.JitterNone
	b := setupPolicy(t, policy)
	starts := b.acceptSome(t, 12)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	var local []string
	l.run(countLocal(&local))
	require.Len(t, l.timers, 1, "they failed within a second")
	require.Equal(t, []string{"Attempts", "Attempts"}, local)
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
		attempts := b.attempts(t, start.DeliveryID)
		failed := attempts[0].StartedAt.Add(attempts[0].Latency)
		require.GreaterOrEqual(t, attempts[1].StartedAt, failed.Add(policy.Base-50*time.Millisecond), "not before its time")
	}
}
