package starter

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// groups are the deliveries of the shared workflows that were started, and those that
// got their own.
func groups(t *testing.T, f *frontend) (shared [][]workflows.FanoutDelivery, own []workflows.DeliveryInput) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.starts {
		if request.GetWorkflowType().GetName() == "FanoutWorkflow" {
			shared = append(shared, inputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries)
		} else {
			own = append(own, inputOf[workflows.DeliveryInput](t, request.GetInput()))
		}
	}
	return shared, own
}

// A released delivery shares a workflow with others, whatever its run, and continues from its status.
func TestReleasedShare(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	_, all := heldFor(4)
	all[1].Run, all[1].Resume.Run, all[1].Resume.Attempts = 3, 3, 17
	all[2].Resume = nil // a new one
	all[3].Relayed = 1
	d.start(all)
	shared, own := groups(t, f)
	require.Empty(t, own)
	require.Empty(t, f.signals)
	require.Len(t, shared, 1)
	require.Len(t, shared[0], len(all))
	for i, start := range all {
		require.Equal(t, workflows.FanoutDelivery{Ref: start.Ref, Progress: start.Progress()}, shared[0][i])
	}

	// Held again meanwhile, and released again, it is another workflow: the id of the
	// first must not stand in its way.
	again := *all[0].Resume
	again.Seq++
	all[0].Resume = &again
	d.start(all)
	require.NotEqual(t, f.starts[0].GetWorkflowId(), f.starts[1].GetWorkflowId())
}

// A table of what decides about sharing: slow deliveries share among themselves, new or released. One that waits for its time
// has its own workflow, however often it was relayed, and whichever run it is.
func TestSharing(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	slowOne, fastOne := webhook.NewEndpointID(), webhook.NewEndpointID()
	d := setup(t, Config{Client: c, Admission: admissionStub{slow: map[webhook.EndpointID]bool{slowOne: true}}})
	type kind struct {
		slow, held, later, opened bool
		relayed                   int
	}
	var (
		all   []webhook.Start
		kinds = map[webhook.DeliveryID]kind{}
	)
	for n := range 3 * 16 {
		k := kind{slow: n&1 > 0, held: n&2 > 0, later: n&4 > 0, opened: n&8 > 0, relayed: n / 16}
		start := accepted(1).Deliveries[0]
		if start.EndpointID = fastOne; k.slow {
			start.EndpointID = slowOne
		}
		start.DeliveryID = webhook.DeliveryIDOf(start.EventID, start.EndpointID)
		start.Relayed = k.relayed
		if k.opened {
			start.Run = 2
		}
		if k.held {
			start.Resume = &webhook.Progress{Run: start.Run, Seq: 1, State: webhook.StateHeld}
		}
		if k.later {
			start.NotBefore = time.Now().Add(time.Hour)
		}
		all = append(all, start)
		kinds[start.DeliveryID] = k
	}
	d.start(all)

	shared, own := groups(t, f)
	require.Len(t, shared, 2)
	seen := map[webhook.DeliveryID]bool{}
	see := func(id webhook.DeliveryID, alone bool) kind {
		k := kinds[id]
		require.Equal(t, alone, k.later, "%+v", k)
		require.False(t, seen[id], "%+v", k)
		seen[id] = true
		return k
	}
	for _, group := range shared {
		slow := kinds[group[0].DeliveryID].slow
		for _, member := range group {
			require.Equal(t, slow, see(member.DeliveryID, false).slow)
		}
	}
	for _, in := range own {
		see(in.DeliveryID, true)
	}
	require.Len(t, seen, len(all))
}

// A delivery to a slow receiver among fast ones has its own workflow.
func TestSingleSlowDeliveryHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	batch := accepted(4).Deliveries
	d := setup(t, Config{Client: c, Admission: admissionStub{slow: map[webhook.EndpointID]bool{batch[2].EndpointID: true}}})
	d.start(batch)
	shared, own := groups(t, f)
	require.Len(t, shared, 1)
	require.Len(t, shared[0], 3)
	require.Len(t, own, 1)
	require.Equal(t, batch[2].Ref, own[0].Ref)
}

// A released delivery that is alone continues in its own workflow, although there was one with that id, and needs a claim.
func TestStartReleased(t *testing.T) {
	t.Parallel()
	for _, run := range []int{1, 2} {
		for _, relayed := range []int{0, 1, 2, 5} {
			f, c := newFrontend(t)
			d := setup(t, Config{Client: c})
			_, all := heldFor(1)
			start := all[0]
			start.Run, start.Resume.Run, start.Relayed = run, run, relayed
			d.start(all)
			d.start([]webhook.Start{start})
			require.Empty(t, f.signals)
			require.Len(t, f.starts, 2)
			request := f.starts[1]
			require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
			require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, request.GetWorkflowIdReusePolicy())
			require.Equal(t, workflows.DeliveryInput{
				DeliveryState: workflows.DeliveryState{Ref: start.Ref, Progress: *start.Resume}, HandedOver: true,
			},
				inputOf[workflows.DeliveryInput](t, request.GetInput()))
		}
	}
}

// R1: a release whose start is refused, because the workflow that holds the delivery is just
// ending, is no fault: the relay repeats it. A workflow that still waits then knows nothing of
// the hold, and is ended; one that is at work is not.
func TestAReleaseIsRefused(t *testing.T) {
	t.Parallel()
	for relayed := range 4 {
		for _, working := range []bool{false, true} {
			f, c := newFrontend(t)
			d := setup(t, Config{Client: c})
			_, all := heldFor(1)
			start := all[0]
			start.Relayed = relayed
			f.there = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): running}
			if working {
				f.tries = map[string]int32{start.WorkflowID(): 1}
			}
			f.failing(alreadyStarted())
			require.NoError(t, d.startDelivery(t.Context(), start))
			require.Empty(t, f.signalled)
			require.Len(t, f.starts, 1)
			if relayed <= 1 || working {
				require.Empty(t, f.terminated)
				continue
			}
			require.Len(t, f.terminated, 1)
			require.Equal(t, workflows.ReasonOutdated, f.terminated[0].GetReason())
		}
	}
}

// R10: the relay looks at the workflow of a released delivery that is relayed alone, again and again: it may run and not know
// of the release.
func TestAReleaseThatIsRefusedIsRelayed(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	_, all := heldFor(1)
	start := all[0]
	start.Relayed, start.AssignedTo = 2, start.WorkflowID()
	f.there = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): running}
	f.failing(alreadyStarted())
	d.startAssigned([]webhook.Start{start})
	require.Len(t, f.starts, 1)
	require.Len(t, f.terminated, 1)
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
			for _, own := range []enumspb.WorkflowExecutionStatus{nobody, running, completed, terminated} {
				for _, command := range []webhook.Command{webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule} {
					name := fmt.Sprintf("%s, named %q, its own %s: %s", state, named, own, command)
					f, c := newFrontend(t)
					d := setup(t, Config{Client: c})
					delivery := waitingDelivery()
					delivery.State = state
					if delivery.WorkflowID = named; named == "own" {
						delivery.WorkflowID = delivery.Ref.WorkflowID(delivery.Run)
					}
					f.begins, f.there = true, map[string]enumspb.WorkflowExecutionStatus{}
					if own != nobody {
						f.there[delivery.Ref.WorkflowID(delivery.Run)] = own
					}
					asked := webhook.PendingCommand{ID: 9, Command: command, Reason: "asked"}
					err := d.passNewCommand(t.Context(), delivery, asked)
					if own == running {
						require.NoError(t, err, name)
						require.Empty(t, f.starts, name)
						require.Len(t, f.signalled, 1, name)
						require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.signalled[0].GetWorkflowExecution().GetWorkflowId(), name)
						require.Equal(t, workflows.CommandSignal{CommandID: 9, Reason: "asked", Run: delivery.Run, DeliveryID: delivery.DeliveryID},
							inputOf[workflows.CommandSignal](t, f.signalled[0].GetInput()), name)
						continue
					}
					require.Empty(t, f.signalled, name)
					if state != webhook.StateHeld {
						require.True(t, isGone(err), name)
						require.Empty(t, f.starts, name)
						continue
					}
					require.NoError(t, err, name)
					require.Len(t, f.starts, 1, name)
					require.Equal(t, workflows.DeliveryInput{DeliveryState: workflows.DeliveryState{
						Ref: delivery.Ref, Progress: delivery.Progress, Unconfirmed: true, Command: asked,
					}},
						inputOf[workflows.DeliveryInput](t, f.starts[0].GetInput()), name)
				}
			}
		}
	}
}

// R10: a held delivery is looked for under its own id, and is not said to be missing: it was not to
// have a workflow. That one was terminated says nothing of it.
func TestReviveHeld(t *testing.T) {
	t.Parallel()
	const nobody = enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	for _, own := range []enumspb.WorkflowExecutionStatus{nobody, running, completed, terminated} {
		f, c := newFrontend(t)
		var logged bytes.Buffer
		d := New(Config{Client: c, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		delivery := waitingDelivery()
		delivery.State, delivery.Reason, delivery.WorkflowID, delivery.DueAt = webhook.StateHeld, webhook.ReasonBacklog, "", time.Time{}
		f.there = map[string]enumspb.WorkflowExecutionStatus{}
		if own != nobody {
			f.there[delivery.Ref.WorkflowID(delivery.Run)] = own
		}
		require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
		require.NotContains(t, logged.String(), "had no workflow", own)
		if own == running {
			require.Empty(t, f.starts)
			continue
		}
		require.Len(t, f.starts, 1)
		require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.starts[0].GetWorkflowId())
		require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, f.starts[0].GetWorkflowIdReusePolicy())
		require.Equal(t, workflows.DeliveryInput{
			DeliveryState: workflows.DeliveryState{Ref: delivery.Ref, Progress: delivery.Progress, Unconfirmed: true},
		},
			inputOf[workflows.DeliveryInput](t, f.starts[0].GetInput()))
	}
}
