package engine

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// A delivery that leaves a shared workflow continues in its own with its status, also if it had one before, which held it and has ended. It
// is no error if that workflow runs; it is one if Temporal is down.
func TestHandOverStartsItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	start := enginetest.Accepted(1).Deliveries[0]
	command := webhook.PendingCommand{ID: 3, Command: webhook.CommandDiscard, Reason: "asked"}
	last := &webhook.LastOutcome{Decision: retry.Retry, Reason: "http_503", Status: 503}
	h := activities.DeliveryState{
		Ref: start.Ref, Progress: webhook.Progress{Run: 1, Seq: 2, State: webhook.StateRetrying, Attempts: 2, RunAttempts: 2, Delay: time.Second},
		Command: command, Running: true, Unconfirmed: true, LastOutcome: last, Faults: 1, LastError: "away",
	}
	require.NoError(t, d.HandOvers.HandOver(t.Context(), h))
	request := f.Starts[0]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, request.GetWorkflowIdReusePolicy())
	require.Equal(t, workflows.DeliveryInput{
		DeliveryState: workflows.DeliveryState(h), HandedOver: true,
	}, enginetest.InputOf[workflows.DeliveryInput](t, request.GetInput()))
	require.NotContains(t, request.GetSearchAttributes().GetIndexedFields(), "DeliveryState")

	// R3: a task that was lost has handed it over before, without the later command.
	f.Failing(serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run"))
	for c, name := range map[webhook.Command]string{
		webhook.CommandCancel: workflows.SignalCancel, webhook.CommandRetry: workflows.SignalRetryNow,
		webhook.CommandReschedule: workflows.SignalReschedule,
		webhook.CommandReplay:     workflows.SignalReplay, webhook.CommandDiscard: workflows.SignalDiscard,
	} {
		h.Command = webhook.PendingCommand{Command: c, Reason: "by hand"}
		require.NoError(t, d.HandOvers.HandOver(t.Context(), h))
		signal := f.Signalled[len(f.Signalled)-1]
		require.Equal(t, name, signal.GetSignalName())
		require.Equal(t, start.WorkflowID(), signal.GetWorkflowExecution().GetWorkflowId())
		run := 1
		if c == webhook.CommandReplay { // by hand it means the next run
			run = 0
		}
		require.Equal(t, workflows.CommandSignal{Reason: "by hand", Run: run, DeliveryID: start.DeliveryID},
			enginetest.InputOf[workflows.CommandSignal](t, signal.GetInput()))
	}
	h.Command = webhook.PendingCommand{}
	require.NoError(t, d.HandOvers.HandOver(t.Context(), h))
	require.Len(t, f.Signalled, 5)
	h.Command = command
	f.FailSignals = serviceerror.NewNotFound("it has ended")
	require.Error(t, d.HandOvers.HandOver(t.Context(), h), "the next try starts another one, with the command")
	f.FailSignals = serviceerror.NewInvalidArgument("no such signal")
	require.Error(t, d.HandOvers.HandOver(t.Context(), h))
	f.Failing(serviceerror.NewInvalidArgument("no such attribute"))
	require.Error(t, d.HandOvers.HandOver(t.Context(), h))
}

// Hand-overs under way are bounded; one that cannot begin in time is left to the next try.
func TestHandOversAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Logger: slog.New(slog.DiscardHandler)})
		for range maxHandOvers {
			require.True(t, d.HandOvers.permits.TryAcquire("acme"), "one tenant may have all")
		}
		began := time.Now()
		err := d.HandOvers.HandOver(t.Context(), activities.DeliveryState{})
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
		require.Equal(t, handOverTimeout, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), handOverTimeout/2)
		defer cancel()
		began = time.Now()
		require.Error(t, d.HandOvers.HandOver(ctx, activities.DeliveryState{}))
		require.Equal(t, handOverTimeout/2, time.Since(began))
		require.Equal(t, maxHandOvers, d.HandOvers.permits.Held("acme"))
	})
}
