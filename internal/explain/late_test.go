package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Why an attempt came late stays visible when it has been made, whatever its outcome.
func TestDelayOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	delivered := retrying("http_200")
	delivered.State, delivered.DueAt, delivered.CompletedAt = webhook.StateDelivered, time.Time{}, noon()
	delivered.LastOutcome.Decision = retry.Delivered
	dead := retrying("http_503")
	dead.State, dead.Reason, dead.DueAt, dead.CompletedAt = webhook.StateDeadLettered, string(retry.ReasonMaxAttempts), time.Time{}, noon()
	for name, d := range map[string]webhook.Delivery{"delivered": delivered, "retrying": retrying("http_503"), "dead": dead} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ep := shop()
			s := Situation{Now: noon(), Delivery: d, Endpoint: &ep}
			require.NotContains(t, Delivery(s).Cause, "late")
			s.WaitedFor = webhook.ReasonNoOwner
			require.Contains(t, Delivery(s).Cause, "Before attempt 3 it waited because the worker that enforces the endpoint's limits did not answer.")
			require.NotContains(t, Delivery(s).Operator, "CPU")
			s.WaitedFor, s.Late = webhook.ReasonInternal, 45*time.Second
			e := Delivery(s)
			require.Contains(t, e.Cause, "Before attempt 3 it waited because an internal fault kept it from being sent.")
			require.Contains(t, e.Cause, "Attempt 3 began 45 s after it was due: Everpost, PostgreSQL or Temporal did not keep up, or was away.")
			require.Contains(t, e.Operator, "CPU, memory and disk")

			s.Delivery.State, s.Delivery.Reason, s.Delivery.DueAt = webhook.StateRetrying, webhook.ReasonRate, noon().Add(time.Minute)
			require.NotContains(t, Delivery(s).Cause, "45 s", "it waits again, and that is what matters")
		})
	}
}
