package explain

import (
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Summaries of operational events, and the reasons for which an endpoint is disabled.

// GivenUp says that a delivery was given up.
func GivenUp(attempts int, reason string) string {
	return sentence("the delivery was given up after " + count(attempts, "attempt") + ": " + Brief(reason))
}

// CircuitOpened says why an endpoint's circuit has opened.
func CircuitOpened(cause string) string {
	return sentence("the circuit of the endpoint is open: " + WhyOpen(cause))
}

// Recovered says that an endpoint's circuit has closed again.
func Recovered(after time.Duration) string {
	return sentence("the endpoint takes requests again, " + elapsed(after) + " after its circuit has opened")
}

// RetryStorm says how many requests an endpoint got within 15 minutes.
func RetryStorm(first, retries int) string {
	return sentence(fmt.Sprintf("within 15 min the endpoint was sent %s and %s", count(first, "first attempt"), count(retries, "retry")))
}

// StateChanged says that an endpoint was paused, disabled or resumed.
func StateChanged(e *webhook.Endpoint) string {
	const held = "its deliveries are held until it is resumed"
	switch e.State {
	case webhook.EndpointActive:
		return sentence("the endpoint is active again", "its held deliveries are released")
	case webhook.EndpointPaused:
		return sentence("the endpoint is paused", held)
	case webhook.EndpointDisabled:
	}
	return sentence("the endpoint is disabled, because "+foreign(e.StateReason), held)
}

// ReplayQueued is why a replay does not run yet.
const ReplayQueued = "waits until fewer replays of the tenant, or of all tenants, run"

// ReplayCompleted says how a replay ended.
func ReplayCompleted(r *webhook.Replay) string {
	return sentence(fmt.Sprintf("the replay is complete: %d released, of which %d %s delivered and %d %s not at the first attempt",
		r.Released, r.Delivered, were(int(r.Delivered)), r.Failed, were(int(r.Failed))))
}

// What comes before the last failure in the reason of an endpoint that is disabled.
const (
	lastWith       = ", the last with "
	lastFailedWith = ", the last failed with "
)

// DisabledGone is the reason of an endpoint that is disabled because its receiver answered 410.
const DisabledGone = "the receiver answered 410: it accepts no more events"

// DisabledRefused is the reason of an endpoint that is disabled because so many requests in a row were refused.
func DisabledRefused(n int, last string) string {
	return fmt.Sprintf("%s in a row %s refused permanently"+lastWith+"%s", count(n, "request"), were(n), Outcome(last))
}

// DisabledExhausted is the reason of an endpoint that is disabled because so many deliveries were given up.
func DisabledExhausted(n int, last string) string {
	return fmt.Sprintf("%s %s given up within 24 hours and none was delivered"+lastFailedWith+"%s", count(n, "delivery"), were(n), Outcome(last))
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
