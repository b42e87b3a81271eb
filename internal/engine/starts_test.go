package engine

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// R1: a start that is repeated because its answer was lost is the same, and that it was made before is success.
func TestRepeatedStartIsTheSame(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	group := enginetest.Accepted(5).Deliveries
	d.Starts.Start([][]webhook.Start{group}, nil)
	f.Failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	d.Starts.Start([][]webhook.Start{group}, nil)
	require.NoError(t, d.Starts.Own(t.Context(), group[0]))
	require.Equal(t, f.Starts[0].GetWorkflowId(), f.Starts[1].GetWorkflowId())
	require.NotEqual(t, webhook.SharedWorkflowID(group), webhook.SharedWorkflowID(group[1:]), "another group is another workflow")
	require.NotEqual(t, webhook.SharedWorkflowID(group), webhook.SharedWorkflowID(append(slices.Clone(group[1:]), group[0])))
	require.True(t, strings.HasPrefix(webhook.SharedWorkflowID(group), "fanout/"+group[0].EventID.String()+"/"))
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
			f, c := enginetest.New(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			start := enginetest.Accepted(1).Deliveries[0]
			start.Run, start.Relayed = 2, test.relayed
			f.There = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): enginetest.Running}
			if test.busy {
				f.Tries = map[string]int32{start.WorkflowID(): 1}
			}
			require.NoError(t, d.Starts.Own(t.Context(), start))
			require.Equal(t, test.ends, len(f.Terminated) == 1)
			require.Len(t, f.Started(), 1)
		})
	}
}

// A delivery that was started long ago and has no first write is looked for: its workflow may have been terminated.
func TestRelayRevives(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	start := enginetest.Accepted(1).Deliveries[0]
	f.Failing(enginetest.AlreadyStarted())
	f.There = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): enginetest.Terminated}
	start.Relayed = 1
	require.NoError(t, d.Starts.Own(t.Context(), start))
	require.Len(t, f.Starts, 1, "it may just be about to record something")
	start.Relayed, f.Starts = 2, nil
	require.NoError(t, d.Starts.Own(t.Context(), start))
	require.Len(t, f.Starts, 2, "the refused one, and one after a look")
	require.True(t, enginetest.MemberOf(t, f.Starts[1]).Terminated)
}

// R1: a release whose start is refused, because the workflow that holds the delivery is just
// ending, is no fault: the relay repeats it. A workflow that still waits then knows nothing of
// the hold, and is ended; one that is at work is not.
func TestAReleaseIsRefused(t *testing.T) {
	t.Parallel()
	for relayed := range 4 {
		for _, working := range []bool{false, true} {
			f, c := enginetest.New(t)
			d := setup(t, Config{Client: c})
			_, all := enginetest.HeldFor(1)
			start := all[0]
			start.Relayed = relayed
			f.There = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): enginetest.Running}
			if working {
				f.Tries = map[string]int32{start.WorkflowID(): 1}
			}
			f.Failing(enginetest.AlreadyStarted())
			require.NoError(t, d.Starts.Own(t.Context(), start))
			require.Empty(t, f.Signalled)
			require.Len(t, f.Starts, 1)
			if relayed <= 1 || working {
				require.Empty(t, f.Terminated)
				continue
			}
			require.Len(t, f.Terminated, 1)
			require.Equal(t, workflows.ReasonOutdated, f.Terminated[0].GetReason())
		}
	}
}

// R10: the relay looks at the workflow of a released delivery that is relayed alone, again and again: it may run and not know
// of the release.
func TestAReleaseThatIsRefusedIsRelayed(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	_, all := enginetest.HeldFor(1)
	start := all[0]
	start.Relayed, start.AssignedTo = 2, start.WorkflowID()
	f.There = map[string]enumspb.WorkflowExecutionStatus{start.WorkflowID(): enginetest.Running}
	f.Failing(enginetest.AlreadyStarted())
	d.Starts.Assigned([]webhook.Start{start})
	require.Len(t, f.Starts, 1)
	require.Len(t, f.Terminated, 1)
}

// The relay inspects several workflows at a time, so that one slow answer delays few.
func TestRelayInspectsConcurrently(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	var asking sync.WaitGroup
	asking.Add(ConcurrentLookups)
	f.OnDescribe = func() {
		asking.Done()
		asking.Wait() // for the others
	}
	f.There, f.Begins = map[string]enumspb.WorkflowExecutionStatus{}, true
	starts := enginetest.Accepted(ConcurrentLookups).Deliveries
	for i := range starts {
		starts[i].AssignedTo, starts[i].Assigned, starts[i].Relayed = "fanout/"+starts[i].WorkflowID(), true, 2
		f.There[starts[i].AssignedTo] = enginetest.Completed
	}
	began := time.Now()
	d.Starts.Assigned(starts)
	require.Less(t, time.Since(began), startTimeout, "none has waited in vain")
	require.Len(t, enginetest.StartedIDs(f), 2*ConcurrentLookups, "each gets its own workflow, as the shared one has ended")
}

// R8: what keeps the dead letter of the run before is told that another run has been started, once: alone or among others. Nothing is told
// of a first run or of a release, and that it cannot be told is no error.
func TestTheEarlierRunIsTold(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	all := enginetest.Accepted(5).Deliveries
	for i, run := range []int{2, 3, 1, 2, 2} {
		all[i].Run, all[i].AssignedTo, all[i].Assigned, all[i].Relayed = run, "fanout/it", true, 1
	}
	for _, i := range []int{0, 1, 4} {
		all[i].Earlier = all[i].Ref.WorkflowID(all[i].Run - 1)
	}
	all[3].Resume = &webhook.Progress{Run: 2, Seq: 4, State: webhook.StateHeld}
	all[4].AssignedTo = all[4].WorkflowID()
	d.Starts.Assigned(all)
	require.Len(t, f.Started(), 2)
	told := map[string]int{}
	for _, request := range f.Signalled {
		require.Equal(t, workflows.SignalReplay, request.GetSignalName())
		opened := enginetest.InputOf[workflows.CommandSignal](t, request.GetInput()).Opened
		require.Len(t, opened, 1)
		told[request.GetWorkflowExecution().GetWorkflowId()] = opened[0].Run
	}
	require.Equal(t, map[string]int{all[0].Ref.WorkflowID(1): 2, all[1].Ref.WorkflowID(2): 3, all[4].Ref.WorkflowID(1): 2}, told)

	f.Signalled, f.FailSignals = nil, serviceerror.NewUnavailable("away")
	require.NoError(t, d.Starts.Own(t.Context(), all[4]))
	all[4].Relayed = 2
	f.There = map[string]enumspb.WorkflowExecutionStatus{}
	before := len(f.Signalled)
	require.NoError(t, d.Starts.Own(t.Context(), all[4]))
	require.Len(t, f.Signalled, before)
}
