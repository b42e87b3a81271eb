package retry

import (
	"fmt"
	"slices"
	"strings"
)

// Reason says in one word why an attempt or a delivery ended as it did. It is the
// label of metrics and a filter of the API, so the set is closed: the constants
// below and the http_<code> made by HTTPReason. (A delivery that a person ended
// may carry that person's words instead; those are not of this type's set.)
type Reason string

// Reasons of an attempt, beside http_<code>.
const (
	ReasonDelivered       Reason = "delivered"
	ReasonDNSNotFound     Reason = "dns_not_found"
	ReasonDNSTemporary    Reason = "dns_temporary"
	ReasonConnectRefused  Reason = "connect_refused"
	ReasonConnectionReset Reason = "connection_reset"
	ReasonUnexpectedEOF   Reason = "unexpected_eof"
	ReasonProtocolError   Reason = "protocol_error"
	ReasonTLSInvalid      Reason = "tls_invalid"
	ReasonTimeoutDial     Reason = "timeout_dial"
	ReasonTimeoutTLS      Reason = "timeout_tls"
	ReasonTimeoutHeaders  Reason = "timeout_headers"
	ReasonTimeoutBody     Reason = "timeout_body"
	ReasonTimeoutTotal    Reason = "timeout_total"
	ReasonDeniedAddress   Reason = "denied_address"
	ReasonPayloadCorrupt  Reason = "payload_corrupt"
	ReasonUnknown         Reason = "unknown"

	// ReasonTokenRefused and the next are of an endpoint with OAuth 2 client credentials:
	// nothing was sent to it, because there was no token.
	ReasonTokenRefused     Reason = "token_refused"
	ReasonTokenUnavailable Reason = "token_unavailable" //nolint:gosec // a name
)

// Reasons of a delivery that ended. One whose last attempt was permanent has that
// attempt's reason.
const (
	ReasonMaxAttempts          Reason = "max_attempts"
	ReasonGiveUpTime           Reason = "give_up_time"
	ReasonRetryAfterPastGiveUp Reason = "retry_after_past_give_up"
	ReasonAmbiguousLimit       Reason = "ambiguous_limit"
	ReasonHeldExpired          Reason = "held_expired"
	ReasonDeferredExpired      Reason = "deferred_expired"
	ReasonInternal             Reason = "internal"
	ReasonEndpointDeleted      Reason = "endpoint_deleted"
	ReasonTerminated           Reason = "terminated"
	ReasonRetention            Reason = "retention"
)

// Reasons lists the fixed reasons: those of attempts, then those of deliveries.
// The http_<code> ones are not listed.
func Reasons() []Reason {
	return []Reason{
		ReasonDelivered, ReasonDNSNotFound, ReasonDNSTemporary, ReasonConnectRefused, ReasonConnectionReset,
		ReasonUnexpectedEOF, ReasonProtocolError, ReasonTLSInvalid, ReasonTimeoutDial, ReasonTimeoutTLS,
		ReasonTimeoutHeaders, ReasonTimeoutBody, ReasonTimeoutTotal, ReasonDeniedAddress, ReasonPayloadCorrupt,
		ReasonTokenRefused, ReasonTokenUnavailable, ReasonUnknown,
		ReasonMaxAttempts, ReasonGiveUpTime, ReasonRetryAfterPastGiveUp, ReasonAmbiguousLimit, ReasonHeldExpired,
		ReasonDeferredExpired, ReasonInternal, ReasonEndpointDeleted, ReasonTerminated, ReasonRetention,
	}
}

// NormalStatus returns status as it is stored and shown: a three-digit code from
// 100 to 999 as it came, anything else as 0. RFC 9110 section 15 calls codes from
// 600 on invalid, but what a receiver really sent helps whoever looks for the cause.
func NormalStatus(status int) int {
	if status < 100 || status > 999 {
		return 0
	}

	return status
}

// HTTPReason returns http_<code> for the normalised status, always three digits:
// http_503, and http_000 for what is no status code at all.
func HTTPReason(status int) Reason {
	code := NormalStatus(status)

	return Reason(httpReasonPrefix + string([]byte{digit(code / 100), digit(code / 10 % 10), digit(code % 10)}))
}

// ParseReason returns the reason that text names: a fixed one, http_000, or
// http_100 to http_999. Anything else is an error; no other spelling is accepted,
// because the text is compared with what is stored.
func ParseReason(text string) (Reason, error) {
	reason := Reason(text)
	if slices.Contains(Reasons(), reason) {
		return reason, nil
	}
	if _, ok := reason.Status(); ok {
		return reason, nil
	}

	return "", fmt.Errorf("parse reason %q: not a known reason", clip(text))
}

// Status returns the code of an http_<code> reason, 0 for http_000; false for any
// other reason.
func (r Reason) Status() (int, bool) {
	code, found := strings.CutPrefix(string(r), httpReasonPrefix)
	if !found || len(code) != 3 {
		return 0, false
	}
	status := 0
	for i := range len(code) {
		if code[i] < '0' || code[i] > '9' {
			return 0, false
		}
		status = status*10 + int(code[i]-'0')
	}
	if HTTPReason(status) != r {
		return 0, false
	}

	return status, true
}

const httpReasonPrefix = "http_"

// digit returns the ASCII digit of n, which is between 0 and 9.
func digit(n int) byte {
	return "0123456789"[n]
}
