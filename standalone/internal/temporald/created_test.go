package temporald

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	enumsspb "go.temporal.io/server/api/enums/v1"
	"go.temporal.io/server/chasm"
	p "go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/tests"

	"github.com/everpost/everpost/standalone/internal/pgpipeline"
)

func TestCreated(t *testing.T) {
	t.Parallel()
	a, b := runOf(1, "namespace", "workflow", "a"), runOf(1, "namespace", "workflow", "b")
	snapshot := &p.InternalWorkflowSnapshot{DBRecordVersion: 7, SignalRequestedIDs: map[string]struct{}{"signal": {}}}
	for name, test := range map[string]struct {
		then  func(c *created)
		there bool
	}{
		"written":            {func(c *created) { c.finish(a, snapshot) }, true},
		"not written yet":    {func(*created) {}, false},
		"not written":        {func(c *created) { c.forget(a) }, false},
		"changed meanwhile":  {func(c *created) { c.forget(a); c.finish(a, snapshot) }, false},
		"changed since":      {func(c *created) { c.finish(a, snapshot); c.forget(a) }, false},
		"another changed":    {func(c *created) { c.finish(a, snapshot); c.forget(b) }, true},
		"read meanwhile":     {func(c *created) { c.take(a); c.finish(a, snapshot) }, true},
		"taken":              {func(c *created) { c.finish(a, snapshot); c.take(a) }, false},
		"another was taken":  {func(c *created) { c.finish(a, snapshot); c.take(b) }, true},
		"not asked for":      {func(c *created) { c.finish(a, snapshot); <-time.After(createdFor) }, false},
		"asked for late":     {func(c *created) { c.finish(a, snapshot); <-time.After(createdFor - time.Second) }, true},
		"swept":              {func(c *created) { c.finish(a, snapshot); <-time.After(createdFor); c.begin(b) }, false},
		"there was no place": {func(c *created) { c.forget(a); fill(c); c.begin(a); c.finish(a, snapshot) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCreated()
				c.begin(a)
				test.then(c)
				state := c.take(a)
				if !test.there {
					require.Nil(t, state)
					return
				}
				require.Equal(t, int64(7), state.DBRecordVersion)
				require.Equal(t, []string{"signal"}, state.SignalRequestedIDs)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // nothing is kept for good
		c := newCreated()
		fill(c)
		require.Len(t, c.states, mostCreated)
		<-time.After(createdFor)
		c.begin(a)
		require.Len(t, c.states, 1)
	})
}

func fill(c *created) {
	for i := range mostCreated {
		c.begin(runOf(int32(i), "", "", ""))
	}
}

// What is read of a workflow that was just created is what would be read from the database.
func TestCreatedIsWhatIsStored(t *testing.T) {
	t.Parallel()
	s, _, sent := withState(t)
	_, snapshot, _ := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1)
	require.NotEmpty(t, snapshot.ActivityInfos)
	sent.Take()
	s.AssertMSEqualWithDB(chasm.WorkflowArchetypeID, snapshot)
	require.Empty(t, sent.Take())
	s.AssertMSEqualWithDB(chasm.WorkflowArchetypeID, snapshot)
	require.Len(t, sent.Take(), 1)
}

// Whoever changes a workflow that was just created makes that forgotten.
func TestChangedSinceItWasCreated(t *testing.T) {
	t.Parallel()
	s, store, _ := withState(t)
	e := store.(*executions) //nolint:forcetypeassert // a test
	run := func() run { return runOf(s.ShardID, s.NamespaceID, s.WorkflowID, s.RunID) }
	for name, change := range map[string]func(branch []byte, created *p.WorkflowSnapshot) error{
		"update": func(branch []byte, created *p.WorkflowSnapshot) error {
			mutation, events := tests.RandomMutation(t, s.NamespaceID, s.WorkflowID, s.RunID, created.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, created.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.UpdateWorkflowExecution(t.Context(), &p.UpdateWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.UpdateWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
				UpdateWorkflowMutation: *mutation, UpdateWorkflowEvents: events,
			})
			return err
		},
		"set": func(branch []byte, created *p.WorkflowSnapshot) error {
			snapshot, _ := tests.RandomSnapshot(t, s.NamespaceID, s.WorkflowID, s.RunID, created.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, created.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.SetWorkflowExecution(t.Context(), &p.SetWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, ArchetypeID: chasm.WorkflowArchetypeID, SetWorkflowSnapshot: *snapshot,
			})
			return err
		},
		"reset": func(branch []byte, created *p.WorkflowSnapshot) error {
			snapshot, events := tests.RandomSnapshot(t, s.NamespaceID, s.WorkflowID, s.RunID, created.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, created.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.ConflictResolveWorkflowExecution(t.Context(), &p.ConflictResolveWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.ConflictResolveWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
				ResetWorkflowSnapshot: *snapshot, ResetWorkflowEvents: events,
			})
			return err
		},
		"delete": func([]byte, *p.WorkflowSnapshot) error {
			return store.DeleteWorkflowExecution(t.Context(), &p.DeleteWorkflowExecutionRequest{
				ShardID: s.ShardID, NamespaceID: s.NamespaceID, WorkflowID: s.WorkflowID, RunID: s.RunID, ArchetypeID: chasm.WorkflowArchetypeID,
			})
		},
	} {
		s.SetupTest()
		branch, snapshot, _ := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1)
		require.Contains(t, e.created.states, run(), name)
		require.NoError(t, change(branch, snapshot), name)
		require.NotContains(t, e.created.states, run(), name)
	}
}

// Events that are left over would be lost.
func TestUnlessLeft(t *testing.T) {
	t.Parallel()
	s, store, _ := withState(t)
	e := store.(*executions) //nolint:forcetypeassert // a test
	along := &pgpipeline.Along{}
	require.NoError(t, unlessLeft(nil, along))
	require.NoError(t, e.hold(t.Context(), along, []*p.InternalAppendHistoryNodesRequest{{
		ShardID: s.ShardID, Node: p.InternalHistoryNode{Events: &commonpb.DataBlob{Data: []byte("events")}},
	}}))
	_, internal := errors.AsType[*serviceerror.Internal](unlessLeft(nil, along))
	require.True(t, internal)
	failed := errors.New("failed")
	require.Equal(t, failed, unlessLeft(failed, along))
}
