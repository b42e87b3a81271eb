package temporald

import (
	"context"
	"log/slog"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/server/chasm"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/serialization"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqltests "go.temporal.io/server/common/persistence/sql/sqlplugin/tests"
	"go.temporal.io/server/common/persistence/tests"
	"go.temporal.io/server/common/resolver"

	"github.com/everpost/everpost/internal/localpg"
)

// migrated starts a PostgreSQL with both databases of the server in it, up to date.
func migrated(t *testing.T) *databases {
	t.Helper()
	dir, err := os.MkdirTemp("", "temporald-test-") //nolint:usetesting // the directory above TempDir is closed to the database's user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	pg, err := localpg.Start(t.Context(), localpg.Options{Dir: dir, Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.WithoutCancel(t.Context()))) })
	dbs, err := openDatabases(t.Context(), pg.URL(localpg.Database))
	require.NoError(t, err)
	require.NoError(t, dbs.migrate(t.Context(), newLogger(slog.New(slog.DiscardHandler), slog.LevelError)))
	return dbs
}

// persistence is how the server stores things.
func persistence(t *testing.T, store *config.SQL) *sql.Factory {
	t.Helper()
	factory := sql.NewFactory(*store, resolver.NewNoopResolver(), clusterName, log.NewNoopLogger(), metrics.NoopMetricsHandler, serialization.NewSerializer())
	t.Cleanup(factory.Close)
	return factory
}

// TestPersistence runs the server's own tests of its persistence on connections of ours.
func TestPersistence(t *testing.T) { //nolint:tparallel // the suites share the database
	t.Parallel()
	store := migrated(t).store(MainDatabase)
	factory := persistence(t, store)
	logger, serializer := log.NewNoopLogger(), serialization.NewSerializer()

	shards, err := factory.NewShardStore()
	require.NoError(t, err)
	executions, err := factory.NewExecutionStore()
	require.NoError(t, err)
	tasks, err := factory.NewTaskStore()
	require.NoError(t, err)
	fairTasks, err := factory.NewFairTaskStore()
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
			return tests.NewExecutionMutableStateSuite(t, shards, executions, serializer, logger)
		}},
		{"mutable state's tasks", func(t *testing.T) suite.TestingSuite {
			return tests.NewExecutionMutableStateTaskSuite(t, shards, executions, serializer, logger)
		}},
		{"history", func(t *testing.T) suite.TestingSuite { return tests.NewHistoryEventsSuite(t, executions, logger) }},
		{"task queue", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueSuite(t, tasks, logger) }},
		{"fair task queue", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueSuite(t, fairTasks, logger) }},
		{"task queue's tasks", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueTaskSuite(t, tasks, logger) }},
		{"fair task queue's tasks", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueFairTaskSuite(t, fairTasks, logger) }},
		{"task queue's user data", func(t *testing.T) suite.TestingSuite { return tests.NewTaskQueueUserDataSuite(t, tasks, logger) }},

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
}
