package temporald

import (
	"context"
	"errors"
	"strings"
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
	e := store.(*executions)
	key := func() run { return runOf(s.ShardID, s.NamespaceID, s.WorkflowID, s.RunID) }
	for name, change := range map[string]func(branch []byte, there *p.WorkflowSnapshot) error{
		"update": func(branch []byte, there *p.WorkflowSnapshot) error {
			mutation, events := tests.RandomMutation(t, s.NamespaceID, s.WorkflowID, s.RunID, there.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, there.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.UpdateWorkflowExecution(t.Context(), &p.UpdateWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.UpdateWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
				UpdateWorkflowMutation: *mutation, UpdateWorkflowEvents: events,
			})
			return err
		},
		"set": func(branch []byte, there *p.WorkflowSnapshot) error {
			snapshot, _ := tests.RandomSnapshot(t, s.NamespaceID, s.WorkflowID, s.RunID, there.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, there.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.SetWorkflowExecution(t.Context(), &p.SetWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, ArchetypeID: chasm.WorkflowArchetypeID, SetWorkflowSnapshot: *snapshot,
			})
			return err
		},
		"reset": func(branch []byte, there *p.WorkflowSnapshot) error {
			snapshot, events := tests.RandomSnapshot(t, s.NamespaceID, s.WorkflowID, s.RunID, there.NextEventID, 1,
				enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, there.DBRecordVersion+1, branch)
			_, err := s.ExecutionManager.ConflictResolveWorkflowExecution(t.Context(), &p.ConflictResolveWorkflowExecutionRequest{
				ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.ConflictResolveWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
				ResetWorkflowSnapshot: *snapshot, ResetWorkflowEvents: events,
			})
			return err
		},
		"delete": func([]byte, *p.WorkflowSnapshot) error {
			return store.DeleteWorkflowExecution(t.Context(), &p.DeleteWorkflowExecutionRequest{
				ShardID: s.ShardID, NamespaceID: s.NamespaceID, WorkflowID: s.WorkflowID, RunID: strings.ToUpper(s.RunID),
				ArchetypeID: chasm.WorkflowArchetypeID,
			})
		},
	} {
		s.SetupTest()
		branch, snapshot, _ := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1)
		require.Contains(t, e.created.states, key(), name)
		require.NoError(t, change(branch, snapshot), name)
		require.NotContains(t, e.created.states, key(), name)
	}
}

// Events that are left over are lost, which is told.
func TestEventsThatAreLeft(t *testing.T) {
	t.Parallel()
	s, store, _ := withState(t)
	events := []*p.InternalAppendHistoryNodesRequest{{
		ShardID: s.ShardID, Node: p.InternalHistoryNode{Events: &commonpb.DataBlob{Data: []byte("events")}},
	}}
	for name, write := range map[string]func(e *executions, events []*p.InternalAppendHistoryNodesRequest) error{
		"create": func(e *executions, events []*p.InternalAppendHistoryNodesRequest) error {
			_, err := e.CreateWorkflowExecution(t.Context(), &p.InternalCreateWorkflowExecutionRequest{NewWorkflowNewEvents: events})
			return err
		},
		"update": func(e *executions, events []*p.InternalAppendHistoryNodesRequest) error {
			return e.UpdateWorkflowExecution(t.Context(), &p.InternalUpdateWorkflowExecutionRequest{UpdateWorkflowNewEvents: events})
		},
		"update with another run": func(e *executions, events []*p.InternalAppendHistoryNodesRequest) error {
			return e.UpdateWorkflowExecution(t.Context(), &p.InternalUpdateWorkflowExecutionRequest{NewWorkflowNewEvents: events})
		},
	} {
		e := &executions{ExecutionStore: withoutTransaction{ExecutionStore: store}, created: newCreated()}
		_, internal := errors.AsType[*serviceerror.Internal](write(e, events))
		require.True(t, internal, name)
		require.Empty(t, e.created.states, name)
		require.NoError(t, write(e, nil), name)
		failed := errors.New("failed")
		e.ExecutionStore = withoutTransaction{store, failed}
		require.Equal(t, failed, write(e, events), name)
	}
}

// withoutTransaction is a store that begins none for a workflow.
type withoutTransaction struct {
	p.ExecutionStore

	err error
}

func (w withoutTransaction) CreateWorkflowExecution(
	context.Context, *p.InternalCreateWorkflowExecutionRequest,
) (*p.InternalCreateWorkflowExecutionResponse, error) {
	return &p.InternalCreateWorkflowExecutionResponse{}, w.err
}

func (w withoutTransaction) UpdateWorkflowExecution(context.Context, *p.InternalUpdateWorkflowExecutionRequest) error {
	return w.err
}

// What is refused leaves none of its events.
func TestRefusedLeavesNoEvents(t *testing.T) {
	t.Parallel()
	s, _, sent := withState(t)
	dbs, err := openDatabases(t.Context(), sent.URL())
	require.NoError(t, err)
	conn, err := dbs.connect(t.Context(), MainDatabase)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	count := func() (nodes int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM history_node").Scan(&nodes))
		return nodes
	}
	branch, there, _ := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1)
	before := count()
	require.NotZero(t, before)
	create := func(workflow string, rangeID int64) error {
		const id = "0f0e0d0c-0b0a-0908-0706-050403020100"
		snapshot, events := tests.RandomSnapshot(t, s.NamespaceID, workflow, id, 1, 1,
			enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1,
			tests.RandomBranchToken(s.NamespaceID, workflow, id, s.HistoryBranchUtil))
		_, err := s.ExecutionManager.CreateWorkflowExecution(t.Context(), &p.CreateWorkflowExecutionRequest{
			ShardID: s.ShardID, RangeID: rangeID, Mode: p.CreateWorkflowModeBrandNew, ArchetypeID: chasm.WorkflowArchetypeID,
			NewWorkflowSnapshot: *snapshot, NewWorkflowEvents: events,
		})
		return err
	}
	update := func(version, rangeID int64) error {
		mutation, events := tests.RandomMutation(t, s.NamespaceID, s.WorkflowID, s.RunID, there.NextEventID, 1,
			enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, version, branch)
		_, err := s.ExecutionManager.UpdateWorkflowExecution(t.Context(), &p.UpdateWorkflowExecutionRequest{
			ShardID: s.ShardID, RangeID: rangeID, Mode: p.UpdateWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
			UpdateWorkflowMutation: *mutation, UpdateWorkflowEvents: events,
		})
		return err
	}
	_, runs := errors.AsType[*p.CurrentWorkflowConditionFailedError](create(s.WorkflowID, s.RangeID))
	require.True(t, runs)
	_, changed := errors.AsType[*p.WorkflowConditionFailedError](update(there.DBRecordVersion+2, s.RangeID))
	require.True(t, changed)
	_, lost := errors.AsType[*p.ShardOwnershipLostError](create("another", s.RangeID+1))
	require.True(t, lost)
	_, lost = errors.AsType[*p.ShardOwnershipLostError](update(there.DBRecordVersion+1, s.RangeID+1))
	require.True(t, lost)
	require.Equal(t, before, count())

	require.NoError(t, create("another", s.RangeID))
	require.NoError(t, update(there.DBRecordVersion+1, s.RangeID))
	require.Greater(t, count(), before+1)
}
