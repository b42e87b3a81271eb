package starter

import (
	"context"
	"fmt"
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
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// frontend is as much of a Temporal as one that is asked to start things: it keeps
// what it was asked, and can be told to keep a start waiting. It is reached without a
// network, also in a bubble with a clock of its own. The real one is in standalone/e2e.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu      sync.Mutex
	starts  []*workflowservice.StartWorkflowExecutionRequest
	signals []*workflowservice.SignalWithStartWorkflowExecutionRequest
	gate    chan struct{} // closed: open
	fail    error         // of a start that would otherwise succeed
	told    []*workflowservice.SignalWorkflowExecutionRequest
	deaf    error // of a signal that would otherwise succeed

	// there is how workflows stand, by id; nil: all run.
	there   map[string]enumspb.WorkflowExecutionStatus
	members []workflows.Status // of every shared workflow; nil: none answers
	// quick are starts that neither wait nor fail.
	quick func(*workflowservice.StartWorkflowExecutionRequest) bool
	// begins: what is started is there.
	begins bool
	// tries are those of the task that a workflow has, by id; none: it has no task. inputs are
	// what workflows were started with, reasons why they were terminated.
	tries      map[string]int32
	inputs     map[string]any
	reasons    map[string]string
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

// GetWorkflowExecutionHistory tells the first or the last event.
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

// counts notes that a workflow was asked about. The caller holds the lock.
func (f *frontend) counts(id string) {
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[id]++
}

func newFrontend(t *testing.T) (*frontend, client.Client) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	f := &frontend{gate: make(chan struct{})}
	close(f.gate)
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
	gate, fail := f.gate, f.fail
	if f.quick != nil && f.quick(in) {
		gate, fail = opened(), nil
	}
	if f.begins {
		f.there[in.GetWorkflowId()] = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}
	f.mu.Unlock()
	select {
	case <-gate:
		return &workflowservice.StartWorkflowExecutionResponse{RunId: "a run"}, fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// QueryWorkflow answers with the members of every shared workflow; an error while that is nil.
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
	f.told = append(f.told, in)
	return &workflowservice.SignalWorkflowExecutionResponse{}, f.deaf
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
	if tries, busy := f.tries[in.GetExecution().GetWorkflowId()]; busy {
		answer.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: tries}
	}
	return answer, nil
}

// shut keeps all starts waiting until the function is called.
func (f *frontend) shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return func() { close(gate) }
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

// One that is alone gets a workflow of its own.
func TestOneAloneHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	start := accepted(1).Deliveries[0]
	d.start([]webhook.Start{start})
	require.Len(t, f.starts, 1)
	request := f.starts[0]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
	input := inputOf[workflows.DeliveryInput](t, request.GetInput())
	require.Equal(t, start.Ref, input.Ref)
	require.Equal(t, 1, input.Run)
	require.WithinDuration(t, start.GiveUpAt, input.GiveUpAt, 0)
}

// What gathers while a start is under way shares the next ones, as many as fit, and in
// no more workflows than it takes.
func TestWhatWaitsShares(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c, Width: 10})
	open := f.shut()
	first, rest := accepted(1), accepted(25)
	d.Accepted(first)
	d.workers.Go(d.serve)
	require.Eventually(t, func() bool { return len(f.started()) == 1 }, 20*time.Second, time.Millisecond)
	d.Accepted(rest)
	open()
	require.Eventually(t, func() bool { return len(f.started()) == 4 }, 20*time.Second, time.Millisecond)
	d.Stop()
	require.Equal(t, first.Deliveries[0].WorkflowID(), f.starts[0].GetWorkflowId(), "it was alone")

	var got []workflows.FanoutDelivery
	for i, width := range []int{10, 10, 5} {
		request := f.starts[1+i]
		require.Equal(t, "FanoutWorkflow", request.GetWorkflowType().GetName())
		require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
		group := rest.Deliveries[len(got):][:width]
		require.Equal(t, workflows.FanoutID(group), request.GetWorkflowId())
		require.Contains(t, string(request.GetUserMetadata().GetSummary().GetData()), fmt.Sprintf("%d deliveries", width))
		input := inputOf[workflows.FanoutInput](t, request.GetInput())
		got = append(got, input.Deliveries...)
	}
	for i, start := range rest.Deliveries {
		require.Equal(t, start.Ref, got[i].Ref, "each once, in their order")
		require.WithinDuration(t, start.GiveUpAt, got[i].GiveUpAt, 0)
	}
	require.Empty(t, d.room.guests)
}

// What waits for a time or is a later run does not share. What was taken up before does.
func TestWhoNeverShares(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	all := accepted(6).Deliveries
	all[0].NotBefore = time.Now().Add(time.Hour)
	all[1].Run = 2
	all[2].Relayed = 2
	all[3].NotBefore, all[3].Relayed = time.Now().Add(-time.Second), 1 // its time has come
	d.start(all)
	var own []string
	shared := 0
	for _, request := range f.started() {
		if request.GetWorkflowType().GetName() == "FanoutWorkflow" {
			shared++
			require.Equal(t, workflows.FanoutID(all[2:]), request.GetWorkflowId())
			continue
		}
		own = append(own, request.GetWorkflowId())
	}
	require.Equal(t, 1, shared)
	require.Equal(t, []string{all[0].WorkflowID()}, own)
	require.Len(t, f.signals, 1, "a later run may find its dead letter alive")
	require.Equal(t, all[1].WorkflowID(), f.signals[0].GetWorkflowId())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, f.signals[0].GetWorkflowIdReusePolicy())
}

// Whether a delivery's time has come is told by the database's clock, not by the process's.
func TestTheDatabasesClockSaysWhoWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		off, ahead time.Duration // the database's clock; deliver_at, by it
		waits      bool
	}{
		"it is ahead, and the time has come":   {10 * time.Minute, -time.Minute, false},
		"it is ahead, and the time is to come": {10 * time.Minute, time.Minute, true},
		"it is behind, and the time has come":  {-10 * time.Minute, -time.Minute, false},
		"it is behind, and the time is ahead":  {-10 * time.Minute, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now().Add(test.off)
			set := func(all webhook.Accepted) webhook.Accepted {
				for i := range all.Deliveries {
					all.Deliveries[i].NotBefore = now.Add(test.ahead)
				}
				return all
			}
			f, client := newFrontend(t)
			d := setup(t, Config{Client: client, LocalWorker: true, Now: func() time.Time { return now }})

			// Its payload is handed over when it may be sent at once, and it may share a workflow then.
			all := set(accepted(ownWidth + 1))
			d.Accepted(all)
			_, handedOver := d.Fresh().Take(all.Deliveries[0].DeliveryID)
			require.NotEqual(t, test.waits, handedOver)
			batch := d.gathered()
			require.Equal(t, test.waits, len(batch) == ownWidth, "no more go alone than can be started at a time")
			d.start(batch)
			shared, own := groups(t, f)
			require.Equal(t, test.waits, len(shared) == 0)
			require.Equal(t, test.waits, len(own) == len(batch))

			// One in trouble is set aside when its time has come.
			troubled := set(accepted(1)).Deliveries[0]
			aside := New(Config{Gate: inTrouble(troubled), Now: func() time.Time { return now }})
			aside.room.overdraw(troubled.TenantID, 1)
			require.NotEqual(t, test.waits, aside.setAside(troubled, time.Now()))
		})
	}
}

// With a width of one nobody shares; and one that is left over has its own.
func TestWidth(t *testing.T) {
	t.Parallel()
	for width, want := range map[int][2]int{1: {0, 7}, 2: {3, 1}, 3: {2, 1}, 6: {1, 1}, 7: {1, 0}, 50: {1, 0}} {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c, Width: width})
		d.start(accepted(7).Deliveries)
		got := [2]int{}
		for _, request := range f.started() {
			if request.GetWorkflowType().GetName() == "FanoutWorkflow" {
				got[0]++
			} else {
				got[1]++
			}
		}
		require.Equal(t, want, got, "width %d", width)
	}
}

// R1: a start that is repeated because its answer was lost is the same, and that it was
// made before is success.
func TestARepeatedStartIsTheSame(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	group := accepted(5).Deliveries
	d.start(group)
	f.failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	d.start(group)
	require.NoError(t, d.beginShared(t.Context(), group))
	require.NoError(t, d.begin(t.Context(), group[0]))
	require.Equal(t, f.starts[0].GetWorkflowId(), f.starts[1].GetWorkflowId())
	require.NotEqual(t, workflows.FanoutID(group), workflows.FanoutID(group[1:]), "another group is another workflow")
	require.NotEqual(t, workflows.FanoutID(group), workflows.FanoutID(append(slices.Clone(group[1:]), group[0])))
	require.True(t, strings.HasPrefix(workflows.FanoutID(group), "fanout/"+group[0].EventID.String()+"/"))
}

// What a shared workflow says of itself is what all of it have in common.
func TestFanoutAttributes(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	same := accepted(1).Deliveries[0]
	for name, test := range map[string]struct {
		change func(*webhook.Start)
		lacks  string
	}{
		"the same":         {func(*webhook.Start) {}, ""},
		"another tenant":   {func(s *webhook.Start) { s.TenantID = "other" }, "TenantId"},
		"another endpoint": {func(s *webhook.Start) { s.EndpointID = webhook.NewEndpointID() }, "EndpointId"},
		"another type":     {func(s *webhook.Start) { s.EventType = "order.sent" }, "EventType"},
	} {
		two := same
		two.EventID = webhook.NewEventID()
		test.change(&two)
		group := []webhook.Start{same, two, same}
		before := len(f.starts)
		require.NoError(t, d.beginShared(t.Context(), group), name)
		fields := f.starts[before].GetSearchAttributes().GetIndexedFields()
		for attribute, want := range map[string]string{
			"TenantId": `"acme"`, "EndpointId": `"` + same.EndpointID.String() + `"`, "EventType": `"order.paid"`,
			"EventIds": `["` + same.EventID.String() + `","` + two.EventID.String() + `"]`,
		} {
			if attribute == test.lacks {
				require.NotContains(t, fields, attribute, name)
			} else {
				require.Equal(t, want, string(fields[attribute].GetData()), "%s: %s", name, attribute)
			}
		}
		require.NotContains(t, fields, "DeliveryState", name)
	}
}

// A delivery that leaves a shared workflow goes on as what it has become; that there is
// a workflow of it already is no error, that Temporal is away is one.
func TestHandOverStartsItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	start := accepted(1).Deliveries[0]
	command := webhook.PendingCommand{ID: 3, Command: webhook.CommandDiscard, Reason: "asked"}
	h := activities.DeliveryState{
		Ref: start.Ref, Progress: webhook.Progress{Run: 1, Seq: 2, State: webhook.StateRetrying, Attempts: 2, RunAttempts: 2, Delay: time.Second},
		Command: command, Running: true, Unconfirmed: true, LastResponse: "503", Faults: 1, LastError: "away",
	}
	require.NoError(t, d.HandOver(t.Context(), h))
	request := f.starts[0]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
	require.Equal(t, workflows.DeliveryInput{
		DeliveryState: workflows.DeliveryState{
			Ref: h.Ref, Progress: h.Progress, Command: command, Running: true, Unconfirmed: true, LastResponse: "503", Faults: 1, LastError: "away",
		},
		HandedOver: true,
	}, inputOf[workflows.DeliveryInput](t, request.GetInput()))
	require.NotContains(t, request.GetSearchAttributes().GetIndexedFields(), "DeliveryState")

	h.State, h.Reason = webhook.StateDeadLettered, "http_400"
	require.NoError(t, d.HandOver(t.Context(), h))
	request = f.starts[1]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeadLetterWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
	require.Equal(t, workflows.DeadLetterInput{
		DeliveryState: workflows.DeliveryState{
			Ref: h.Ref, Progress: h.Progress, LastResponse: "503",
		},
		Discard: &workflows.CommandSignal{CommandID: 3, Reason: "asked"},
	}, inputOf[workflows.DeadLetterInput](t, request.GetInput()))
	require.JSONEq(t, `"dead_lettered"`, string(request.GetSearchAttributes().GetIndexedFields()["DeliveryState"].GetData()))

	// R3: a task that was lost has handed it over before, without what was asked since.
	f.failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	for c, name := range map[webhook.Command]string{
		webhook.CommandCancel: workflows.SignalCancel, webhook.CommandRetry: workflows.SignalRetryNow,
		webhook.CommandReschedule: workflows.SignalReschedule,
		webhook.CommandReplay:     workflows.SignalReplay, webhook.CommandDiscard: workflows.SignalDiscard,
	} {
		h.Command = webhook.PendingCommand{Command: c, Reason: "by hand"}
		require.NoError(t, d.HandOver(t.Context(), h))
		told := f.told[len(f.told)-1]
		require.Equal(t, name, told.GetSignalName())
		require.Equal(t, start.WorkflowID(), told.GetWorkflowExecution().GetWorkflowId())
		require.Equal(t, workflows.CommandSignal{Reason: "by hand", DeliveryID: start.DeliveryID}, inputOf[workflows.CommandSignal](t, told.GetInput()))
	}
	h.Command = webhook.PendingCommand{}
	require.NoError(t, d.HandOver(t.Context(), h))
	require.Len(t, f.told, 5)
	h.Command = command
	f.deaf = serviceerror.NewNotFound("it has ended")
	require.NoError(t, d.HandOver(t.Context(), h))
	f.deaf = serviceerror.NewInvalidArgument("no such signal")
	require.Error(t, d.HandOver(t.Context(), h))
	f.failing(serviceerror.NewInvalidArgument("no such attribute"))
	require.Error(t, d.HandOver(t.Context(), h))
}

// Hand-overs take turns; one that does not get its in time is left to the next try.
func TestHandOversTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Logger: slog.New(slog.DiscardHandler)})
		for range handOverTurns {
			require.True(t, d.turns.take(t.Context(), "acme", 1, 0), "all turns may be one tenant's")
		}
		begun := time.Now()
		err := d.HandOver(t.Context(), activities.DeliveryState{})
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		require.Equal(t, turnPatience, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), turnPatience/2)
		defer cancel()
		begun = time.Now()
		require.Error(t, d.HandOver(ctx, activities.DeliveryState{}))
		require.Equal(t, turnPatience/2, time.Since(begun))
		require.Equal(t, handOverTurns, d.turns.used)
	})
}

func alreadyStarted() error {
	return serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run")
}

func eventIDsKey() temporal.SearchAttributeKeyKeywordList {
	return temporal.NewSearchAttributeKeyKeywordList(workflows.AttributeEventIDs)
}

// isStartOf tells a start of the workflow of that id.
func isStartOf(id string) func(*workflowservice.StartWorkflowExecutionRequest) bool {
	return func(request *workflowservice.StartWorkflowExecutionRequest) bool {
		return request.GetWorkflowId() == id
	}
}
