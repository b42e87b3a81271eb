// Package enginetest is for tests: a Temporal frontend in memory that remembers what it was asked, and deliveries to start.
package enginetest

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/everpost/everpost/internal/temporalconn/temporalconntest"
	"github.com/everpost/everpost/workflows"
)

// Frontend is the part of a Temporal server that package engine calls. It remembers the calls, and can make starts wait or fail. It is
// reached without a network, also in a synctest bubble. The real server is tested in standalone/e2e.
type Frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu          sync.Mutex
	Starts      []*workflowservice.StartWorkflowExecutionRequest
	Signals     []*workflowservice.SignalWithStartWorkflowExecutionRequest
	answer      chan struct{} // starts are answered when it is closed
	fail        error         // of a start that would otherwise succeed
	Signalled   []*workflowservice.SignalWorkflowExecutionRequest
	FailSignals error

	// There has the status of workflows by id; nil: all run.
	There   map[string]enumspb.WorkflowExecutionStatus
	Members []workflows.Status // of every shared workflow; nil: none answers
	// Quick selects starts that neither wait nor fail.
	Quick func(*workflowservice.StartWorkflowExecutionRequest) bool
	// Begins adds what is started to There, and refuses what is there already, as the real one does.
	Begins bool
	// By workflow id: attempts of the pending task, if there is one; inputs; reasons of terminations; which keep a dead letter.
	Tries      map[string]int32
	Inputs     map[string]any
	Reasons    map[string]string
	Dead       map[string]bool
	Asked      map[string]int // how often a workflow was described or queried
	Terminated []*workflowservice.TerminateWorkflowExecutionRequest
	OnDescribe func()
}

// New returns a frontend and a client of it.
func New(t *testing.T) (*Frontend, client.Client) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	f := &Frontend{answer: opened()}
	temporalconntest.Serve(t, l, f)
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
	c, err := client.Dial(client.Options{
		HostPort: "passthrough:///frontend", ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{dial}},
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return f, c
}

func opened() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// GetSystemInfo offers nothing.
func (f *Frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

// StartWorkflowExecution notes a start, and answers when it may.
func (f *Frontend) StartWorkflowExecution(
	ctx context.Context, in *workflowservice.StartWorkflowExecutionRequest,
) (*workflowservice.StartWorkflowExecutionResponse, error) {
	f.mu.Lock()
	f.Starts = append(f.Starts, in)
	answer, fail := f.answer, f.fail
	if f.Quick != nil && f.Quick(in) {
		answer, fail = opened(), nil
	}
	if f.Begins {
		status, known := f.There[in.GetWorkflowId()]
		once := in.GetWorkflowIdReusePolicy() == enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
		if known && (once || status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) {
			fail = serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run")
		} else {
			f.There[in.GetWorkflowId()] = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		}
	}
	f.mu.Unlock()
	select {
	case <-answer:
		return &workflowservice.StartWorkflowExecutionResponse{RunId: "a run"}, fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SignalWithStartWorkflowExecution notes a signal.
func (f *Frontend) SignalWithStartWorkflowExecution(
	_ context.Context, in *workflowservice.SignalWithStartWorkflowExecutionRequest,
) (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Signals = append(f.Signals, in)
	return &workflowservice.SignalWithStartWorkflowExecutionResponse{RunId: "a run"}, nil
}

// SignalWorkflowExecution notes a signal to a workflow that runs.
func (f *Frontend) SignalWorkflowExecution(
	_ context.Context, in *workflowservice.SignalWorkflowExecutionRequest,
) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.There != nil && f.There[in.GetWorkflowExecution().GetWorkflowId()] != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, serviceerror.NewNotFound("no such workflow is running")
	}
	f.Signalled = append(f.Signalled, in)
	return &workflowservice.SignalWorkflowExecutionResponse{}, f.FailSignals
}

// TerminateWorkflowExecution notes that a workflow was terminated, and why.
func (f *Frontend) TerminateWorkflowExecution(
	_ context.Context, in *workflowservice.TerminateWorkflowExecutionRequest,
) (*workflowservice.TerminateWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.GetWorkflowExecution().GetWorkflowId()
	f.Terminated = append(f.Terminated, in)
	f.There[id] = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	if f.Reasons == nil {
		f.Reasons = map[string]string{}
	}
	f.Reasons[id] = in.GetReason()
	return &workflowservice.TerminateWorkflowExecutionResponse{}, nil
}

// DescribeWorkflowExecution answers with the status of a workflow that is there.
func (f *Frontend) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if f.OnDescribe != nil {
		f.OnDescribe()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.GetExecution().GetWorkflowId() == "" {
		return nil, serviceerror.NewInvalidArgument("WorkflowId is not set on request.") // as the real one
	}
	status, known := f.There[in.GetExecution().GetWorkflowId()]
	if !known {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	f.counts(in.GetExecution().GetWorkflowId())
	answer := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &commonpb.WorkflowExecution{WorkflowId: in.GetExecution().GetWorkflowId(), RunId: "a run"},
	}}
	if f.Dead[in.GetExecution().GetWorkflowId()] {
		answer.WorkflowExecutionInfo.Type = &commonpb.WorkflowType{Name: workflows.DeadLetterName}
	}
	if tries, busy := f.Tries[in.GetExecution().GetWorkflowId()]; busy {
		answer.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: tries}
	}
	return answer, nil
}

// QueryWorkflow answers with the members; with an error while there are none.
func (f *Frontend) QueryWorkflow(_ context.Context, in *workflowservice.QueryWorkflowRequest) (*workflowservice.QueryWorkflowResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts("query " + in.GetExecution().GetWorkflowId())
	if f.Members == nil {
		return nil, serviceerror.NewDeadlineExceeded("no worker is there")
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(f.Members)
	return &workflowservice.QueryWorkflowResponse{QueryResult: payloads}, err
}

// GetWorkflowExecutionHistory returns the first or the last event.
func (f *Frontend) GetWorkflowExecutionHistory(
	_ context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.GetExecution().GetWorkflowId()
	event := &historypb.HistoryEvent{EventId: 9, Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{
		WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Reason: f.Reasons[id]},
	}}
	if in.GetHistoryEventFilterType() == enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(f.Inputs[id])
		if err != nil {
			return nil, err
		}
		event = &historypb.HistoryEvent{EventId: 1, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: payloads},
		}}
	}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: []*historypb.HistoryEvent{event}}}, nil
}

// counts notes that a workflow was described or queried. The caller holds the lock.
func (f *Frontend) counts(id string) {
	if f.Asked == nil {
		f.Asked = map[string]int{}
	}
	f.Asked[id]++
}

// Shut makes all starts wait until open is called.
func (f *Frontend) Shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := make(chan struct{})
	f.answer = answer
	return func() { close(answer) }
}

// Failing has all starts fail with an error; nil: none.
func (f *Frontend) Failing(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// CannotWrite has all starts hang, or fail with an error; health checks are answered.
func (f *Frontend) CannotWrite(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail = err; err == nil {
		f.answer = make(chan struct{})
	}
}

// CanWrite undoes CannotWrite.
func (f *Frontend) CanWrite() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		close(f.answer)
	}
	f.fail = nil
}

// Forget forgets what was started.
func (f *Frontend) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Starts = nil
}

// Started are the starts so far, in the order of their ids.
func (f *Frontend) Started() []*workflowservice.StartWorkflowExecutionRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.Starts), func(a, b *workflowservice.StartWorkflowExecutionRequest) int {
		return strings.Compare(a.GetWorkflowId(), b.GetWorkflowId())
	})
}
