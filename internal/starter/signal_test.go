package starter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// R7: a command that is signalled again, because no step has handled it, starts a workflow that was terminated or lost, in any state of the
// delivery. It is not sent to a shared workflow that continues with other deliveries.
func TestUnansweredCommandsBringTheWorkflowBack(t *testing.T) {
	t.Parallel()
	const nobody = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	for _, state := range []webhook.State{webhook.StatePending, webhook.StateRetrying, webhook.StateHeld} {
		for _, own := range []enumspb.WorkflowExecutionStatus{nobody, running, completed, terminated} {
			for named, members := range map[string][]workflows.Status{"own": nil, "fanout/gone": nil, "fanout/others": {{}}} {
				name := fmt.Sprintf("%s, named %s, its own %s", state, named, own)
				f, c := newFrontend(t)
				d := setup(t, Config{Client: c})
				delivery := waitingDelivery()
				delivery.State = state
				f.begins, f.members, f.there = true, members, map[string]enumspb.WorkflowExecutionStatus{}
				if named != "own" {
					delivery.WorkflowID = named
				}
				if members != nil {
					f.there[named] = running
				}
				if own != nobody {
					f.there[delivery.Ref.WorkflowID(delivery.Run)] = own
				}
				command := webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}
				require.NoError(t, d.passCommand(t.Context(), webhook.CommandedDelivery{Delivery: delivery, Command: command, Signalled: 1}), name)
				if own == running {
					require.Len(t, f.signalled, 1, name)
					require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.signalled[0].GetWorkflowExecution().GetWorkflowId(), name)
					require.Empty(t, f.starts, name)
					continue
				}
				require.Empty(t, f.signalled, name)
				require.Len(t, f.starts, 1, name)
				in := inputOf[workflows.DeliveryInput](t, f.starts[0].GetInput())
				require.True(t, in.Unconfirmed, name)
				require.Equal(t, command, in.Command, name)
				require.Equal(t, own == terminated && state != webhook.StateHeld, in.Terminated, name)
			}
		}
	}
}

// R8: what keeps the dead letter of the run before is told that another run has been started, once: alone or among others. Nothing is told
// of a first run or of a release, and that it cannot be told is no error.
func TestTheEarlierRunIsTold(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	all := accepted(5).Deliveries
	for i, run := range []int{2, 3, 1, 2, 2} {
		all[i].Run, all[i].AssignedTo, all[i].Assigned, all[i].Relayed = run, "fanout/it", true, 1
	}
	all[3].Resume = &webhook.Progress{Run: 2, Seq: 4, State: webhook.StateHeld}
	all[4].AssignedTo = all[4].WorkflowID()
	d.startAssigned(all)
	require.Len(t, f.started(), 2)
	told := map[string]int{}
	for _, request := range f.signalled {
		require.Equal(t, workflows.SignalReplay, request.GetSignalName())
		told[request.GetWorkflowExecution().GetWorkflowId()] = inputOf[workflows.CommandSignal](t, request.GetInput()).Run
	}
	require.Equal(t, map[string]int{all[0].Ref.WorkflowID(1): 2, all[1].Ref.WorkflowID(2): 3, all[4].Ref.WorkflowID(1): 2}, told)

	f.signalled, f.failSignals = nil, serviceerror.NewUnavailable("away")
	require.NoError(t, d.startDelivery(t.Context(), all[4]))
	all[4].Relayed = 2
	f.there = map[string]enumspb.WorkflowExecutionStatus{}
	before := len(f.signalled)
	require.NoError(t, d.startDelivery(t.Context(), all[4]))
	require.Len(t, f.signalled, before)
}

// R7: a command does not start a workflow for a delivery that is still to be started.
func TestACommandLeavesTheStartToTheOutbox(t *testing.T) {
	t.Parallel()
	for _, waiting := range []bool{true, false} {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c})
		f.there = map[string]enumspb.WorkflowExecutionStatus{}
		command := webhook.CommandedDelivery{
			Delivery: waitingDelivery(), Command: webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}, Signalled: 2, Waiting: waiting,
		}
		err := d.passCommand(t.Context(), command)
		require.Equal(t, waiting, isGone(err))
		require.Equal(t, !waiting, len(f.started()) == 1)
	}
}
