package retry

import (
	"slices"
	"time"
)

// Outcome is the result of one attempt. It has everything that later decisions need, and
// nothing that a receiver could make large or that could be secret.
type Outcome struct {
	Decision Decision `json:"decision"`
	Reason   Reason   `json:"reason"`

	// Status is the normalised status code (NormalStatus), 0 if none was read.
	Status int `json:"status,omitempty"`

	// Ambiguous marks a failure that may be permanent or temporary (404, credentials that
	// the token server refuses). Policy.AmbiguousDelays limits the attempts after these.
	Ambiguous bool `json:"ambiguous,omitempty"`

	// DisableEndpoint requests that the endpoint is disabled: the receiver answered 410 Gone.
	DisableEndpoint bool `json:"disable_endpoint,omitempty"`

	// BreakerFailure counts as a failure for the circuit breaker: 5xx, 429, timeouts, connection
	// errors, a name that does not exist and an invalid certificate. Ambiguous outcomes do
	// not count, because an open circuit would only delay their verdict. Failures of the
	// local resolver and failures of unknown origin do not count either.
	BreakerFailure bool `json:"trouble,omitempty"`

	// RetryAfter is the delay that the receiver requested; 0 if it requested none, or if
	// the decision is not Retry. It saturates at the largest Duration.
	RetryAfter time.Duration `json:"retry_after,omitempty"`

	// PaceFor is the time until the receiver's rate limit resets, if a response field says
	// that the limit is exhausted; else 0. It is set for every decision and saturates.
	PaceFor time.Duration `json:"pace_for,omitempty"`
}

// Classify decides what an answer means. If a status was read, it decides, even if the rest
// of the response is broken: a receiver that answered 2xx has accepted the event, and a
// retry would deliver it twice. In doubt the decision is Retry: a superfluous attempt costs
// less than a lost event.
//
// The policy's RetryStatuses and PermanentStatuses override the table for every
// status but 2xx and 3xx. A status overridden to be retried is not ambiguous and,
// if it is 410, does not disable the endpoint. Without AmbiguousDelays an ambiguous
// outcome is permanent.
//
// The redirects in accepted count as delivered; any other redirect is permanent.
func Classify(answer Answer, policy Policy, accepted ...int) Outcome {
	policy = policy.orDefault()
	var outcome Outcome
	if answer.Failure != FailureNone && answer.Status <= 0 {
		outcome = classifyFailure(answer.Failure)
	} else {
		outcome = override(classifyStatus(answer.Status), policy)
	}
	if outcome.Status >= 300 && outcome.Status <= 399 && slices.Contains(accepted, outcome.Status) {
		outcome.Decision, outcome.Reason = Delivered, ReasonDelivered
	}
	if outcome.Ambiguous && len(policy.AmbiguousDelays) == 0 {
		outcome.Decision, outcome.Ambiguous = Permanent, false
	}

	reference := answer.reference()
	if outcome.Decision == Retry {
		outcome.RetryAfter = retryAfter(answer.RetryAfter, reference)
	}
	outcome.PaceFor = paceFor(answer, reference)

	return outcome
}

// classifyStatus classifies a status code; docs/retries.md has the table.
func classifyStatus(status int) Outcome {
	outcome := Outcome{Decision: Retry, Reason: HTTPReason(status), Status: NormalStatus(status)}

	switch {
	case status >= 200 && status <= 299:
		outcome.Decision = Delivered
		outcome.Reason = ReasonDelivered
	case status >= 300 && status <= 399:
		// Redirects are never followed: the endpoint is misconfigured, unless Classify is told otherwise, and following them would allow request forgery.
		outcome.Decision = Permanent
	case status == 404:
		outcome.Ambiguous = true
	case status == 408, status == 425:
		// The failure comes from the request or its timing, not from the receiver's health.
	case status == 429:
		outcome.BreakerFailure = true
	case status == 410:
		outcome.Decision = Permanent
		outcome.DisableEndpoint = true
	case status >= 400 && status <= 499:
		outcome.Decision = Permanent
	default:
		// 5xx, and what is no final status: 1xx, 000, 600 and above. RFC 9110 section 15
		// requires a client to treat an invalid code as a 5xx.
		outcome.BreakerFailure = true
	}

	return outcome
}

// override applies the policy's status lists to the outcome of classifyStatus.
func override(outcome Outcome, policy Policy) Outcome {
	switch {
	case !overridable(outcome.Status):
	case slices.Contains(policy.RetryStatuses, outcome.Status):
		outcome.Decision = Retry
		outcome.Ambiguous = false
		outcome.DisableEndpoint = false
	case slices.Contains(policy.PermanentStatuses, outcome.Status):
		outcome.Decision = Permanent
		outcome.Ambiguous = false
	}

	return outcome
}

// overridable reports whether a policy may override the status: not 2xx (the receiver has
// accepted the event), 3xx (never followed) and 000 (no status code).
func overridable(status int) bool {
	return NormalStatus(status) != 0 && (status < 200 || status > 399)
}

// classifyFailure classifies a request without a status; docs/retries.md has the table.
func classifyFailure(failure Failure) Outcome {
	outcome := Outcome{Decision: Retry, Reason: Reason(failure)}

	switch failure {
	case FailureDNSNotFound, FailureTLS,
		// Names and certificates are usually repaired within hours, so they count as an outage.
		FailureConnectRefused, FailureConnectionReset, FailureUnexpectedEOF, FailureProtocol,
		FailureProxyRefused, FailureProxyConnectFailed,
		FailureTimeoutDial, FailureTimeoutTLS, FailureTimeoutHeaders, FailureHeadersIncomplete, FailureTimeoutBody, FailureTimeoutTotal:
		outcome.BreakerFailure = true
	case FailureDenied:
		outcome.Decision = Permanent
	case FailureTokenRefused:
		// The credentials are wrong, or not valid yet. The receiver got no request.
		outcome.Ambiguous = true
	case FailureDNSTemporary, FailureTokenUnavailable:
		// The resolver or the token server failed, not the receiver.
	case FailureNone, FailureUnknown:
		outcome.Reason = ReasonUnknown
	default:
		outcome.Reason = ReasonUnknown
	}

	return outcome
}
