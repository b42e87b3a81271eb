package starter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

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
					f.there[delivery.Ref.WorkflowID()] = own
				}
				command := webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}
				require.NoError(t, d.passCommand(t.Context(), webhook.CommandedDelivery{Delivery: delivery, Command: command, Signalled: 1}), name)
				if own == running {
					require.Len(t, f.signalled, 1, name)
					require.Equal(t, delivery.Ref.WorkflowID(), f.signalled[0].GetWorkflowExecution().GetWorkflowId(), name)
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

// An open delivery of a later run may have the workflow of an old dead letter in its place, under the same id.
// That workflow takes commands and does not carry them out. When a command is repeated, or the delivery is
// overdue, it gets a signal with the run, which it then continues.
func TestCommandReachesADeliveryBehindAnOldDeadLetter(t *testing.T) {
	t.Parallel()
	for _, state := range []webhook.State{webhook.StatePending, webhook.StateRetrying, webhook.StateHeld, webhook.StateDeadLettered} {
		for _, run := range []int{1, 2} {
			name := fmt.Sprintf("%s, run %d", state, run)
			f, c := newFrontend(t)
			d := setup(t, Config{Client: c})
			delivery := waitingDelivery()
			delivery.State, delivery.Run, delivery.CompletedAt = state, run, time.Now()
			own := delivery.Ref.WorkflowID()
			f.there = map[string]enumspb.WorkflowExecutionStatus{own: running}
			signalled := func() (signals []workflows.CommandSignal) {
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, request := range f.signalled {
					require.Equal(t, own, request.GetWorkflowExecution().GetWorkflowId(), name)
					signals = append(signals, inputOf[workflows.CommandSignal](t, request.GetInput()))
				}
				f.signalled = nil
				return signals
			}
			var expected []workflows.CommandSignal
			if state.Open() && run > 1 {
				expected = append(expected, workflows.CommandSignal{Run: run})
			}
			command := webhook.CommandedDelivery{Delivery: delivery, Command: webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel, Reason: "enough"}}
			cancel := workflows.CommandSignal{CommandID: 9, Reason: "enough", Run: run, DeliveryID: delivery.DeliveryID}
			require.NoError(t, d.passCommand(t.Context(), command))
			require.Equal(t, []workflows.CommandSignal{cancel}, signalled(), name)
			command.Signalled = 1
			require.NoError(t, d.passCommand(t.Context(), command))
			require.Equal(t, append(expected, cancel), signalled(), name)
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			require.Equal(t, expected, signalled(), name)
			require.Empty(t, f.started(), name)
		}
	}
}
