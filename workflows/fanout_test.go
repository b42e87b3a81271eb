package workflows_test

import (
	"cmp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
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
func TestFanoutFirstAttemptsInOneGo(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 20)
	l := b.share(t, time.Hour, starts...)
	var local []string
	l.run(countLocal(&local))
	require.Equal(t, []string{"Attempts"}, local)
	require.Empty(t, l.timers)
	require.Empty(t, l.states, "no upsert")
	require.Zero(t, l.handed.count())
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
	leaves   bool                                           // goes on in a workflow of its own
	as       func(t *testing.T, h activities.DeliveryState) // checks its input; nil if it is not handed over
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
		{name: "permanent", script: []receivertest.Step{wrongStep}, state: dead, reason: "http_400", attempts: 1, leaves: true},
		{name: "permanent in the second round", script: []receivertest.Step{busyStep, wrongStep}, state: dead, reason: "http_400", attempts: 2, leaves: true},
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
		{name: "sent by another process", state: webhook.StatePending, leaves: true,
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				b.foreignClaim(t, start, webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt})
			},
			as: func(t *testing.T, h activities.DeliveryState) {
				t.Helper()
				require.True(t, h.Unconfirmed)
				require.InDelta(t, 35, h.DueAt.Sub(h.EventID.Time()).Seconds(), 20, "when the claim ends")
			}},
		{name: "an internal fault", state: dead, reason: string(retry.ReasonInternal), leaves: true, // at its give-up time
			before: func(_ *testing.T, b *bundle, start webhook.Start) {
				refuse := func(c webhook.Claim) error {
					if c.DeliveryID == start.DeliveryID {
						return errAway
					}
					return nil
				}
				b.record.onBegin.Store(&refuse)
			}},
		{name: "cancelled before", state: webhook.StatePending, leaves: true,
			before: func(t *testing.T, b *bundle, start webhook.Start) {
				t.Helper()
				b.command(t, start.DeliveryID, webhook.CommandCancel, "not wanted")
			},
			as: func(t *testing.T, h activities.DeliveryState) {
				t.Helper()
				require.Equal(t, webhook.CommandCancel, h.Command.Command)
				require.Equal(t, "not wanted", h.Command.Reason)
				require.True(t, h.Unconfirmed)
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

// The members do not affect each other. One that is given up, or gets a command, continues in its own workflow.
func TestFanoutFirstAttemptsMixed(t *testing.T) {
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
	leaving := 0
	for _, s := range all {
		if s.leaves {
			leaving++
		}
	}
	require.Equal(t, leaving, l.handed.calls, "each once")
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
			_, left := l.handed.of(start.DeliveryID)
			require.Equal(t, s.leaves, left)
			if !s.leaves {
				return
			}
			h := l.handedOver(start)
			if s.as != nil {
				s.as(t, h)
				return
			}
			require.Equal(t, d.Progress, h.Progress)
			require.False(t, h.Unconfirmed, "the store knows already")
			require.False(t, h.Running)
			require.Zero(t, h.Command)
		})
	}
}

// A delivery that was handed over ends in its own workflow, which knows only what the hand-over says.
func TestHandedOverEnd(t *testing.T) {
	t.Parallel()
	for _, s := range sharers() {
		if !s.leaves {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			start := b.accept(t, time.Time{})
			b.receiver.Script(start.EventID.String(), s.script...)
			l := b.share(t, time.Hour, start)
			if s.before != nil {
				s.before(t, b, start)
			}
			l.run()
			l.goesOn(l.handedOver(start))
			b.refuse(0)
			resume := func(env environment) {
				keeper, _ := l.handed.keptIn(start.DeliveryID)
				require.Equal(t, cmp.Or(keeper, start.WorkflowID()), b.delivery(t, start.DeliveryID).WorkflowID, "the one that continues it")
				b.expire(t, start)
				if s.state == webhook.StateDeadLettered {
					env.SignalWorkflow(workflows.SignalReplay, nil)
				}
			}
			if s.name == "cancelled before" { // at once
				l.run()
				l.ends(webhook.StateCancelled, "not wanted")
				return
			}
			l.run(after(10*time.Millisecond, resume))
			if s.state == webhook.StateDeadLettered {
				l.opened(2)
				l.run()
			}
			d := l.ends(webhook.StateDelivered, "")
			require.Equal(t, s.attempts+1, d.Attempts)
			require.Equal(t, d.Attempts, b.receiver.Count())
			require.Equal(t, start.Ref.WorkflowID(d.Run), d.WorkflowID)
		})
	}
}

// R8: attempts that are due within a second of each other have one timer between them,
// and each goes out at its own time.
func TestFanoutRetriesHaveATimerBetweenThem(t *testing.T) {
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
