package namespace

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// State is what Inspect reads. A server that is not the caller's own, as Temporal Cloud, may keep its search attributes to
// itself: AttributesErr says why they were not read.
type State struct {
	ServerVersion string
	Exists        bool
	Retention     time.Duration
	Missing       []string // search attributes, sorted
	AttributesErr error    // an attribute of another type, or why they could not be listed
}

// Inspect reads a namespace without changing it. The error is that of a server that does not answer, or that does
// not admit the caller.
func Inspect(ctx context.Context, s Services, name string, want Attributes) (State, error) {
	var state State
	system, err := s.Workflow.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return state, err //nolint:wrapcheck // the caller knows what it asked for
	}
	state.ServerVersion = system.GetServerVersion()
	found, err := s.Workflow.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if isError[*serviceerror.NamespaceNotFound](err) {
		return state, nil
	}
	if err != nil {
		return state, err //nolint:wrapcheck // see above
	}
	state.Exists = true
	state.Retention = found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	state.Missing, state.AttributesErr = missingAttributes(ctx, s, name, want)
	return state, nil
}

func missingAttributes(ctx context.Context, s Services, name string, want Attributes) ([]string, error) {
	has, err := listAttributes(ctx, s, name)
	if err != nil {
		return nil, err
	}
	missing, err := want.missing(has)
	return missing.names(), err
}

// Pollers returns how many workers poll a task queue for workflows, as far as the server knows: it forgets a worker
// some minutes after its last poll.
func Pollers(ctx context.Context, s Services, namespace, taskQueue string) (int, error) {
	queue, err := s.Workflow.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: taskQueue}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
	})
	return len(queue.GetPollers()), err
}
