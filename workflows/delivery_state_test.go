package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// What an attempt's result changes, and what stays.
func TestDeliveryStateApply(t *testing.T) {
	t.Parallel()
	ref := webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID()}
	busy := time.Now().Add(time.Minute)
	retry := webhook.PendingCommand{ID: 7, Command: webhook.CommandRetry}
	cancel := webhook.PendingCommand{ID: 7, Command: webhook.CommandCancel}
	failed := webhook.Progress{Run: 1, Seq: 2, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1}
	last := &webhook.LastOutcome{Reason: "http_503", Status: 503}
	held := webhook.Progress{Run: 1, Seq: 1, State: webhook.StateHeld, Reason: webhook.ReasonPaused}
	for name, c := range map[string]struct {
		before DeliveryState
		result activities.AttemptResult
		after  DeliveryState
	}{
		"an attempt confirms its workflow, and ends faults": {
			DeliveryState{Ref: ref, Unconfirmed: true, Running: true, Faults: 2, LastError: "away", CommandDone: 3},
			activities.AttemptResult{Progress: failed, LastOutcome: last, WorkflowID: ref.WorkflowID(1)},
			DeliveryState{Ref: ref, Progress: failed, LastOutcome: last, CommandDone: 3},
		},
		"no attempt confirms nothing": {
			DeliveryState{Ref: ref, Progress: failed, Unconfirmed: true, LastOutcome: last}, activities.AttemptResult{Progress: failed},
			DeliveryState{Ref: ref, Progress: failed, Unconfirmed: true, LastOutcome: last},
		},
		"another workflow is named": {
			DeliveryState{Ref: ref}, activities.AttemptResult{Progress: failed, WorkflowID: "fanout/it"},
			DeliveryState{Ref: ref, Progress: failed, Unconfirmed: true},
		},
		"an attempt was the retry": {
			DeliveryState{Ref: ref}, activities.AttemptResult{Progress: failed, Command: retry, WorkflowID: ref.WorkflowID(1)},
			DeliveryState{Ref: ref, Progress: failed, CommandDone: 7, Unconfirmed: true},
		},
		"an attempt that is found was not the retry": {
			DeliveryState{Ref: ref}, activities.AttemptResult{Progress: failed, Command: retry, Found: true, WorkflowID: ref.WorkflowID(1)},
			DeliveryState{Ref: ref, Progress: failed, Command: retry},
		},
		"a retry is still to be made": {
			DeliveryState{Ref: ref, Progress: failed}, activities.AttemptResult{Progress: failed, Command: retry},
			DeliveryState{Ref: ref, Progress: failed, Command: retry},
		},
		"any other command is kept": {
			DeliveryState{Ref: ref}, activities.AttemptResult{Progress: failed, Command: cancel},
			DeliveryState{Ref: ref, Progress: failed, Command: cancel},
		},
		"a held delivery names no workflow": {
			DeliveryState{Ref: ref}, activities.AttemptResult{Progress: held}, DeliveryState{Ref: ref, Progress: held},
		},
		"another process is sending a held delivery": {
			DeliveryState{Ref: ref, Progress: held}, activities.AttemptResult{Progress: held, ClaimedUntil: busy},
			DeliveryState{Ref: ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StatePending, DueAt: busy}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := c.before
			state.apply(&c.result)
			require.Equal(t, c.after, state)
		})
	}
}
