package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// eagerly records the first attempt of a delivery as an eager request does, before its workflow is started.
func (b *bundle) eagerly(t *testing.T, start webhook.Start, state webhook.State, status int, due time.Time) {
	t.Helper()
	decision, reason := retry.Retry, ""
	if state == webhook.StateDeadLettered {
		decision, reason = retry.Permanent, string(retry.HTTPReason(status))
	}
	_, err := b.store.Deliveries.RecordStep(t.Context(), webhook.Step{
		Ref: start.Ref, WorkflowID: start.WorkflowID(), KeepOutbox: true,
		Progress: webhook.Progress{Run: 1, Seq: 1, State: state, Reason: reason, Attempts: 1, RunAttempts: 1, DueAt: due, GiveUpAt: start.GiveUpAt},
		Attempt: &webhook.Attempt{
			Number: 1, Run: 1, StartedAt: time.Now().UTC(), Latency: time.Millisecond,
			Outcome: retry.Outcome{Decision: decision, Reason: retry.HTTPReason(status), Status: status},
		},
	})
	require.NoError(t, err)
}

// R7: a command that comes before the workflow knows the status comes after the eager attempt, which does not count as the attempt
// of a retry.
func TestCommandBeforeTheStatusIsKnown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal string
		input  func(now time.Time) any
		within time.Duration // until the second attempt
	}{
		"retry":              {workflows.SignalRetryNow, func(time.Time) any { return nil }, time.Minute},
		"reschedule, sooner": {workflows.SignalReschedule, func(now time.Time) any { return now.Add(10 * time.Minute).Format(time.RFC3339) }, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			start := b.accept(t, time.Time{})
			due := time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
			b.eagerly(t, start, webhook.StateRetrying, 503, due)
			l := b.begin(t, start, time.Hour)
			began := l.now
			l.run(after(0, signal(test.signal, test.input(began))))
			l.ends(webhook.StateDelivered, "")
			require.Equal(t, 1, b.receiver.Count(), "the first one was eager")
			require.Less(t, l.now.Sub(began), test.within)
		})
	}
}

// A discard is kept until the workflow knows the status, and no longer: it is for a dead letter that exists, not for one that
// there may be later.
func TestDiscardBeforeTheStatusIsKnown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state     webhook.State
		discarded bool
	}{
		"a dead letter":     {webhook.StateDeadLettered, true},
		"one that may come": {webhook.StateRetrying, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			start := b.accept(t, time.Time{})
			status, due := 400, time.Time{}
			if test.state == webhook.StateRetrying {
				status, due = 503, time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
				b.receiver.Script(start.EventID.String(), receivertest.Step{Status: 400})
			}
			b.eagerly(t, start, test.state, status, due)
			l := b.begin(t, start, time.Hour)
			l.run(after(0, signal(workflows.SignalDiscard, nil)))
			require.Equal(t, test.discarded, l.dead().Discard != nil)
		})
	}
}
