package temporald

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	enumsspb "go.temporal.io/server/api/enums/v1"
	persistencespb "go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/chasm"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	p "go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/serialization"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqltests "go.temporal.io/server/common/persistence/sql/sqlplugin/tests"
	"go.temporal.io/server/common/persistence/tests"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/service/history/tasks"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/standalone/internal/pgpipeline/pgpipelinetest"
)

// migrated starts a PostgreSQL with both databases of the server in it, up to date, and shows what is sent to it.
func migrated(t *testing.T) (*databases, *pgpipelinetest.Recorder) {
	t.Helper()
	dir, err := os.MkdirTemp("", "temporald-test-") //nolint:usetesting // the directory above TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	pg, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.WithoutCancel(t.Context()))) })
	sent := pgpipelinetest.New(t, pg.URL(localpg.Database))
	dbs, err := openDatabases(t.Context(), sent.URL())
	require.NoError(t, err)
	require.NoError(t, dbs.migrate(t.Context(), newLogger(slog.New(slog.DiscardHandler), slog.LevelError)))
	return dbs, sent
}

// storesOf makes the server's own stores, on connections of ours.
func storesOf(t *testing.T, store *config.SQL) *sql.Factory {
	t.Helper()
	f := sql.NewFactory(*store, resolver.NewNoopResolver(), clusterName, log.NewNoopLogger(), metrics.NoopMetricsHandler, serialization.NewSerializer())
	t.Cleanup(f.Close)
	return f
}

// TestPersistence runs the server's own tests of its persistence on connections and stores of ours.
func TestPersistence(t *testing.T) { //nolint:tparallel // the suites share the database
	t.Parallel()
	dbs, _ := migrated(t)
	store := dbs.store(MainDatabase)
	stores := storesOf(t, store)
	logger, serializer := log.NewNoopLogger(), serialization.NewSerializer()

	shards, err := stores.NewShardStore()
	require.NoError(t, err)
	executions, err := factory{stores}.NewExecutionStore()
	require.NoError(t, err)
	plainExecutions, err := stores.NewExecutionStore()
	require.NoError(t, err)
	taskStore, err := stores.NewTaskStore()
	require.NoError(t, err)
	fairTasks, err := stores.NewFairTaskStore()
	require.NoError(t, err)
	db, err := sql.NewSQLDB(sqlplugin.DbKindMain, store, resolver.NewNoopResolver(), logger, metrics.NoopMetricsHandler)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })

	suites := []struct {
		name string
		make func(t *testing.T) suite.TestingSuite
	}{
		{"shard", func(t *testing.T) suite.TestingSuite { return tests.NewShardSuite(t, shards, serializer, logger) }},
		{"mutable state", func(t *testing.T) suite.TestingSuite {
			return &mutableState{tests.NewExecutionMutableStateSuite(t, shards, executions, serializer, logger)}
		}},
		{"mutable state, read from the database", func(t *testing.T) suite.TestingSuite {
			return &mutableState{tests.NewExecutionMutableStateSuite(t, shards, plainExecutions, serializer, logger)}
		}},
		{"mutable state's tasks", func(t *testing.T) suite.TestingSuite {
			return tests.NewExecutionMutableStateTaskSuite(t, shards, executions, serializer, logger)
		}},
		{"history", func(t *testing.T) suite.TestingSuite { return tests.NewHistoryEventsSuite(t, executions, logger) }},
		{"task queue", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueSuite(t, taskStore, logger) }},
		{"fair task queue", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueSuite(t, fairTasks, logger) }},
		{"task queue's tasks", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueTaskSuite(t, taskStore, logger) }},
		{"fair task queue's tasks", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueFairTaskSuite(t, fairTasks, logger) }},
		{"task queue's user data", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueUserDataSuite(t, taskStore, logger) }},

		{"rows of namespaces", func(t *testing.T) suite.TestingSuite { return sqltests.NewNamespaceSuite(t, db) }},
		{"rows of shards", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryShardSuite(t, db) }},
		{"rows of histories", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryNodeSuite(t, db) }},
		{"rows of history trees", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryTreeSuite(t, db) }},
		{"rows of executions", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryExecutionSuite(t, db) }},
		{"rows of current executions", func(t *testing.T) suite.TestingSuite {
			return sqltests.NewHistoryCurrentExecutionSuite(t, db, chasm.WorkflowArchetypeID)
		}},
		{"rows of other current executions", func(t *testing.T) suite.TestingSuite {
			return sqltests.NewHistoryCurrentExecutionSuite(t, db, math.MaxUint32)
		}},
		{"rows of transfer tasks", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryTransferTaskSuite(t, db) }},
		{"rows of timer tasks", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryTimerTaskSuite(t, db) }},
		{"rows of visibility tasks", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryVisibilityTaskSuite(t, db) }},
		{"rows of buffered events", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryExecutionBufferSuite(t, db) }},
		{"rows of activities", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryExecutionActivitySuite(t, db) }},
		{"rows of timers", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryExecutionTimerSuite(t, db) }},
		{"rows of signals", func(t *testing.T) suite.TestingSuite { return sqltests.NewHistoryExecutionSignalSuite(t, db) }},
		{"rows of signal requests", func(t *testing.T) suite.TestingSuite {
			return sqltests.NewHistoryExecutionSignalRequestSuite(t, db)
		}},
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) { suite.Run(t, s.make(t)) })
	}
	t.Run("queues", func(t *testing.T) { tests.RunQueueV2TestSuiteForSQL(t, stores) })
	t.Run("endpoints", func(t *testing.T) { tests.RunNexusEndpointTestSuiteForSQL(t, stores) })
}

// mutableState is the server's suite without what differs on purpose.
type mutableState struct {
	*tests.ExecutionMutableStateSuite
}

// TestCreate_Conflict creates a run that is there already. The server would tell that from a write that may have failed,
// if the insert did not wait: see later.
func (s *mutableState) TestCreate_Conflict() {
	branch, snapshot, events := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, 1)
	_, err := s.ExecutionManager.CreateWorkflowExecution(s.Ctx, &p.CreateWorkflowExecutionRequest{
		ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.CreateWorkflowModeUpdateCurrent,
		PreviousRunID: snapshot.ExecutionState.GetRunId(), PreviousLastWriteVersion: 1,
		ArchetypeID: chasm.WorkflowArchetypeID, NewWorkflowSnapshot: *snapshot, NewWorkflowEvents: events,
	})
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	s.Require().True(unavailable, "%v", err)
	s.AssertMSEqualWithDB(chasm.WorkflowArchetypeID, snapshot)
	s.AssertHEEqualWithDB(branch, events)
}

// withState is the server's suite of mutable states outside of its own tests, and what it sends.
func withState(t *testing.T) (*tests.ExecutionMutableStateSuite, p.ExecutionStore, *pgpipelinetest.Recorder) {
	t.Helper()
	dbs, sent := migrated(t)
	stores := storesOf(t, dbs.store(MainDatabase))
	shards, err := stores.NewShardStore()
	require.NoError(t, err)
	executions, err := factory{stores}.NewExecutionStore()
	require.NoError(t, err)
	s := tests.NewExecutionMutableStateSuite(t, shards, executions, serialization.NewSerializer(), log.NewNoopLogger())
	s.SetT(t)
	s.SetupTest()
	t.Cleanup(s.TearDownTest)
	return s, executions, sent
}

// TestRoundTrips fails when a statement of the server is no longer one of those that database.go knows.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, executions, sent := withState(t)
	sent.Take()

	branch, snapshot, _ := s.CreateWorkflow(1, enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, 1)
	trips := brief(sent.Take())
	require.Equal(t, [][]string{
		{"begin", "INSERT INTO history_node", "INSERT INTO history_tree", "SELECT FROM shards", "SELECT FROM current_executions"},
		{"INSERT INTO current_executions", "INSERT INTO executions", "INSERT INTO activity_info_maps"}, // a delivery's workflow has no maps
	}, trips[:2])
	require.Equal(t, []string{"commit"}, trips[len(trips)-1])

	read := func() {
		_, err := executions.GetWorkflowExecution(t.Context(), &p.GetWorkflowExecutionRequest{
			ShardID: s.ShardID, NamespaceID: s.NamespaceID, WorkflowID: s.WorkflowID, RunID: s.RunID, ArchetypeID: chasm.WorkflowArchetypeID,
		})
		require.NoError(t, err)
	}
	read()
	require.Empty(t, sent.Take(), "it has just been created")
	for range 2 { // twice: what was read ahead is all used
		read()
		require.Equal(t, [][]string{{
			"SELECT FROM executions", "SELECT FROM activity_info_maps", "SELECT FROM timer_info_maps", "SELECT FROM child_execution_info_maps",
			"SELECT FROM request_cancel_info_maps", "SELECT FROM signal_info_maps", "SELECT FROM buffered_events", "SELECT FROM chasm_node_maps",
			"SELECT FROM signals_requested_sets",
		}}, brief(sent.Take()))
	}

	random, events := tests.RandomMutation(t, s.NamespaceID, s.WorkflowID, s.RunID, snapshot.NextEventID, 1,
		enumsspb.WORKFLOW_EXECUTION_STATE_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, snapshot.DBRecordVersion+1, branch)
	_, err := s.ExecutionManager.UpdateWorkflowExecution(t.Context(), &p.UpdateWorkflowExecutionRequest{
		ShardID: s.ShardID, RangeID: s.RangeID, Mode: p.UpdateWorkflowModeUpdateCurrent, ArchetypeID: chasm.WorkflowArchetypeID,
		UpdateWorkflowMutation: p.WorkflowMutation{ // no maps
			ExecutionInfo: random.ExecutionInfo, ExecutionState: random.ExecutionState, NextEventID: random.NextEventID,
			DBRecordVersion: random.DBRecordVersion, Condition: random.Condition,
		},
		UpdateWorkflowEvents: events,
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{
		{"begin", "INSERT INTO history_node", "SELECT FROM shards", "SELECT FROM current_executions", "SELECT FROM executions"},
		{"UPDATE current_executions SET", "UPDATE executions SET", "commit"},
	}, brief(sent.Take()))
}

// TestRoundTripsOfTasks is TestRoundTrips for the tasks of each queue.
func TestRoundTripsOfTasks(t *testing.T) {
	t.Parallel()
	s, executions, sent := withState(t)

	at := func(id int64) tasks.Key { return tasks.NewKey(time.Unix(id, 0).UTC(), id) }
	queues := []struct {
		table    string
		category tasks.Category
		key      func(int64) tasks.Key
	}{
		{"transfer_tasks", tasks.CategoryTransfer, tasks.NewImmediateKey},
		{"timer_tasks", tasks.CategoryTimer, at},
		{"visibility_tasks", tasks.CategoryVisibility, tasks.NewImmediateKey},
		{"history_immediate_tasks", tasks.CategoryOutbound, tasks.NewImmediateKey},
		{"history_scheduled_tasks", tasks.CategoryArchival, at},
	}
	blob := &commonpb.DataBlob{EncodingType: enumspb.ENCODING_TYPE_PROTO3, Data: []byte("task")}
	sent.Take()
	for _, q := range queues {
		require.NoError(t, executions.AddHistoryTasks(t.Context(), &p.InternalAddHistoryTasksRequest{
			ShardID: s.ShardID, RangeID: s.RangeID,
			Tasks: map[tasks.Category][]p.InternalHistoryTask{q.category: {{Key: q.key(1), Blob: blob}, {Key: q.key(2), Blob: blob}}},
		}))
		require.Equal(t, [][]string{{"begin", "SELECT FROM shards"}, {"INSERT INTO " + q.table, "commit"}}, brief(sent.Take()))

		lazily := [][]string{{"begin", "set local synchronous_commit", "DELETE FROM " + q.table, "commit"}}
		require.NoError(t, executions.CompleteHistoryTask(t.Context(), &p.CompleteHistoryTaskRequest{
			ShardID: s.ShardID, TaskCategory: q.category, TaskKey: q.key(1),
		}))
		require.Equal(t, lazily, brief(sent.Take()))
		require.NoError(t, executions.RangeCompleteHistoryTasks(t.Context(), &p.RangeCompleteHistoryTasksRequest{
			ShardID: s.ShardID, TaskCategory: q.category, InclusiveMinTaskKey: q.key(1), ExclusiveMaxTaskKey: q.key(3),
		}))
		require.Equal(t, lazily, brief(sent.Take()))
	}
}

// brief is what statements begin with, up to the table.
func brief(trips [][]string) [][]string {
	all := make([][]string, len(trips))
	for i, trip := range trips {
		for _, statement := range trip {
			words := strings.FieldsFunc(statement, func(r rune) bool { return strings.ContainsRune(" \n\t(", r) })
			end := min(3, len(words))
			for j, word := range words[:max(0, len(words)-1)] {
				if word == "FROM" || word == "INTO" {
					words[1], words[2], end = word, words[j+1], 3
					break
				}
			}
			all[i] = append(all[i], strings.Join(words[:end], " "))
		}
	}
	return all
}

// TestKeysThatAreThere: the server starts on what it has made before only if it learns so from the insert itself.
func TestKeysThatAreThere(t *testing.T) {
	t.Parallel()
	dbs, _ := migrated(t)
	metadata, err := storesOf(t, dbs.store(MainDatabase)).NewMetadataStore()
	require.NoError(t, err)
	create := func() error {
		blob, err := serialization.NewSerializer().NamespaceDetailToBlob(&persistencespb.NamespaceDetail{})
		require.NoError(t, err)
		_, err = metadata.CreateNamespace(t.Context(), &p.InternalCreateNamespaceRequest{
			ID: "0f0e0d0c-0b0a-0908-0706-050403020100", Name: "default", Namespace: blob,
		})
		return err
	}
	require.NoError(t, create())
	err = create()
	_, there := errors.AsType[*serviceerror.NamespaceAlreadyExists](err)
	require.True(t, there, "%v", err)
}
