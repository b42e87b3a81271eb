package retry

import (
	"slices"
	"time"
)

// Outcome is what one attempt came to: everything that later decisions need, and
// nothing that a receiver could make large or secret.
type Outcome struct {
	Decision Decision `json:"decision"`
	Reason   Reason   `json:"reason"`

	// Status is the normalised status code (NormalStatus), 0 when none was read.
	Status int `json:"status,omitempty"`

	// Ambiguous marks a failure that may be permanent or may be mended (404, credentials
	// that the token server refuses): Policy.AmbiguousDelays bounds those.
	Ambiguous bool `json:"ambiguous,omitempty"`

	// DisableEndpoint asks to disable the endpoint: the receiver said 410 Gone.
	DisableEndpoint bool `json:"disable_endpoint,omitempty"`

	// Trouble says that the receiver itself is in trouble: 5xx, 429, timeouts and
	// connection errors, a name that does not exist and an invalid certificate among
	// them. Only this counts for the circuit breaker. Ambiguous outcomes never do (an
	// open circuit would only delay their verdict), nor do failures of our resolver or
	// of unknown origin.
	Trouble bool `json:"trouble,omitempty"`

	// RetryAfter is how long the receiver asked us to wait; 0 when it did not, or when
	// the decision is not Retry. It saturates at the largest Duration.
	RetryAfter time.Duration `json:"retry_after,omitempty"`

	// PaceFor is the time until the receiver's rate limit resets, when it says that
	// nothing remains of it; 0 otherwise. Set whatever the decision is, saturating.
	PaceFor time.Duration `json:"pace_for,omitempty"`
}

// Classify decides what an answer means. A status decides when there is one, also
// when the rest of the answer is broken: a receiver that said 2xx has accepted, and
// counting a cut-off body as failure would send the event twice. In doubt the
// decision is Retry: a superfluous attempt is cheap, a dropped event is not.
//
// The policy's RetryStatuses and PermanentStatuses override the table for every
// status but 2xx and 3xx. A status overridden to be retried is not ambiguous and,
// if it is 410, does not disable the endpoint. Without AmbiguousDelays an ambiguous
// outcome is permanent.
func Classify(answer Answer, policy Policy) Outcome {
	policy = policy.orDefault()
	var outcome Outcome
	if answer.Fault != FaultNone && answer.Status <= 0 {
		outcome = classifyFault(answer.Fault)
	} else {
		outcome = override(classifyStatus(answer.Status), policy)
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

// classifyStatus is the table of 10-retry.md over status codes.
func classifyStatus(status int) Outcome {
	outcome := Outcome{Decision: Retry, Reason: HTTPReason(status), Status: NormalStatus(status)}

	switch {
	case status >= 200 && status <= 299:
		outcome.Decision = Delivered
		outcome.Reason = ReasonDelivered
	case status >= 300 && status <= 399:
		// Never followed: a misconfigured endpoint, and a door for request forgery.
		outcome.Decision = Permanent
	case status == 404:
		outcome.Ambiguous = true
	case status == 408, status == 425:
		// The request is at fault, or its timing: not the receiver.
	case status == 429:
		outcome.Trouble = true
	case status == 410:
		outcome.Decision = Permanent
		outcome.DisableEndpoint = true
	case status >= 400 && status <= 499:
		outcome.Decision = Permanent
	default:
		// 5xx, and what is no final status at all: 1xx, 000, 600 and above. RFC 9110
		// section 15 has a client treat an invalid code as a 5xx.
		outcome.Trouble = true
	}

	return outcome
}

// override applies the policy's lists to what the table says.
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

// overridable says whether a policy may decide about status: not about 2xx (the
// receiver has accepted), 3xx (never followed) and 000 (no code at all).
func overridable(status int) bool {
	return NormalStatus(status) != 0 && (status < 200 || status > 399)
}

// classifyFault is the table of 10-retry.md over requests without an answer.
func classifyFault(fault Fault) Outcome {
	outcome := Outcome{Decision: Retry, Reason: ReasonUnknown}

	switch fault {
	case FaultDNSNotFound:
		// An outage like any other: names and certificates get mended within hours.
		outcome.Reason, outcome.Trouble = ReasonDNSNotFound, true
	case FaultDNSTemporary:
		outcome.Reason = ReasonDNSTemporary
	case FaultDenied:
		outcome.Decision, outcome.Reason = Permanent, ReasonDeniedAddress
	case FaultConnectRefused:
		outcome.Reason, outcome.Trouble = ReasonConnectRefused, true
	case FaultConnectionReset:
		outcome.Reason, outcome.Trouble = ReasonConnectionReset, true
	case FaultUnexpectedEOF:
		outcome.Reason, outcome.Trouble = ReasonUnexpectedEOF, true
	case FaultProtocol:
		outcome.Reason, outcome.Trouble = ReasonProtocolError, true
	case FaultTLS:
		outcome.Reason, outcome.Trouble = ReasonTLSInvalid, true
	case FaultTimeoutDial:
		outcome.Reason, outcome.Trouble = ReasonTimeoutDial, true
	case FaultTimeoutTLS:
		outcome.Reason, outcome.Trouble = ReasonTimeoutTLS, true
	case FaultTimeoutHeaders:
		outcome.Reason, outcome.Trouble = ReasonTimeoutHeaders, true
	case FaultTimeoutBody:
		outcome.Reason, outcome.Trouble = ReasonTimeoutBody, true
	case FaultTimeoutTotal:
		outcome.Reason, outcome.Trouble = ReasonTimeoutTotal, true
	case FaultTokenRefused:
		// Wrong credentials, or those of tomorrow; the receiver has not been asked.
		outcome.Reason, outcome.Ambiguous = ReasonTokenRefused, true
	case FaultTokenUnavailable:
		// Another server than the receiver: as a resolver that fails.
		outcome.Reason = ReasonTokenUnavailable
	case FaultNone, FaultUnknown:
		// In doubt: retry, and nothing is held against the receiver.
	}

	return outcome
}
