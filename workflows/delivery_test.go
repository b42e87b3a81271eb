package workflows_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// slack is how far real time, which passes in addition to the skipped one, may move a moment.
const slack = 5 * time.Second

func TestDeliveredAtTheFirstAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.deliver(t)
	l.run()
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, d.Attempts)
	require.Equal(t, 1, b.receiver.Count())
	require.Empty(t, l.timers, "nothing to wait for")
	require.Empty(t, l.states, "the happy path costs no upsert")
	require.Regexp(t, `^\*\*delivered\*\* · .*\n\nDelivered at .* UTC, with the first attempt: 200 in .* ms\.\n`, l.details(), "which cost nothing")
	require.Equal(t, d.Progress, l.status().Progress)

	request := b.receiver.Requests()[0]
	require.Equal(t, l.start.EventID.String(), request.WebhookID())
	require.Equal(t, "1", request.Header.Get("everpost-attempt"))
	require.JSONEq(t, `{"order":17}`, string(request.Body))
}

// The whole of a policy against a receiver that never accepts: every attempt is
// within the bounds that the preview promises.
func TestRetriesUntilThePolicyGivesUp(t *testing.T) {
	t.Parallel()
	for _, preset := range retry.Presets() {
		t.Run(preset.Name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, preset.Name)
			b.receiver.Default(receivertest.Step{Status: http.StatusServiceUnavailable})
			l := b.deliver(t)
			l.run()
			d := b.delivery(t, l.start.DeliveryID)
			require.Contains(t, []string{string(retry.ReasonMaxAttempts), string(retry.ReasonGiveUpTime)}, d.Reason)
			in := l.deadLettered(d.Reason)
			require.Equal(t, "503", in.LastOutcome.String())
			require.LessOrEqual(t, d.Attempts, preset.Policy.MaxAttempts)
			require.Equal(t, d.Attempts, b.receiver.Count())
			require.Equal(t, []string{"retrying", ""}, l.states, "the run that continues as another is found by no state")

			bounds := retry.Preview(preset.Policy)
			attempts := b.attempts(t, l.start.DeliveryID)
			require.Len(t, attempts, d.Attempts)
			first := attempts[0].StartedAt
			for i, a := range attempts {
				require.Equal(t, i+1, a.Number)
				require.False(t, a.StartedAt.After(l.start.GiveUpAt))
				at := a.StartedAt.Sub(first)
				require.GreaterOrEqual(t, at, bounds[i].Earliest, "attempt %d", a.Number)
				require.LessOrEqual(t, at, bounds[i].Latest+slack, "attempt %d", a.Number)
			}
			if expected := expectedAttempts(bounds); d.Reason == string(retry.ReasonMaxAttempts) {
				require.GreaterOrEqual(t, d.Attempts, expected)
			}
		})
	}
}

func expectedAttempts(bounds []retry.PreviewAttempt) (n int) {
	for _, a := range bounds {
		if a.Expected {
			n++
		}
	}
	return n
}

func TestDeliveredAtALaterAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.deliver(t)
	b.receiver.Script("/hook", receivertest.Step{Status: 500}, receivertest.Step{Status: 502}, receivertest.Step{Status: 204})
	l.run(after(time.Second, func(*testsuite.TestWorkflowEnvironment) {
		require.Equal(t, webhook.StateRetrying, l.status().State)
		require.Contains(t, l.details(), "**retrying** · `order.paid` to `"+b.endpoint.ID.String()+"`")
		require.Regexp(t, `\n\nAttempt 1 at \d+ \w+ \d{4} [0-9:]{8} UTC got 500 Internal Server Error; attempt 2 follows at [^;]+ UTC; until [^;]+ UTC\.\n`,
			l.details())
		require.Contains(t, l.details(), "- attempts: 1\n- code: retry_response\n")
	}))
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 3, d.Attempts)
	require.Equal(t, []string{"retrying", "delivered"}, l.states)
	require.Contains(t, l.details(), "**delivered**")
	require.Len(t, l.timers, 2, "one for each retry")
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	l := b.deliver(t)
	b.receiver.Script("/hook", receivertest.Step{Status: 429, Header: map[string]string{"Retry-After": "3600"}})
	l.run(after(time.Second, func(*testsuite.TestWorkflowEnvironment) {
		require.Contains(t, l.details(), "got 429 Too Many Requests and asked for a pause of 60 min; attempt 2 follows at ")
	}))
	l.ends(webhook.StateDelivered, "")
	attempts := b.attempts(t, l.start.DeliveryID)
	require.Len(t, attempts, 2)
	require.InDelta(t, time.Hour.Seconds(), attempts[1].StartedAt.Sub(attempts[0].StartedAt).Seconds(), slack.Seconds())
	require.GreaterOrEqual(t, attempts[1].StartedAt.Sub(attempts[0].StartedAt), time.Hour)
	require.Equal(t, "retry_after", attempts[0].DelaySource)
}

// What ends in the dead letter queue at once, with the reason.
func TestGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		step         receivertest.Step
	}{
		{"permanent", "http_400", receivertest.Step{Status: 400}},
		{"gone", "http_410", receivertest.Step{Status: 410}},
		{"redirect", "http_302", receivertest.Step{Status: 302, Header: map[string]string{"Location": "/elsewhere"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			b.receiver.Default(test.step)
			l := b.deliver(t)
			l.run()
			l.deadLettered(test.reason)
			require.Equal(t, 1, b.receiver.Count())
			require.Empty(t, l.states)
			require.Empty(t, l.timers)
		})
	}
}

func TestDeliverAtIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Microsecond)
	l := b.begin(t, b.accept(t, at), time.Hour)
	l.run(after(time.Hour, func(*testsuite.TestWorkflowEnvironment) {
		d := b.delivery(t, l.start.DeliveryID)
		require.Equal(t, webhook.StatePending, d.State)
		require.Equal(t, at, d.DueAt)
		require.Contains(t, l.details(), "**pending**")
	}))
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, d.Attempts)
	require.Contains(t, l.details(), "**delivered**", "the details are not left at pending")
	attempts := b.attempts(t, l.start.DeliveryID)
	require.Len(t, attempts, 1)
	require.WithinRange(t, attempts[0].StartedAt, at.Add(-50*time.Millisecond), at.Add(slack))
}

func TestEndpointThatWasDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Default(receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, func(*testsuite.TestWorkflowEnvironment) {
		require.NoError(t, b.store.Endpoints.DeleteEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID))
	}))
	d := l.ends(webhook.StateCancelled, webhook.ReasonEndpointDeleted)
	require.Equal(t, 1, d.Attempts)
	require.Equal(t, 1, b.receiver.Count())
}
