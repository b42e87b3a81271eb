package starter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// forgetful is a record of what is held for active endpoints. What it says to be held is gone
// when it is to be released.
type forgetful struct {
	mu       sync.Mutex
	held     []webhook.EndpointID
	searches int
	looks    []webhook.EndpointID
}

func (f *forgetful) ForgottenEndpoints(context.Context, webhook.EndpointID, int) ([]webhook.EndpointID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.searches++
	return f.held, nil
}

func (f *forgetful) ReleaseForgotten(_ context.Context, id webhook.EndpointID, _ int) ([]webhook.Start, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks, f.held = append(f.looks, id), nil
	return nil, nil
}

// All endpoints are looked at three times a minute for what is held although they are active,
// from a second after the start on; one that was resumed, every second for a while.
func TestWhatIsForgottenIsLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		id, other := webhook.NewEndpointID(), webhook.NewEndpointID()
		f := &forgetful{held: []webhook.EndpointID{id}}
		d := setup(t, Config{Admission: admissionStub{releasable: upTo(1)}, Forgotten: f})
		d.temporalDown.Store(true)
		d.workers.Go(d.releaseForgotten)
		after := func(wait time.Duration) (searches int, looks []webhook.EndpointID) {
			<-time.After(wait)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			searches, looks = f.searches, f.looks
			f.searches, f.looks = 0, nil
			return searches, looks
		}
		searches, _ := after(10500 * time.Millisecond)
		require.Zero(t, searches, "what were released while Temporal is away would come all at once")
		d.temporalDown.Store(false)
		searches, looks := after(time.Second)
		require.Equal(t, 1, searches)
		require.Equal(t, []webhook.EndpointID{id}, looks)
		f.mu.Lock()
		f.held = []webhook.EndpointID{other}
		f.mu.Unlock()
		searches, looks = after(forgottenEvery)
		require.Equal(t, 1, searches, "a minute is the most that it may take")
		require.Equal(t, []webhook.EndpointID{other}, looks)
		searches, looks = after(2 * forgottenEvery)
		require.Equal(t, 2, searches)
		require.Empty(t, looks)

		d.Resumed(id)
		_, looks = after(15 * time.Second)
		require.Equal(t, []webhook.EndpointID{id, id, id, id, id, id}, looks, "what a process holds that does not know yet")
		d.Stop()
	})
}

// R7: a command that is told again, because nobody has answered it, brings a workflow back that
// was terminated or lost, whatever state the delivery is in; and it is not told to a shared
// workflow that goes on with others.
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
				require.NoError(t, d.signalCommand(t.Context(), webhook.CommandedDelivery{Delivery: delivery, Command: command, Signalled: 1}), name)
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
