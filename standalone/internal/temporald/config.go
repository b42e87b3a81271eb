package temporald

import (
	"sync/atomic"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
)

const (
	clusterName = "active"

	mainStore       = "main"
	visibilityStore = "visibility"

	// unlimited stands for the limits that protect a shared cluster from its tenants. Here there is
	// one tenant, which has limits of its own.
	unlimited = 1_000_000

	// AttributeBytes is how long the value of a search attribute may be, as JSON.
	AttributeBytes = 8 << 10

	cachedWorkflows  = 5000 // more than ten seconds' worth, for so long a task's timeout is watched
	stickyWorkflows  = 1000 // of the SDK, about 60 KB each
	queueWorkers     = 64
	cachedEventBytes = 4 << 20 // as stored; several times that in memory
	cacheTTL         = time.Minute
)

// serverConfig is what a configuration file would say.
func serverConfig(dbs *databases, ports ports, o Options) *config.Config {
	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{BroadcastAddress: loopback.String()},
		},
		Persistence: config.Persistence{
			DefaultStore:     mainStore,
			VisibilityStore:  visibilityStore,
			NumHistoryShards: int32(o.Shards), //nolint:gosec // at most maxShards
			DataStores: map[string]config.DataStore{
				mainStore:       {SQL: dbs.store(MainDatabase), FaultInjection: faultInjection(o.StoreFault)},
				visibilityStore: {SQL: dbs.store(VisibilityDatabase)},
			},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: ports.dial()},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            ports.services(),
		PublicClient:        config.PublicClient{HostPort: ports.dial()},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
	}
}

// faultInjection asks fault before each access to what workflows need.
func faultInjection(fault func() error) *config.FaultInjection {
	if fault == nil {
		return nil
	}
	return &config.FaultInjection{
		Targets: config.FaultInjectionTargets{DataStores: map[config.DataStoreName]config.FaultInjectionDataStoreConfig{
			config.ExecutionStoreName: {}, config.TaskStoreName: {}, config.ShardStoreName: {},
		}},
		Injector: func(config.FaultInjectionTarget) error { return fault() },
	}
}

// dynamicConfig is what a dynamic configuration file would say.
type dynamicConfig struct {
	dynamicconfig.StaticClient

	provisioned atomic.Bool // the search attributes exist and have been used
}

// GetValue implements dynamicconfig.Client. Until the search attributes are there,
// every part of the server reads them from the database each time it needs them,
// so that new ones can be used at once; if it did so all the time, that would cost every workflow
// a tenth of its CPU.
func (c *dynamicConfig) GetValue(key dynamicconfig.Key) []dynamicconfig.ConstrainedValue {
	if key == dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key() {
		return []dynamicconfig.ConstrainedValue{{Value: !c.provisioned.Load()}}
	}
	return c.StaticClient.GetValue(key)
}

// newDynamicConfig fills it in. The keys are the server's own constants, so one that
// is renamed does not compile.
func newDynamicConfig() *dynamicConfig {
	settings := dynamicconfig.StaticClient{
		// A delivery is started as dead letter or fresh delivery the moment it stops being the other.
		dynamicconfig.WorkflowIdReuseMinimalInterval.Key(): time.Duration(0),
		// Each shard looks for visibility tasks once a second at most. Most deliveries are
		// over by then, and of a workflow that has ended only the end is written: half the
		// writes, and visibility is the most expensive of them. The lists of the Web UI are a
		// second behind.
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): 1,
		dynamicconfig.VisibilityTaskBatchSize.Key():       500,
		// Each new task makes its shard look for tasks. Under load, so often is often enough.
		dynamicconfig.TimerProcessorMaxPollRPS.Key():    4,
		dynamicconfig.TransferProcessorMaxPollRPS.Key(): 8,
		// Timers are looked for this far apart: they fire late by up to as much.
		dynamicconfig.TimerProcessorMaxTimeShift.Key(): 100 * time.Millisecond,
		// A worker that stops has its polls ended first, so that no task is given to it that it no longer takes: such a task would wait
		// for its timeout, 10 s.
		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,
		// Temporal's own workers make the SDK's cache of workflows before ours come, so that
		// its size is what they say: see worker.Start.
		dynamicconfig.WorkerStickyCacheSize.Key(): stickyWorkflows,
		// The state of a workflow takes some 20 KB in memory, the default is 128,000 of
		// them for an hour. One that is not kept is read when it is needed; a delivery
		// is over within milliseconds, or waits for minutes.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():     cachedWorkflows,
		dynamicconfig.HistoryCacheTTL.Key():                  cacheTTL,
		dynamicconfig.EventsHostLevelCacheMaxSizeBytes.Key(): cachedEventBytes,
		dynamicconfig.EnableHostLevelEventsCache.Key():       true,
		dynamicconfig.EventsCacheTTL.Key():                   cacheTTL,
		dynamicconfig.HistoryCacheBackgroundEvict.Key(): dynamicconfig.CacheBackgroundEvictSettings{
			Enabled: true, LoopInterval: cacheTTL / 4, MaxEntryPerCall: 1024,
		},
		dynamicconfig.PersistenceHealthSignalMetricsEnabled.Key():     false,
		dynamicconfig.PersistenceHealthSignalAggregationEnabled.Key(): false,
		// All payloads lie in the histories; looking for others goes through every event.
		dynamicconfig.ExternalPayloadsEnabled.Key(): false,
		// The first workflow task comes with the answer to the start.
		dynamicconfig.SearchAttributesSizeOfValueLimit.Key(): AttributeBytes,

		dynamicconfig.EnableEagerWorkflowStart.Key():     true,
		dynamicconfig.EnableActivityEagerExecution.Key(): true,
	}
	for _, key := range []dynamicconfig.Key{
		dynamicconfig.FrontendRPS.Key(),
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key(),
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(), // "frontend.namespaceCount"
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(),
		dynamicconfig.HistoryRPS.Key(),
		dynamicconfig.MatchingRPS.Key(),
		dynamicconfig.FrontendPersistenceMaxQPS.Key(),
		dynamicconfig.HistoryPersistenceMaxQPS.Key(),
		dynamicconfig.MatchingPersistenceMaxQPS.Key(),
		dynamicconfig.WorkerPersistenceMaxQPS.Key(),
		dynamicconfig.VisibilityPersistenceMaxReadQPS.Key(),
		dynamicconfig.VisibilityPersistenceMaxWriteQPS.Key(),
		dynamicconfig.BatcherRPS.Key(),
	} {
		settings[key] = unlimited
	}
	// Thousands of idle goroutines cost memory, and every garbage collection scans their stacks.
	for _, key := range []dynamicconfig.Key{
		dynamicconfig.TimerProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.TransferProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.ReplicationProcessorSchedulerWorkerCount.Key(),
		dynamicconfig.ReplicationLowPriorityProcessorSchedulerWorkerCount.Key(),
	} {
		settings[key] = queueWorkers
	}
	return &dynamicConfig{StaticClient: settings}
}
