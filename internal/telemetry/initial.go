package telemetry

import (
	"slices"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// makeSeries makes the series of labels whose values are known, at 0. Without it the first event of a
// kind would look like no change: a counter that appears with the value 1 has not increased.
func (m *Metrics) makeSeries() {
	for _, state := range []webhook.State{webhook.StateDelivered, webhook.StateDeadLettered} {
		m.ends.WithLabelValues(state.String())
	}
	for _, reason := range []string{
		webhook.ReasonInFlight, webhook.ReasonHost, webhook.ReasonRate, webhook.ReasonCircuitOpen, webhook.ReasonCapacity,
		webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint, webhook.ReasonBacklog, webhook.ReasonNoOwner,
	} {
		m.deferred.WithLabelValues(reason)
	}
	for _, circuit := range []webhook.CircuitState{webhook.CircuitClosed, webhook.CircuitHalfOpen, webhook.CircuitOpen} {
		m.circuits.WithLabelValues(string(circuit))
	}
	for _, eventType := range []string{webhook.EventCircuitOpened, webhook.EventEndpointRecovered, webhook.EventRetryStorm, webhook.EventDeadLettered} {
		m.operationalEvents.WithLabelValues(eventType)
	}
	for _, cause := range []string{
		"missing", "malformed", string(webhook.ErrKeyUnknown), string(webhook.ErrKeyWrongSecret), string(webhook.ErrKeyExpired), string(webhook.ErrKeyRevoked),
	} {
		m.authFailures.WithLabelValues(cause)
	}
	for _, cause := range []string{"tenant", "process", "slow"} {
		m.bodiesRefused.WithLabelValues(cause)
	}
	for _, result := range []string{"sent", "refused", "failed", "given_up"} { // of the package notifier
		m.notificationMails.WithLabelValues(result)
	}
	for _, result := range forwardResults {
		m.forwarded.WithLabelValues(result)
	}
	for _, reason := range []retry.Reason{retry.ReasonMaxAttempts, retry.ReasonGiveUpTime} {
		m.retrying.deadLetters.WithLabelValues(string(reason))
	}
	for _, decision := range []retry.Decision{retry.Delivered, retry.Retry, retry.Permanent} {
		m.latency.WithLabelValues(decision.String())
		for _, number := range numberLabels() {
			m.retrying.byNumber.WithLabelValues(number, decision.String())
		}
	}
	for _, writer := range []string{"events", "ordered_events", "steps", "claims"} {
		m.commits.failures.WithLabelValues(writer)
	}
	for _, class := range []string{"2xx", "4xx", "5xx"} {
		m.api.requests.WithLabelValues("postEvent", class)
		m.api.inside.WithLabelValues("getTenantStats", class)
	}
	m.attempts.WithLabelValues(retry.Delivered.String(), string(retry.ReasonDelivered))
	for _, failure := range []string{"temporal_request_failure", "temporal_workflow_task_execution_failed"} {
		m.Temporal().Counter(failure)
	}
}

// numberLabels are the values of numberLabel.
func numberLabels() (all []string) {
	for number := 1; number <= earlyAttempts+1; number++ {
		all = append(all, numberLabel(number))
	}
	return slices.Compact(all)
}
