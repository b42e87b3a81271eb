package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// given are dead letters of a shared workflow.
func given(n int) []activities.DeliveryState {
	starts := enginetest.Accepted(n).Deliveries
	all := make([]activities.DeliveryState, n)
	for i := range all {
		all[i] = activities.DeliveryState{
			Ref: starts[i].Ref, Progress: webhook.Progress{Run: 1, Seq: 2, State: webhook.StateDeadLettered, Reason: "http_400", Attempts: 2},
			LastOutcome: &webhook.LastOutcome{Decision: retry.Permanent, Reason: "http_400", Status: 400},
		}
	}
	return all
}

// The dead letters of a shared workflow share one, which is found in lists as theirs, and takes the commands that are pending along.
func TestKeepStartsOneWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	all := given(2)
	all[1].Command, all[1].Running = webhook.PendingCommand{ID: 3, Command: webhook.CommandDiscard, Reason: "asked"}, true
	left, err := d.DeadLetters.Keep(t.Context(), "dead/fanout/x/0", all)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, f.Starts, 1)
	request := f.Starts[0]
	require.Equal(t, "dead/fanout/x/0", request.GetWorkflowId())
	require.Equal(t, workflows.DeadLetterName, request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
	state := func(i int) workflows.DeliveryState {
		return workflows.DeliveryState{Ref: all[i].Ref, Progress: all[i].Progress, LastOutcome: all[i].LastOutcome}
	}
	require.Equal(t, workflows.DeadLetterInput{DeadLetters: []*workflows.DeadLetter{
		{DeliveryState: state(0)}, {DeliveryState: state(1), Discard: &workflows.CommandSignal{CommandID: 3, Reason: "asked"}},
	}}, enginetest.InputOf[workflows.DeadLetterInput](t, request.GetInput()))
	fields := request.GetSearchAttributes().GetIndexedFields()
	require.JSONEq(t, `"dead_lettered"`, string(fields["DeliveryState"].GetData()))
	require.JSONEq(t, `"acme"`, string(fields["TenantId"].GetData()))
	require.Contains(t, fields, "EventIds")

	_, err = d.DeadLetters.Keep(t.Context(), "dead/fanout/x/1", all[:1])
	require.NoError(t, err)
	fields = f.Starts[1].GetSearchAttributes().GetIndexedFields()
	require.JSONEq(t, `"`+all[0].EventID.String()+`"`, string(fields["EventId"].GetData()), "a single one is found by its event")
}

// R3: a workflow task that was lost has started it with fewer.
func TestKeepAgain(t *testing.T) {
	t.Parallel()
	all := given(3)
	for name, test := range map[string]struct {
		status  enumspb.WorkflowExecutionStatus
		members []workflows.Status
		left    []int
	}{
		"with one":         {enginetest.Running, []workflows.Status{{Ref: all[1].Ref}}, []int{0, 2}},
		"with all":         {enginetest.Running, []workflows.Status{{Ref: all[0].Ref}, {Ref: all[1].Ref}, {Ref: all[2].Ref}}, nil},
		"it has ended":     {enginetest.Completed, nil, []int{0, 1, 2}},
		"it has lost them": {enginetest.Running, []workflows.Status{}, []int{0, 1, 2}},
	} {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c})
		f.Begins, f.There = true, map[string]enumspb.WorkflowExecutionStatus{"dead/fanout/x/0": test.status}
		f.Members = test.members
		commanded := slices.Clone(all)
		commanded[1].Command = webhook.PendingCommand{Command: webhook.CommandDiscard, Reason: "by hand"}
		left, err := d.DeadLetters.Keep(t.Context(), "dead/fanout/x/0", commanded)
		require.NoError(t, err, name)
		require.Equal(t, test.left, left, name)
		if slices.Contains(left, 1) {
			require.Empty(t, f.Signalled, name)
			continue
		}
		require.Len(t, f.Signalled, 1, name)
		signal := enginetest.InputOf[workflows.CommandSignal](t, f.Signalled[0].GetInput())
		require.Equal(t, workflows.CommandSignal{Reason: "by hand", Run: 1, DeliveryID: all[1].DeliveryID}, signal, name)
	}
	for name, tries := range map[string]map[string]int32{"no worker is up": nil, "it is busy": {"dead/fanout/x/0": 1}} {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c})
		f.Begins, f.There = true, map[string]enumspb.WorkflowExecutionStatus{"dead/fanout/x/0": enginetest.Running}
		if f.Tries = tries; tries != nil {
			f.Members = []workflows.Status{{Ref: all[0].Ref}}
		}
		_, err := d.DeadLetters.Keep(t.Context(), "dead/fanout/x/0", all)
		require.ErrorIs(t, err, errUnanswered, name)
	}
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	f.Failing(serviceerror.NewInvalidArgument("away"))
	_, err := d.DeadLetters.Keep(t.Context(), "dead/fanout/x/0", all)
	require.ErrorContains(t, err, "away")
}

// Each workflow that keeps dead letters gets one signal for all of them that a start has opened, and only once.
func TestEachKeeperIsToldOnce(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	starts := enginetest.Accepted(5).Deliveries
	for i, keeper := range []string{"dead/fanout/x/0", "dead/fanout/x/0", "dead/fanout/y/3", "", "dead/fanout/x/0"} {
		starts[i].Run, starts[i].Earlier, starts[i].AssignedTo, starts[i].Assigned = 2, keeper, "fanout/next", true
	}
	starts[4].Relayed = 2 // it was told when it was relayed first
	d.Starts.Assigned(starts)
	require.Len(t, f.Starts, 1)
	told := map[string][]workflows.OpenedRun{}
	for _, s := range f.Signalled {
		require.Equal(t, workflows.SignalReplay, s.GetSignalName())
		told[s.GetWorkflowExecution().GetWorkflowId()] = enginetest.InputOf[workflows.CommandSignal](t, s.GetInput()).Opened
	}
	opened := func(i int) workflows.OpenedRun {
		return workflows.OpenedRun{DeliveryID: starts[i].DeliveryID, Run: 2, WorkflowID: "fanout/next"}
	}
	require.Len(t, f.Signalled, 2)
	require.Equal(t, map[string][]workflows.OpenedRun{"dead/fanout/x/0": {opened(0), opened(1)}, "dead/fanout/y/3": {opened(2)}}, told)
}

// The API's replay of one dead letter tells the workflow that has kept it.
func TestAReplayTellsTheKeeper(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	delivery := enginetest.WaitingDelivery()
	delivery.Run, delivery.State = 2, webhook.StatePending
	replay := webhook.PendingCommand{Command: webhook.CommandReplay, Earlier: "dead/fanout/x/0"}
	require.NoError(t, d.Commands.passNew(t.Context(), delivery, replay))
	require.Len(t, f.Signalled, 1)
	require.Equal(t, "dead/fanout/x/0", f.Signalled[0].GetWorkflowExecution().GetWorkflowId())
	require.Equal(t, []workflows.OpenedRun{{DeliveryID: delivery.DeliveryID, Run: 2, WorkflowID: delivery.Ref.WorkflowID(2)}},
		enginetest.InputOf[workflows.CommandSignal](t, f.Signalled[0].GetInput()).Opened)
}

// A dead letter among several is looked for in its workflow: that is told to discard it past its retention. If it is not there, it gets its own.
func TestReviveADeadLetterAmongSeveral(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{true, false} {
		f, c := enginetest.New(t)
		d := setup(t, Config{Client: c, KeepDeadLetters: time.Hour})
		delivery := enginetest.WaitingDelivery()
		delivery.State, delivery.CompletedAt, delivery.WorkflowID = webhook.StateDeadLettered, time.Now().Add(-2*time.Hour), "dead/fanout/x/0"
		f.There = map[string]enumspb.WorkflowExecutionStatus{"dead/fanout/x/0": enginetest.Running}
		f.Members = []workflows.Status{{}}
		if there {
			f.Members = append(f.Members, workflows.Status{Ref: delivery.Ref})
		}
		require.NoError(t, d.Revivals.Revive(t.Context(), &delivery, webhook.PendingCommand{}))
		if !there {
			require.Equal(t, delivery.Ref.WorkflowID(delivery.Run), f.Started()[0].GetWorkflowId())
			continue
		}
		require.Empty(t, f.Started())
		require.Len(t, f.Signalled, 1)
		require.Equal(t, "dead/fanout/x/0", f.Signalled[0].GetWorkflowExecution().GetWorkflowId())
		signal := enginetest.InputOf[workflows.CommandSignal](t, f.Signalled[0].GetInput())
		require.Equal(t, webhook.ReasonRetention, signal.Reason)
		require.Equal(t, delivery.DeliveryID, signal.DeliveryID)
	}
}
