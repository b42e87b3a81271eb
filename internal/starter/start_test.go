package starter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// A single delivery gets a workflow of its own.
func TestSingleDeliveryHasItsOwnWorkflow(t *testing.T) {
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

// Deliveries that arrive during a start share the next ones, in as few workflows as possible.
func TestQueuedDeliveriesShareWorkflows(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c, MaxPerWorkflow: 10})
	open := f.shut()
	first, rest := accepted(1), accepted(25)
	d.Accepted(first)
	d.workers.Go(d.runStartLoop)
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
		require.Equal(t, webhook.SharedWorkflowID(group), request.GetWorkflowId())
		require.Contains(t, string(request.GetUserMetadata().GetSummary().GetData()), fmt.Sprintf("%d deliveries", width))
		input := inputOf[workflows.FanoutInput](t, request.GetInput())
		got = append(got, input.Deliveries...)
	}
	for i, start := range rest.Deliveries {
		require.Equal(t, start.Ref, got[i].Ref, "each once, in their order")
		require.WithinDuration(t, start.GiveUpAt, got[i].Progress.GiveUpAt, 0)
	}
	require.Zero(t, d.permits.Tenants())
}

// A scheduled delivery and a later run do not share a workflow. A relayed delivery does.
func TestScheduledHaveOwnWorkflows(t *testing.T) {
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
			require.Equal(t, webhook.SharedWorkflowID(all[1:]), request.GetWorkflowId())
			continue
		}
		own = append(own, request.GetWorkflowId())
	}
	require.Equal(t, 1, shared)
	require.Equal(t, []string{all[0].WorkflowID()}, own)
}

// Whether a delivery's time has come is decided by the database's clock, not by the process's.
func TestScheduledByDatabaseClock(t *testing.T) {
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
			all := set(accepted(concurrentStarts + 1))
			d.Accepted(all)
			_, handedOver := d.Fresh().Take(all.Deliveries[0].Ref)
			require.NotEqual(t, test.waits, handedOver)
			batch := d.nextBatch()
			require.Equal(t, test.waits, len(batch) == concurrentStarts, "no more go alone than can be started at a time")
			d.start(batch)
			shared, own := groups(t, f)
			require.Equal(t, test.waits, len(shared) == 0)
			require.Equal(t, test.waits, len(own) == len(batch))

			// A delivery to an unhealthy endpoint is parked when its time has come.
			unhealthy := set(accepted(1)).Deliveries[0]
			collecting := New(Config{Admission: unhealthyEndpoints(unhealthy), Now: func() time.Time { return now }})
			collecting.permits.Overdraw(unhealthy.TenantID, 1)
			require.NotEqual(t, test.waits, collecting.setAside(unhealthy))
		})
	}
}

// With MaxPerWorkflow 1 no delivery shares a workflow; one that is left over has its own.
func TestMaxPerWorkflow(t *testing.T) {
	t.Parallel()
	for width, want := range map[int][2]int{1: {0, 7}, 2: {3, 1}, 3: {2, 1}, 6: {1, 1}, 7: {1, 0}, 50: {1, 0}} {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c, MaxPerWorkflow: width})
		d.start(accepted(7).Deliveries)
		got := [2]int{}
		for _, request := range f.started() {
			if request.GetWorkflowType().GetName() == "FanoutWorkflow" {
				got[0]++
			} else {
				got[1]++
			}
		}
		require.Equal(t, want, got, "%d per workflow", width)
	}
}

// R1: a start that is repeated because its answer was lost is the same, and that it was made before is success.
func TestRepeatedStartIsTheSame(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	group := accepted(5).Deliveries
	d.start(group)
	f.failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	d.start(group)
	require.NoError(t, d.startDelivery(t.Context(), group[0]))
	require.Equal(t, f.starts[0].GetWorkflowId(), f.starts[1].GetWorkflowId())
	require.NotEqual(t, webhook.SharedWorkflowID(group), webhook.SharedWorkflowID(group[1:]), "another group is another workflow")
	require.NotEqual(t, webhook.SharedWorkflowID(group), webhook.SharedWorkflowID(append(slices.Clone(group[1:]), group[0])))
	require.True(t, strings.HasPrefix(webhook.SharedWorkflowID(group), "fanout/"+group[0].EventID.String()+"/"))
}

// The search attributes of a shared workflow are what all its deliveries have in common.
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
		require.NoError(t, d.startShared(t.Context(), webhook.SharedWorkflowID(group), group), name)
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

// A delivery that leaves a shared workflow continues in its own with its status, also if it had one before, which held it and has ended. It
// is no error if that workflow runs; it is one if Temporal is down.
func TestHandOverStartsItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	start := accepted(1).Deliveries[0]
	command := webhook.PendingCommand{ID: 3, Command: webhook.CommandDiscard, Reason: "asked"}
	last := &webhook.LastOutcome{Decision: retry.Retry, Reason: "http_503", Status: 503}
	h := activities.DeliveryState{
		Ref: start.Ref, Progress: webhook.Progress{Run: 1, Seq: 2, State: webhook.StateRetrying, Attempts: 2, RunAttempts: 2, Delay: time.Second},
		Command: command, Running: true, Unconfirmed: true, LastOutcome: last, Faults: 1, LastError: "away",
	}
	require.NoError(t, d.HandOver(t.Context(), h))
	request := f.starts[0]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, request.GetWorkflowIdReusePolicy())
	require.Equal(t, workflows.DeliveryInput{
		DeliveryState: workflows.DeliveryState(h), HandedOver: true,
	}, inputOf[workflows.DeliveryInput](t, request.GetInput()))
	require.NotContains(t, request.GetSearchAttributes().GetIndexedFields(), "DeliveryState")

	h.State, h.Reason = webhook.StateDeadLettered, "http_400"
	require.NoError(t, d.HandOver(t.Context(), h))
	request = f.starts[1]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeadLetterWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, request.GetWorkflowIdReusePolicy())
	require.Equal(t, workflows.DeadLetterInput{
		DeliveryState: workflows.DeliveryState{Ref: h.Ref, Progress: h.Progress, LastOutcome: last},
		Discard:       &workflows.CommandSignal{CommandID: 3, Reason: "asked"},
	}, inputOf[workflows.DeadLetterInput](t, request.GetInput()))
	require.JSONEq(t, `"dead_lettered"`, string(request.GetSearchAttributes().GetIndexedFields()["DeliveryState"].GetData()))

	// R3: a task that was lost has handed it over before, without the later command.
	f.failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	for c, name := range map[webhook.Command]string{
		webhook.CommandCancel: workflows.SignalCancel, webhook.CommandRetry: workflows.SignalRetryNow,
		webhook.CommandReschedule: workflows.SignalReschedule,
		webhook.CommandReplay:     workflows.SignalReplay, webhook.CommandDiscard: workflows.SignalDiscard,
	} {
		h.Command = webhook.PendingCommand{Command: c, Reason: "by hand"}
		require.NoError(t, d.HandOver(t.Context(), h))
		signal := f.signalled[len(f.signalled)-1]
		require.Equal(t, name, signal.GetSignalName())
		require.Equal(t, start.WorkflowID(), signal.GetWorkflowExecution().GetWorkflowId())
		run := 1
		if c == webhook.CommandReplay { // by hand it means the next run
			run = 0
		}
		require.Equal(t, workflows.CommandSignal{Reason: "by hand", Run: run, DeliveryID: start.DeliveryID},
			inputOf[workflows.CommandSignal](t, signal.GetInput()))
	}
	h.Command = webhook.PendingCommand{}
	require.NoError(t, d.HandOver(t.Context(), h))
	require.Len(t, f.signalled, 5)
	h.Command = command
	f.failSignals = serviceerror.NewNotFound("it has ended")
	require.Error(t, d.HandOver(t.Context(), h), "the next try starts another one, with the command")
	f.failSignals = serviceerror.NewInvalidArgument("no such signal")
	require.Error(t, d.HandOver(t.Context(), h))
	f.failing(serviceerror.NewInvalidArgument("no such attribute"))
	require.Error(t, d.HandOver(t.Context(), h))
}

// Hand-overs under way are bounded; one that cannot begin in time is left to the next try.
func TestHandOversAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Logger: slog.New(slog.DiscardHandler)})
		for range maxHandOvers {
			require.True(t, d.handOvers.TryAcquire("acme"), "one tenant may have all")
		}
		began := time.Now()
		err := d.HandOver(t.Context(), activities.DeliveryState{})
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		require.Equal(t, handOverTimeout, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), handOverTimeout/2)
		defer cancel()
		began = time.Now()
		require.Error(t, d.HandOver(ctx, activities.DeliveryState{}))
		require.Equal(t, handOverTimeout/2, time.Since(began))
		require.Equal(t, maxHandOvers, d.handOvers.Held("acme"))
	})
}

func alreadyStarted() error {
	return serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run")
}

func eventIDsKey() temporal.SearchAttributeKeyKeywordList {
	return temporal.NewSearchAttributeKeyKeywordList(workflows.AttributeEventIDs)
}

// isStartOf reports a start of the workflow of that id.
func isStartOf(id string) func(*workflowservice.StartWorkflowExecutionRequest) bool {
	return func(request *workflowservice.StartWorkflowExecutionRequest) bool {
		return request.GetWorkflowId() == id
	}
}
