package engine

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// R7: a command reaches the workflow that has the delivery, also when the store names a shared workflow that does not have it,
// and a dead letter without a workflow.
func TestSignalReachesTheWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	delivery := enginetest.WaitingDelivery()
	delivery.WorkflowID = "fanout/it"
	f.There = map[string]enumspb.WorkflowExecutionStatus{delivery.Ref.WorkflowID(delivery.Run): enginetest.Running}
	require.NoError(t, d.Commands.passNew(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel}))
	require.Len(t, f.Signalled, 1)
	require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Signalled[0].GetWorkflowExecution().GetWorkflowId())

	f.There = map[string]enumspb.WorkflowExecutionStatus{}
	require.True(t, isGone(d.Commands.passNew(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel})))
	require.Empty(t, f.Started(), "it may be about to be started; the reconciler looks after what is overdue")

	delivery.State = webhook.StateDeadLettered
	require.NoError(t, d.Commands.passNew(t.Context(), delivery, webhook.PendingCommand{ID: 1, Command: webhook.CommandDiscard}))
	require.Len(t, f.Started(), 1)
	in := enginetest.InputOf[workflows.DeadLetterInput](t, f.Started()[0].GetInput())
	require.Equal(t, &workflows.CommandSignal{CommandID: 1}, in.DeadLetters[0].Discard)
}

// R7: a table of the delivery's state, the workflow that the store names, and the workflows that exist. A command reaches the workflow that
// carries the delivery. If there is none, and none is about to start, a workflow is started with the command.
func TestCommandsReachTheHeld(t *testing.T) {
	t.Parallel()
	const nobody = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	for _, state := range webhook.States() {
		if !state.Open() {
			continue
		}
		for _, named := range []string{"", "own", "fanout/it"} {
			for _, own := range []enumspb.WorkflowExecutionStatus{nobody, enginetest.Running, enginetest.Completed, enginetest.Terminated} {
				for _, command := range []webhook.Command{webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule} {
					name := fmt.Sprintf("%s, named %q, its own %s: %s", state, named, own, command)
					f, c := enginetest.New(t)
					d := setup(t, Config{Client: c})
					delivery := enginetest.WaitingDelivery()
					delivery.State = state
					if delivery.WorkflowID = named; named == "own" {
						delivery.WorkflowID = delivery.Ref.WorkflowID(delivery.Run)
					}
					f.Begins, f.There = true, map[string]enumspb.WorkflowExecutionStatus{}
					if own != nobody {
						f.There[delivery.Ref.WorkflowID(delivery.Run)] = own
					}
					asked := webhook.PendingCommand{ID: 9, Command: command, Reason: "asked"}
					err := d.Commands.passNew(t.Context(), delivery, asked)
					if own == enginetest.Running {
						require.NoError(t, err, name)
						require.Empty(t, f.Starts, name)
						require.Len(t, f.Signalled, 1, name)
						require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Signalled[0].GetWorkflowExecution().GetWorkflowId(), name)
						require.Equal(t, workflows.CommandSignal{CommandID: 9, Reason: "asked", Run: delivery.Run, DeliveryID: delivery.DeliveryID},
							enginetest.InputOf[workflows.CommandSignal](t, f.Signalled[0].GetInput()), name)
						continue
					}
					require.Empty(t, f.Signalled, name)
					if state != webhook.StateHeld {
						require.True(t, isGone(err), name)
						require.Empty(t, f.Starts, name)
						continue
					}
					require.NoError(t, err, name)
					require.Len(t, f.Starts, 1, name)
					require.Equal(t, &workflows.Member{DeliveryState: workflows.DeliveryState{
						Ref: delivery.Ref, Progress: delivery.Progress, Unconfirmed: true,
					}, Pending: []webhook.PendingCommand{asked}},
						enginetest.MemberOf(t, f.Starts[0]), name)
				}
			}
		}
	}
}

// R7: a command that is signalled again, because no step has handled it, starts a workflow that was terminated or lost, in any state of the
// delivery. It is not sent to a shared workflow that continues with other deliveries.
func TestUnansweredCommandsBringTheWorkflowBack(t *testing.T) {
	t.Parallel()
	const nobody = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	for _, state := range []webhook.State{webhook.StatePending, webhook.StateRetrying, webhook.StateHeld} {
		for _, own := range []enumspb.WorkflowExecutionStatus{nobody, enginetest.Running, enginetest.Completed, enginetest.Terminated} {
			for named, members := range map[string][]workflows.Status{"own": nil, "fanout/gone": nil, "fanout/others": {{}}} {
				name := fmt.Sprintf("%s, named %s, its own %s", state, named, own)
				f, c := enginetest.New(t)
				d := setup(t, Config{Client: c})
				delivery := enginetest.WaitingDelivery()
				delivery.State = state
				f.Begins, f.Members, f.There = true, members, map[string]enumspb.WorkflowExecutionStatus{}
				if named != "own" {
					delivery.WorkflowID = named
				}
				if members != nil {
					f.There[named] = enginetest.Running
				}
				if own != nobody {
					f.There[delivery.Ref.WorkflowID(delivery.Run)] = own
				}
				command := webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}
				require.NoError(t, d.Commands.Pass(t.Context(), webhook.CommandedDelivery{Delivery: delivery, Command: command, Signalled: 1}), name)
				if own == enginetest.Running {
					require.Len(t, f.Signalled, 1, name)
					require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Signalled[0].GetWorkflowExecution().GetWorkflowId(), name)
					require.Empty(t, f.Starts, name)
					continue
				}
				require.Empty(t, f.Signalled, name)
				require.Len(t, f.Starts, 1, name)
				in := enginetest.MemberOf(t, f.Starts[0])
				require.True(t, in.Unconfirmed, name)
				require.Equal(t, []webhook.PendingCommand{command}, in.Pending, name)
				require.Equal(t, own == enginetest.Terminated && state != webhook.StateHeld, in.Terminated, name)
			}
		}
	}
}

// R7: a command does not start a workflow for a delivery that is still to be started.
func TestACommandLeavesTheStartToTheOutbox(t *testing.T) {
	t.Parallel()
	for _, waiting := range []bool{true, false} {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c})
		f.There = map[string]enumspb.WorkflowExecutionStatus{}
		command := webhook.CommandedDelivery{
			Delivery: enginetest.WaitingDelivery(), Command: webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}, Signalled: 2, Waiting: waiting,
		}
		err := d.Commands.Pass(t.Context(), command)
		require.Equal(t, waiting, isGone(err))
		require.Equal(t, !waiting, len(f.Started()) == 1)
	}
}
