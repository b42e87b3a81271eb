package app

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/everpost/everpost/internal/temporalconn/temporalconntest"
)

// frontend is as much of Temporal as a worker without tasks needs. A real one cannot lose a namespace that it has just served.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer

	address string

	mu    sync.Mutex
	lost  chan struct{} // closed while the namespace is gone
	calls []string      // "start" and "shutdown", as they came
}

func newFrontend(t *testing.T) *frontend {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &frontend{address: l.Addr().String(), lost: make(chan struct{})}
	temporalconntest.Serve(t, l, f)
	return f
}

// lose removes the namespace, also for pollers in it; find restores it.
func (f *frontend) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.lost)
}

func (f *frontend) find() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = make(chan struct{})
}

func (f *frontend) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *frontend) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *frontend) gone() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// poll waits for a task that never comes.
func (f *frontend) poll(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.gone():
		return serviceerror.NewNamespaceNotFound("default")
	}
}

func (f *frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

func (f *frontend) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	select {
	case <-f.gone():
		return nil, serviceerror.NewNamespaceNotFound("default")
	default:
		return &workflowservice.DescribeNamespaceResponse{}, nil
	}
}

func (f *frontend) PollWorkflowTaskQueue(
	ctx context.Context, _ *workflowservice.PollWorkflowTaskQueueRequest,
) (*workflowservice.PollWorkflowTaskQueueResponse, error) {
	return &workflowservice.PollWorkflowTaskQueueResponse{}, f.poll(ctx)
}

func (f *frontend) PollActivityTaskQueue(
	ctx context.Context, _ *workflowservice.PollActivityTaskQueueRequest,
) (*workflowservice.PollActivityTaskQueueResponse, error) {
	return &workflowservice.PollActivityTaskQueueResponse{}, f.poll(ctx)
}

func (f *frontend) StartWorkflowExecution(
	context.Context, *workflowservice.StartWorkflowExecutionRequest,
) (*workflowservice.StartWorkflowExecutionResponse, error) {
	f.note("start")
	return &workflowservice.StartWorkflowExecutionResponse{RunId: "a run"}, nil
}

func (f *frontend) ShutdownWorker(context.Context, *workflowservice.ShutdownWorkerRequest) (*workflowservice.ShutdownWorkerResponse, error) {
	f.note("shutdown")
	return &workflowservice.ShutdownWorkerResponse{}, nil
}
