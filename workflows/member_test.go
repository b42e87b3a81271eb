package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// What an attempt's result changes, and what stays.
func TestMemberApplies(t *testing.T) {
	t.Parallel()
	ref, now := webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID()}, time.Now()
	retry := webhook.PendingCommand{ID: 7, Command: webhook.CommandRetry}
	cancel := webhook.PendingCommand{ID: 7, Command: webhook.CommandCancel}
	failed := webhook.Progress{Run: 1, Seq: 2, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1, DueAt: now.Add(time.Hour)}
	spun := failed
	spun.DueAt = now
	later := failed
	later.DueAt = now.Add(clockSlack)
	last := &webhook.LastOutcome{Reason: "http_503", Status: 503}
	held := webhook.Progress{Run: 1, Seq: 1, State: webhook.StateHeld, Reason: webhook.ReasonPaused}
	of := func(s DeliveryState, pending ...webhook.PendingCommand) Member {
		s.Ref = ref
		return Member{DeliveryState: s, Pending: pending}
	}
	for name, c := range map[string]struct {
		before Member
		result activities.AttemptResult
		after  Member
	}{
		"an attempt confirms its workflow, and ends faults": {
			of(DeliveryState{Unconfirmed: true, Faults: 2, LastError: "away", CommandDone: 3}),
			activities.AttemptResult{Progress: failed, LastOutcome: last, WorkflowID: ref.WorkflowID(1)},
			of(DeliveryState{Progress: failed, LastOutcome: last, CommandDone: 3}),
		},
		"no attempt confirms nothing": {
			of(DeliveryState{Progress: failed, Unconfirmed: true, LastOutcome: last}), activities.AttemptResult{Progress: failed},
			of(DeliveryState{Progress: failed, Unconfirmed: true, LastOutcome: last}),
		},
		"no attempt, and no wait: the clocks differ": {
			of(DeliveryState{Progress: failed}), activities.AttemptResult{Progress: spun}, of(DeliveryState{Progress: later}),
		},
		"an attempt was the retry": {
			of(DeliveryState{}), activities.AttemptResult{Progress: failed, Command: retry, WorkflowID: ref.WorkflowID(1)},
			of(DeliveryState{Progress: failed, CommandDone: 7, Unconfirmed: true}),
		},
		"an attempt that is found was not the retry": {
			of(DeliveryState{}), activities.AttemptResult{Progress: failed, Command: retry, Found: true, WorkflowID: ref.WorkflowID(1)},
			of(DeliveryState{Progress: failed}, retry),
		},
		"a retry is still to be made": {
			of(DeliveryState{Progress: failed}), activities.AttemptResult{Progress: failed, Command: retry}, of(DeliveryState{Progress: failed}, retry),
		},
		"any other command is kept": {
			of(DeliveryState{}), activities.AttemptResult{Progress: failed, Command: cancel}, of(DeliveryState{Progress: failed}, cancel),
		},
		"held": {of(DeliveryState{}), activities.AttemptResult{Progress: held}, of(DeliveryState{Progress: held})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := c.before
			m.apply(now, &c.result)
			require.Equal(t, c.after, m)
		})
	}
}

// One command of a kind waits, the last one; a cancel by hand does not replace another. Those that have waited are carried out in
// their order.
func TestMemberKeepsOneCommandOfAKind(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(id int64, hours int) webhook.PendingCommand {
		return webhook.PendingCommand{ID: id, Command: webhook.CommandReschedule, At: now.Add(time.Duration(hours) * time.Hour)}
	}
	m := Member{
		DeliveryState: DeliveryState{Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateRetrying, GiveUpAt: now.Add(72 * time.Hour)}},
		CheckAt:       now, Synced: true,
	}
	for _, c := range []webhook.PendingCommand{
		at(1, 1), {ID: 2, Command: webhook.CommandRetry}, at(3, 2), {Command: webhook.CommandNone},
	} {
		m.receive(c)
		m.carryOut(now)
	}
	require.Equal(t, []webhook.PendingCommand{{ID: 2, Command: webhook.CommandRetry}, at(3, 2)}, m.Pending, "a request is under way")
	m.sync(now)
	require.Empty(t, m.Pending)
	require.Equal(t, []any{now.Add(2 * time.Hour), int64(3), true}, []any{m.DueAt, m.CommandDone, m.Forced})

	m.receive(webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "first"})
	m.receive(webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "second"})
	m.carryOut(now)
	require.Equal(t, webhook.PendingCommand{Command: webhook.CommandCancel, Reason: "first"}, m.Command)
	require.True(t, m.ends(now))
}

// What has been looked for in vain is looked for less and less often, and once more when the claim ends.
func TestMemberAwaitsAnotherProcess(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m, now, until := Member{}, began, began.Add(65*time.Second)
	var looks []time.Duration
	for now.Before(until) {
		m.awaitOther(now, until)
		now = m.CheckAt
		looks = append(looks, now.Sub(began))
	}
	require.Equal(t, []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 65 * time.Second}, looks)
}
