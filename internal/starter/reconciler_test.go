package starter

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	running    = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed  = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
)

// R10, over all ways in which a workflow may be gone.
func TestRevive(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		own, shared enumspb.WorkflowExecutionStatus // 0: there is none
		named       bool                            // the store names the shared one
		starts      bool
		terminated  bool
	}{
		"its own runs":      {own: running},
		"a shared one runs": {shared: running, named: true},
		"handed over, which the store does not know": {shared: completed, own: running, named: true},
		"there is none":                             {starts: true},
		"the shared one is gone":                    {named: true, starts: true},
		"its own has ended":                         {own: completed, starts: true},
		"its own was terminated":                    {own: terminated, starts: true, terminated: true},
		"the shared one was terminated":             {shared: terminated, named: true, starts: true, terminated: true},
		"its own was terminated after a shared one": {shared: completed, own: terminated, named: true, starts: true, terminated: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := waitingDelivery()
			if test.named {
				delivery.WorkflowID = "fanout/it"
			}
			f.there = map[string]enumspb.WorkflowExecutionStatus{}
			if test.own != 0 {
				f.there[delivery.Ref.WorkflowID(delivery.Run)] = test.own
			}
			if test.shared != 0 {
				f.there["fanout/it"] = test.shared
			}
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.starts {
				require.Empty(t, f.started())
				return
			}
			require.Len(t, f.started(), 1)
			start := f.started()[0]
			require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), start.GetWorkflowId())
			require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, start.GetWorkflowIdReusePolicy())
			in := inputOf[workflows.DeliveryInput](t, start.GetInput())
			require.Equal(t, delivery.Progress, in.Progress)
			require.True(t, in.Unconfirmed)
			require.Equal(t, test.terminated, in.Terminated)
		})
	}
}

// A workflow that keeps a dead letter does not have an open delivery: PostgreSQL was restored from an older copy. The delivery
// goes on from the store, also one that the outbox has.
func TestReviveAheadOfTheStore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state        webhook.State
		shared, busy bool
		ends         bool
	}{
		"open":                          {state: webhook.StateRetrying, ends: true},
		"open, in a shared workflow":    {state: webhook.StateRetrying, shared: true, ends: true},
		"open, and it has a task":       {state: webhook.StateRetrying, busy: true},
		"a dead letter, which is right": {state: webhook.StateDeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler), KeepDeadLetters: time.Hour})
			delivery := waitingDelivery()
			delivery.State, delivery.CompletedAt = test.state, time.Now()
			own := delivery.Ref.WorkflowID(delivery.Run)
			f.there, f.dead = map[string]enumspb.WorkflowExecutionStatus{own: running}, map[string]bool{own: true}
			if test.shared {
				delivery.WorkflowID = "fanout/it"
				f.there["fanout/it"] = completed
			}
			if test.busy {
				f.tries = map[string]int32{own: 1}
			}
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.ends {
				require.Empty(t, f.terminated)
				require.Empty(t, f.started())
				return
			}
			require.Len(t, f.terminated, 1)
			require.Equal(t, own, f.terminated[0].GetWorkflowExecution().GetWorkflowId())
			require.Len(t, f.started(), 1)
			in := inputOf[workflows.DeliveryInput](t, f.started()[0].GetInput())
			require.Equal(t, delivery.Progress, in.Progress)
			require.False(t, in.Terminated, "no person has ended it")
		})
	}
}

// The same for a replay that is relayed again: a workflow of its run that waits is from before the store was restored.
func TestRelayReplayAheadOfTheStore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		relayed    int
		busy, ends bool
	}{
		"it may not have handled the replay yet": {relayed: 1},
		"it ignores the replay":                  {relayed: 2, ends: true},
		"it is about to handle it":               {relayed: 2, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			start := accepted(1).Deliveries[0]
			start.Run, start.Relayed = 2, test.relayed
			f.there = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): running}
			if test.busy {
				f.tries = map[string]int32{start.WorkflowID(): 1}
			}
			require.NoError(t, d.startDelivery(t.Context(), start))
			require.Equal(t, test.ends, len(f.terminated) == 1)
			require.Len(t, f.started(), 1)
		})
	}
}

func waitingDelivery() webhook.Delivery {
	start := accepted(1).Deliveries[0]
	return webhook.Delivery{
		Ref: start.Ref, WorkflowID: start.WorkflowID(),
		Progress: webhook.Progress{Run: 1, Seq: 3, State: webhook.StateRetrying, Attempts: 3, GiveUpAt: start.GiveUpAt.UTC().Truncate(time.Microsecond)},
	}
}

// A shared workflow that runs has a delivery only if it lists it, or cannot be queried.
func TestReviveDeliveryMissingInSharedWorkflow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		members func(webhook.Delivery) []workflows.Status
		own     bool
		revived bool
	}{
		"it is there":          {func(d webhook.Delivery) []workflows.Status { return []workflows.Status{{}, {Ref: d.Ref}} }, false, false},
		"others are there":     {func(webhook.Delivery) []workflows.Status { return []workflows.Status{{}} }, false, true},
		"Temporal is down":     {func(webhook.Delivery) []workflows.Status { return []workflows.Status{} }, false, true},
		"its own carries it":   {func(webhook.Delivery) []workflows.Status { return []workflows.Status{} }, true, false},
		"no worker can answer": {func(webhook.Delivery) []workflows.Status { return nil }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := waitingDelivery()
			delivery.WorkflowID = "fanout/it"
			f.there = map[string]enumspb.WorkflowExecutionStatus{"fanout/it": running}
			if test.own {
				f.there[delivery.Ref.WorkflowID(delivery.Run)] = running
			}
			f.members = test.members(delivery)
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.revived {
				require.Empty(t, f.started())
				return
			}
			require.Len(t, f.started(), 1)
			require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.started()[0].GetWorkflowId())
			in := inputOf[workflows.DeliveryInput](t, f.started()[0].GetInput())
			require.True(t, in.Unconfirmed)
			require.False(t, in.Terminated)
		})
	}
}

// A dead letter without a workflow gets one; that of a dead letter past its retention is signalled.
func TestReviveDeadLetter(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler), KeepDeadLetters: time.Hour})
	delivery := waitingDelivery()
	delivery.State, delivery.CompletedAt = webhook.StateDeadLettered, time.Now().Add(-2*time.Hour).UTC().Truncate(time.Microsecond)
	f.there = map[string]enumspb.WorkflowExecutionStatus{}
	require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
	in := inputOf[workflows.DeadLetterInput](t, f.started()[0].GetInput())
	require.Equal(t, delivery.CompletedAt.Add(time.Hour), in.KeepUntil)

	f.there[delivery.WorkflowID] = running
	require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
	require.Len(t, f.started(), 1)
	require.Len(t, f.signalled, 1)
	require.Equal(t, workflows.SignalDiscard, f.signalled[0].GetSignalName())
	require.Equal(t, webhook.ReasonRetention, inputOf[workflows.CommandSignal](t, f.signalled[0].GetInput()).Reason)
}

// R7: a command reaches the workflow that has the delivery, also when the store names a shared workflow that has handed it over,
// and a dead letter without a workflow.
func TestSignalReachesTheWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	delivery := waitingDelivery()
	delivery.WorkflowID = "fanout/it"
	f.there = map[string]enumspb.WorkflowExecutionStatus{delivery.Ref.WorkflowID(delivery.Run): running}
	require.NoError(t, d.passNewCommand(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel}))
	require.Len(t, f.signalled, 1)
	require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.signalled[0].GetWorkflowExecution().GetWorkflowId())

	f.there = map[string]enumspb.WorkflowExecutionStatus{}
	require.True(t, isGone(d.passNewCommand(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel})))
	require.Empty(t, f.started(), "it may be about to be handed over; the reconciler looks after what is overdue")

	delivery.State = webhook.StateDeadLettered
	require.NoError(t, d.passNewCommand(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandDiscard}))
	require.Len(t, f.started(), 1)
	require.Equal(t, &workflows.CommandSignal{CommandID: 1}, inputOf[workflows.DeadLetterInput](t, f.started()[0].GetInput()).Discard)
}

// A delivery that was started long ago and has no first write is looked for: its workflow may have been terminated.
func TestRelayRevives(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	start := accepted(1).Deliveries[0]
	f.failing(alreadyStarted())
	f.there = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): terminated}
	start.Relayed = 1
	require.NoError(t, d.startDelivery(t.Context(), start))
	require.Len(t, f.starts, 1, "it may just be about to record something")
	start.Relayed, f.starts = 2, nil
	require.NoError(t, d.startDelivery(t.Context(), start))
	require.Len(t, f.starts, 2, "the refused one, and one after a look")
	require.True(t, inputOf[workflows.DeliveryInput](t, f.starts[1].GetInput()).Terminated)
}

// A search attribute holds as many ids as Temporal accepts by default.
func TestFanoutAttributesFit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 50, 60, 61, 200} {
		ids, ok := workflows.FanoutAttributes(accepted(n).Deliveries, workflows.MaxEventIDs).GetKeywordList(eventIDsKey())
		require.True(t, ok)
		require.Len(t, ids, min(n, workflows.MaxEventIDs))
		size := 0
		for _, id := range ids {
			require.LessOrEqual(t, len(id)+3, workflows.EventIDBytes, "as JSON: quotes and a comma")
			size += len(id) + 3
		}
		require.Less(t, size+1, 2048)
	}
}
