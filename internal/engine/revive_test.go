package engine

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
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
		"its own runs":      {own: enginetest.Running},
		"a shared one runs": {shared: enginetest.Running, named: true},
		"its own was started, which the store does not know": {shared: enginetest.Completed, own: enginetest.Running, named: true},
		"there is none":                             {starts: true},
		"the shared one is gone":                    {named: true, starts: true},
		"its own has ended":                         {own: enginetest.Completed, starts: true},
		"its own was terminated":                    {own: enginetest.Terminated, starts: true, terminated: true},
		"the shared one was terminated":             {shared: enginetest.Terminated, named: true, starts: true, terminated: true},
		"its own was terminated after a shared one": {shared: enginetest.Completed, own: enginetest.Terminated, named: true, starts: true, terminated: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := enginetest.New(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := enginetest.WaitingDelivery()
			if test.named {
				delivery.WorkflowID = "fanout/it"
			}
			f.There = map[string]enumspb.WorkflowExecutionStatus{}
			if test.own != 0 {
				f.There[delivery.Ref.WorkflowID(delivery.Run)] = test.own
			}
			if test.shared != 0 {
				f.There["fanout/it"] = test.shared
			}
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.starts {
				require.Empty(t, f.Started())
				return
			}
			require.Len(t, f.Started(), 1)
			start := f.Started()[0]
			require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), start.GetWorkflowId())
			require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, start.GetWorkflowIdReusePolicy())
			in := enginetest.MemberOf(t, start)
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
			f, c := enginetest.New(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler), KeepDeadLetters: time.Hour})
			delivery := enginetest.WaitingDelivery()
			delivery.State, delivery.CompletedAt = test.state, time.Now()
			own := delivery.Ref.WorkflowID(delivery.Run)
			f.There, f.Dead = map[string]enumspb.WorkflowExecutionStatus{own: enginetest.Running}, map[string]bool{own: true}
			if test.shared {
				delivery.WorkflowID = "fanout/it"
				f.There["fanout/it"] = enginetest.Completed
			}
			if test.busy {
				f.Tries = map[string]int32{own: 1}
			}
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.ends {
				require.Empty(t, f.Terminated)
				require.Empty(t, f.Started())
				return
			}
			require.Len(t, f.Terminated, 1)
			require.Equal(t, own, f.Terminated[0].GetWorkflowExecution().GetWorkflowId())
			require.Len(t, f.Started(), 1)
			in := enginetest.MemberOf(t, f.Started()[0])
			require.Equal(t, delivery.Progress, in.Progress)
			require.False(t, in.Terminated, "no person has ended it")
		})
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
			f, c := enginetest.New(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := enginetest.WaitingDelivery()
			delivery.WorkflowID = "fanout/it"
			f.There = map[string]enumspb.WorkflowExecutionStatus{"fanout/it": enginetest.Running}
			if test.own {
				f.There[delivery.Ref.WorkflowID(delivery.Run)] = enginetest.Running
			}
			f.Members = test.members(delivery)
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.revived {
				require.Empty(t, f.Started())
				return
			}
			require.Len(t, f.Started(), 1)
			require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Started()[0].GetWorkflowId())
			in := enginetest.MemberOf(t, f.Started()[0])
			require.True(t, in.Unconfirmed)
			require.False(t, in.Terminated)
		})
	}
}

// A dead letter without a workflow gets one; that of a dead letter past its retention is signalled.
func TestReviveDeadLetter(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler), KeepDeadLetters: time.Hour})
	delivery := enginetest.WaitingDelivery()
	delivery.State, delivery.CompletedAt = webhook.StateDeadLettered, time.Now().Add(-2*time.Hour).UTC().Truncate(time.Microsecond)
	f.There = map[string]enumspb.WorkflowExecutionStatus{}
	require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
	in := enginetest.InputOf[workflows.DeadLetterInput](t, f.Started()[0].GetInput())
	require.Equal(t, delivery.CompletedAt.Add(time.Hour), in.DeadLetters[0].KeepUntil)

	f.There[delivery.WorkflowID] = enginetest.Running
	require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
	require.Len(t, f.Started(), 1)
	require.Len(t, f.Signalled, 1)
	require.Equal(t, workflows.SignalDiscard, f.Signalled[0].GetSignalName())
	require.Equal(t, webhook.ReasonRetention, enginetest.InputOf[workflows.CommandSignal](t, f.Signalled[0].GetInput()).Reason)
}

// R10: a held delivery is looked for under its own id, and is not said to be missing: it was not to
// have a workflow. That one was terminated says nothing of it.
func TestReviveHeld(t *testing.T) {
	t.Parallel()
	const nobody = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	for _, own := range []enumspb.WorkflowExecutionStatus{nobody, enginetest.Running, enginetest.Completed, enginetest.Terminated} {
		f, c := enginetest.New(t)
		var logged bytes.Buffer
		d := New(Config{Client: c, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		delivery := enginetest.WaitingDelivery()
		delivery.State, delivery.Reason, delivery.WorkflowID, delivery.DueAt = webhook.StateHeld, webhook.ReasonBacklog, "", time.Time{}
		f.There = map[string]enumspb.WorkflowExecutionStatus{}
		if own != nobody {
			f.There[delivery.Ref.WorkflowID(delivery.Run)] = own
		}
		require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
		require.NotContains(t, logged.String(), "had no workflow", own)
		if own == enginetest.Running {
			require.Empty(t, f.Starts)
			continue
		}
		require.Len(t, f.Starts, 1)
		require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Starts[0].GetWorkflowId())
		require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, f.Starts[0].GetWorkflowIdReusePolicy())
		require.Equal(t, &workflows.Member{
			DeliveryState: workflows.DeliveryState{Ref: delivery.Ref, Progress: delivery.Progress, Unconfirmed: true},
		},
			enginetest.MemberOf(t, f.Starts[0]))
	}
}
