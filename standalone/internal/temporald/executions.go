package temporald

import (
	"context"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/server/chasm"
	"go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/client"
	"go.temporal.io/server/common/primitives"

	"github.com/everpost/everpost/standalone/internal/pgpipeline"
)

// persistenceOn is the server's persistence on stores of ours. Their configuration stays that of its own: by it the server
// knows that they are SQL.
func persistenceOn(p client.NewFactoryParams) client.Factory {
	p.DataStoreFactory = factory{p.DataStoreFactory}
	return client.FactoryProvider(p)
}

// factory makes the server's own stores, that of workflows with fewer round trips.
type factory struct{ persistence.DataStoreFactory }

// NewExecutionStore implements persistence.DataStoreFactory.
func (f factory) NewExecutionStore() (persistence.ExecutionStore, error) {
	store, err := f.DataStoreFactory.NewExecutionStore()
	if err != nil {
		return nil, err //nolint:wrapcheck // as in all of this file: the server looks for its own errors
	}
	return &executions{ExecutionStore: store, created: newCreated()}, nil
}

// executions stores workflows. The events of a history are written in the transaction of the state that counts them,
// instead of one before, along with the queries of which the transaction cannot do without; and the state of a workflow
// that was just created is not read from the database.
type executions struct {
	persistence.ExecutionStore

	created *created
}

// CreateWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) CreateWorkflowExecution(
	ctx context.Context, r *persistence.InternalCreateWorkflowExecutionRequest,
) (*persistence.InternalCreateWorkflowExecutionResponse, error) {
	snapshot := &r.NewWorkflowSnapshot
	key := runOf(r.ShardID, snapshot.NamespaceID, snapshot.WorkflowID, snapshot.ExecutionState.GetRunId())
	along := &pgpipeline.Along{}
	if r.ArchetypeID == chasm.WorkflowArchetypeID {
		along.Queries = []pgpipeline.Query{{Text: lockCurrentAndExecution, Args: key.ofWorkflow()}}
	}
	if err := e.hold(ctx, along, r.NewWorkflowNewEvents); err != nil {
		return nil, err
	}
	rest := *r
	rest.NewWorkflowNewEvents = nil
	e.created.begin(key)
	response, err := e.ExecutionStore.CreateWorkflowExecution(along.Take(ctx), &rest)
	if err = unlessLeft(err, along); err != nil {
		e.created.forget(key)
		return nil, err
	}
	e.created.finish(key, snapshot)
	return response, nil
}

// UpdateWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) UpdateWorkflowExecution(ctx context.Context, r *persistence.InternalUpdateWorkflowExecutionRequest) error {
	changed := &r.UpdateWorkflowMutation
	key := runOf(r.ShardID, changed.NamespaceID, changed.WorkflowID, changed.ExecutionState.GetRunId())
	e.created.forget(key)
	along := &pgpipeline.Along{}
	if r.ArchetypeID == chasm.WorkflowArchetypeID && r.Mode == persistence.UpdateWorkflowModeUpdateCurrent {
		along.Queries = []pgpipeline.Query{
			{Text: lockCurrent, Args: key.ofWorkflow()},
			{Text: lockExecution, Args: key.ofRun()},
		}
	}
	if err := e.hold(ctx, along, r.UpdateWorkflowNewEvents, r.NewWorkflowNewEvents); err != nil {
		return err
	}
	rest := *r
	rest.UpdateWorkflowNewEvents, rest.NewWorkflowNewEvents = nil, nil
	return unlessLeft(e.ExecutionStore.UpdateWorkflowExecution(along.Take(ctx), &rest), along)
}

// GetWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) GetWorkflowExecution(
	ctx context.Context, r *persistence.GetWorkflowExecutionRequest,
) (*persistence.InternalGetWorkflowExecutionResponse, error) {
	if state := e.created.take(runOf(r.ShardID, r.NamespaceID, r.WorkflowID, r.RunID)); state != nil {
		return &persistence.InternalGetWorkflowExecutionResponse{State: state, DBRecordVersion: state.DBRecordVersion}, nil
	}
	return e.ExecutionStore.GetWorkflowExecution(ctx, r) //nolint:wrapcheck // see above
}

// SetWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) SetWorkflowExecution(ctx context.Context, r *persistence.InternalSetWorkflowExecutionRequest) error {
	set := &r.SetWorkflowSnapshot
	e.created.forget(runOf(r.ShardID, set.NamespaceID, set.WorkflowID, set.ExecutionState.GetRunId()))
	return e.ExecutionStore.SetWorkflowExecution(ctx, r) //nolint:wrapcheck // see above
}

// ConflictResolveWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) ConflictResolveWorkflowExecution(ctx context.Context, r *persistence.InternalConflictResolveWorkflowExecutionRequest) error {
	reset := &r.ResetWorkflowSnapshot
	e.created.forget(runOf(r.ShardID, reset.NamespaceID, reset.WorkflowID, reset.ExecutionState.GetRunId()))
	if current := r.CurrentWorkflowMutation; current != nil {
		e.created.forget(runOf(r.ShardID, current.NamespaceID, current.WorkflowID, current.ExecutionState.GetRunId()))
	}
	return e.ExecutionStore.ConflictResolveWorkflowExecution(ctx, r) //nolint:wrapcheck // see above
}

// DeleteWorkflowExecution implements persistence.ExecutionStore.
func (e *executions) DeleteWorkflowExecution(ctx context.Context, r *persistence.DeleteWorkflowExecutionRequest) error {
	e.created.forget(runOf(r.ShardID, r.NamespaceID, r.WorkflowID, r.RunID))
	return e.ExecutionStore.DeleteWorkflowExecution(ctx, r) //nolint:wrapcheck // see above
}

// hold keeps events for the transaction that follows.
func (e *executions) hold(ctx context.Context, along *pgpipeline.Along, all ...[]*persistence.InternalAppendHistoryNodesRequest) error {
	for _, events := range all {
		for _, r := range events {
			if err := e.AppendHistoryNodes(along.Hold(ctx), r); err != nil {
				return err //nolint:wrapcheck // see above
			}
		}
	}
	return nil
}

// unlessLeft makes it an error when events were not written although their state may have been, which only another version
// of the server could bring about. It only detects that, when the state may be stored already: so the first workflow tells.
func unlessLeft(err error, along *pgpipeline.Along) error {
	if err == nil && along.Left() {
		return serviceerror.NewInternal("events were held for a transaction that was not committed") //nolint:wrapcheck // see above
	}
	return err
}

// What the server runs in a transaction that creates a workflow, and in one that changes it.
const (
	lockCurrentAndExecution = "SELECT\nce.shard_id, ce.namespace_id, ce.workflow_id, ce.run_id, ce.create_request_id, ce.state, ce.status, ce.start_time," +
		" e.last_write_version, ce.data, ce.data_encoding\nFROM current_executions ce\nINNER JOIN executions e ON e.shard_id = ce.shard_id" +
		" AND e.namespace_id = ce.namespace_id AND e.workflow_id = ce.workflow_id AND e.run_id = ce.run_id\n" +
		"WHERE ce.shard_id = $1 AND ce.namespace_id = $2 AND ce.workflow_id = $3 FOR UPDATE"
	lockCurrent = "SELECT\nshard_id, namespace_id, workflow_id, run_id, create_request_id, state, status, start_time, last_write_version," +
		" data, data_encoding\nFROM current_executions WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 FOR UPDATE"
	lockExecution = "SELECT db_record_version, next_event_id FROM executions \n" +
		" WHERE shard_id = $1 AND namespace_id = $2 AND workflow_id = $3 AND run_id = $4 FOR UPDATE"
)

// run is one of a workflow.
type run struct {
	shard                    int32
	namespace, workflow, run string
}

// runOf is the same for ids in capitals, as they may come from outside.
func runOf(shard int32, namespace, workflow, id string) run {
	return run{shard, strings.ToLower(namespace), workflow, strings.ToLower(id)}
}

// ofWorkflow are the arguments of queries about the workflow, as the server gives them.
func (r run) ofWorkflow() []any {
	namespace, _ := primitives.ParseUUID(r.namespace) // the server says what is wrong with it
	return []any{r.shard, namespace, r.workflow}
}

// ofRun are those of queries about the run.
func (r run) ofRun() []any {
	id, _ := primitives.ParseUUID(r.run)
	return append(r.ofWorkflow(), id)
}
