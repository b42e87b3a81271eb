package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// A workflow whose task fails again and again does not count as running. It is ended with a reason that tells it from one that a
// person has terminated, and another one continues from the store.
func TestStuckWorkflowIsReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tries int32
		stuck bool
	}{"tried once": {1, false}, "a worker died, and another": {stuckAttempts - 1, false}, "again and again": {stuckAttempts, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := enginetest.New(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := enginetest.WaitingDelivery()
			f.There = map[string]enumspb.WorkflowExecutionStatus{delivery.WorkflowID: enginetest.Running}
			f.Tries = map[string]int32{delivery.WorkflowID: test.tries}
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.stuck {
				require.Empty(t, f.Terminated)
				require.Empty(t, f.Started())
				return
			}
			require.Len(t, f.Terminated, 1)
			require.Equal(t, workflows.ReasonStuck, f.Terminated[0].GetReason())
			require.Equal(t, "a run", f.Terminated[0].GetWorkflowExecution().GetRunId(), "that one and none that has come since")
			require.Len(t, f.Started(), 1)
			require.False(t, enginetest.MemberOf(t, f.Started()[0]).Terminated)

			// The process that ended it died before it started another. Other processes do not take that for a termination by hand.
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			require.Len(t, f.Started(), 2)
			require.False(t, enginetest.MemberOf(t, f.Started()[1]).Terminated)
			f.Reasons[delivery.WorkflowID] = "by hand"
			require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
			require.True(t, enginetest.MemberOf(t, f.Started()[2]).Terminated)
		})
	}
}

// A delivery's own workflow that is stuck accepts signals and handles none: when a command is signalled again, the workflow is ended,
// and another one begins with it.
func TestUnansweredCommandEndsAStuckWorkflow(t *testing.T) {
	t.Parallel()
	for _, state := range []webhook.State{webhook.StateHeld, webhook.StateRetrying, webhook.StateDeadLettered} {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c})
		delivery := enginetest.WaitingDelivery()
		delivery.State, delivery.CompletedAt = state, time.Now()
		own := delivery.Ref.WorkflowID(delivery.Run)
		f.Begins = true
		f.There, f.Tries = map[string]enumspb.WorkflowExecutionStatus{own: enginetest.Running}, map[string]int32{own: stuckAttempts}
		command := webhook.CommandedDelivery{Delivery: delivery, Command: webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}}
		require.NoError(t, d.Commands.Pass(t.Context(), command))
		require.Len(t, f.Signalled, 1, "the first signal does not check the workflow")
		require.Empty(t, f.Terminated)

		command.Signalled, f.Signalled = 1, nil
		require.NoError(t, d.Commands.Pass(t.Context(), command))
		require.Len(t, f.Terminated, 1, state)
		require.Equal(t, workflows.ReasonStuck, f.Terminated[0].GetReason())
		require.Len(t, f.Started(), 1, state)
		require.Empty(t, f.Signalled, state)
		if state != webhook.StateDeadLettered {
			require.Equal(t, []webhook.PendingCommand{command.Command}, enginetest.MemberOf(t, f.Started()[0]).Pending, state)
		}
	}
}

// So is one that is in the way of a replay, or of a release, when that is relayed again.
func TestStuckWorkflowGivesWay(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"a replay": false, "a release": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, relayed := range []int{0, 1, 2} {
				f, c := enginetest.New(t)
				d := setup(t, Config{Client: c})
				start := enginetest.Accepted(1).Deliveries[0]
				start.Relayed = relayed
				if start.Run = 2; held {
					start.Resume = &webhook.Progress{Run: 2, Seq: 1, State: webhook.StateHeld, GiveUpAt: start.GiveUpAt}
					f.Failing(enginetest.AlreadyStarted())
				}
				own := start.WorkflowID()
				f.There, f.Tries = map[string]enumspb.WorkflowExecutionStatus{own: enginetest.Running}, map[string]int32{own: stuckAttempts}
				require.NoError(t, d.Starts.Own(t.Context(), start))
				if relayed <= 1 {
					require.Empty(t, f.Terminated, "it may be about to go on")
					continue
				}
				require.Len(t, f.Terminated, 1)
				require.Equal(t, workflows.ReasonStuck, f.Terminated[0].GetReason())
				require.Empty(t, f.Signalled)
				require.Len(t, f.Started(), 1)
			}
		})
	}
}
