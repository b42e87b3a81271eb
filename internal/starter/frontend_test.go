package starter

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// frontend is the part of a Temporal server that the starter calls. It remembers the calls, and can make starts wait or fail. It is
// reached without a network, also in a synctest bubble. The real server is tested in standalone/e2e.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu          sync.Mutex
	starts      []*workflowservice.StartWorkflowExecutionRequest
	signals     []*workflowservice.SignalWithStartWorkflowExecutionRequest
	answer      chan struct{} // starts are answered when it is closed
	fail        error         // of a start that would otherwise succeed
	signalled   []*workflowservice.SignalWorkflowExecutionRequest
	failSignals error

	// there has the status of workflows by id; nil: all run.
	there   map[string]enumspb.WorkflowExecutionStatus
	members []workflows.Status // of every shared workflow; nil: none answers
	// quick selects starts that neither wait nor fail.
	quick func(*workflowservice.StartWorkflowExecutionRequest) bool
	// begins adds what is started to there, and refuses what is there already, as the real one does.
	begins bool
	// By workflow id: attempts of the pending task, if there is one; inputs; reasons of terminations; which keep a dead letter.
	tries      map[string]int32
	inputs     map[string]any
	reasons    map[string]string
	dead       map[string]bool
	asked      map[string]int // how often a workflow was described or queried
	terminated []*workflowservice.TerminateWorkflowExecutionRequest
	onDescribe func()
}

func (f *frontend) TerminateWorkflowExecution(
	_ context.Context, in *workflowservice.TerminateWorkflowExecutionRequest,
) (*workflowservice.TerminateWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.GetWorkflowExecution().GetWorkflowId()
	f.terminated = append(f.terminated, in)
	f.there[id] = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	if f.reasons == nil {
		f.reasons = map[string]string{}
	}
	f.reasons[id] = in.GetReason()
	return &workflowservice.TerminateWorkflowExecutionResponse{}, nil
}

// GetWorkflowExecutionHistory returns the first or the last event.
func (f *frontend) GetWorkflowExecutionHistory(
	_ context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.GetExecution().GetWorkflowId()
	event := &historypb.HistoryEvent{EventId: 9, Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{
		WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Reason: f.reasons[id]},
	}}
	if in.GetHistoryEventFilterType() == enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(f.inputs[id])
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
func (f *frontend) counts(id string) {
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[id]++
}

func newFrontend(t *testing.T) (*frontend, client.Client) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	f := &frontend{answer: opened()}
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			out, err := handle(ctx, in)
			if err != nil {
				return nil, serviceerror.ToStatus(err).Err()
			}
			return out, nil
		}))
	workflowservice.RegisterWorkflowServiceServer(server, f)
	alive := grpchealth.NewServer()
	alive.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, alive)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
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

func (f *frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

func (f *frontend) StartWorkflowExecution(
	ctx context.Context, in *workflowservice.StartWorkflowExecutionRequest,
) (*workflowservice.StartWorkflowExecutionResponse, error) {
	f.mu.Lock()
	f.starts = append(f.starts, in)
	answer, fail := f.answer, f.fail
	if f.quick != nil && f.quick(in) {
		answer, fail = opened(), nil
	}
	if f.begins {
		status, known := f.there[in.GetWorkflowId()]
		if known && (status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || in.GetWorkflowIdReusePolicy() == startOnce) {
			fail = serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run")
		} else {
			f.there[in.GetWorkflowId()] = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
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

// QueryWorkflow answers with the members; with an error while there are none.
func (f *frontend) QueryWorkflow(_ context.Context, in *workflowservice.QueryWorkflowRequest) (*workflowservice.QueryWorkflowResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts("query " + in.GetExecution().GetWorkflowId())
	if f.members == nil {
		return nil, serviceerror.NewDeadlineExceeded("no worker is there")
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(f.members)
	return &workflowservice.QueryWorkflowResponse{QueryResult: payloads}, err
}

func (f *frontend) SignalWithStartWorkflowExecution(
	_ context.Context, in *workflowservice.SignalWithStartWorkflowExecutionRequest,
) (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals = append(f.signals, in)
	return &workflowservice.SignalWithStartWorkflowExecutionResponse{RunId: "a run"}, nil
}

func (f *frontend) SignalWorkflowExecution(
	_ context.Context, in *workflowservice.SignalWorkflowExecutionRequest,
) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.there != nil && f.there[in.GetWorkflowExecution().GetWorkflowId()] != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, serviceerror.NewNotFound("no such workflow is running")
	}
	f.signalled = append(f.signalled, in)
	return &workflowservice.SignalWorkflowExecutionResponse{}, f.failSignals
}

func (f *frontend) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if f.onDescribe != nil {
		f.onDescribe()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.GetExecution().GetWorkflowId() == "" {
		return nil, serviceerror.NewInvalidArgument("WorkflowId is not set on request.") // as the real one
	}
	status, known := f.there[in.GetExecution().GetWorkflowId()]
	if !known {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	f.counts(in.GetExecution().GetWorkflowId())
	answer := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &commonpb.WorkflowExecution{WorkflowId: in.GetExecution().GetWorkflowId(), RunId: "a run"},
	}}
	if f.dead[in.GetExecution().GetWorkflowId()] {
		answer.WorkflowExecutionInfo.Type = &commonpb.WorkflowType{Name: workflows.DeadLetterName}
	}
	if tries, busy := f.tries[in.GetExecution().GetWorkflowId()]; busy {
		answer.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: tries}
	}
	return answer, nil
}

// shut makes all starts wait until open is called.
func (f *frontend) shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := make(chan struct{})
	f.answer = answer
	return func() { close(answer) }
}

func (f *frontend) failing(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// started are the starts so far, in the order of their ids.
func (f *frontend) started() []*workflowservice.StartWorkflowExecutionRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.starts), func(a, b *workflowservice.StartWorkflowExecutionRequest) int {
		return strings.Compare(a.GetWorkflowId(), b.GetWorkflowId())
	})
}

func inputOf[T any](t *testing.T, payloads *commonpb.Payloads) T {
	t.Helper()
	var input T
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(payloads, &input))
	return input
}

// begunBy are the deliveries of all starts, in their order.
func begunBy(t *testing.T, f *frontend) (refs []webhook.Ref) {
	t.Helper()
	shared, own := groups(t, f)
	for _, group := range shared {
		refs = append(refs, refsOfShared(group)...)
	}
	return append(refs, refsOfOwn(own)...)
}

func countBegun(t *testing.T, f *frontend) int {
	t.Helper()
	return len(begunBy(t, f))
}

func refsOfShared(group []workflows.FanoutDelivery) (refs []webhook.Ref) {
	for _, delivery := range group {
		refs = append(refs, delivery.Ref)
	}
	return refs
}

func refsOfOwn(own []workflows.DeliveryInput) (refs []webhook.Ref) {
	for _, one := range own {
		refs = append(refs, one.Ref)
	}
	return refs
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
