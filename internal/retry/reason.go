package retry

import (
	"fmt"
	"strconv"
	"strings"
)

// Reason is a one-word cause of the end of an attempt or a delivery. It is a label of metrics
// and a filter of the API, so the set is closed: the constants below and http_<code>
// (HTTPReason). A delivery that was cancelled or discarded through the API may have the
// caller's text as its reason instead, which is not a Reason.
type Reason string

// Reasons of an attempt, in addition to http_<code>.
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

	// ReasonHeadersIncomplete: a status was read, and then the headers did not end in time or
	// within their bound, or the connection broke off. The status decides.
	ReasonHeadersIncomplete Reason = "headers_incomplete"

	// ReasonConnectionReused: a connection that was kept from an earlier request ended without a byte
	// of an answer. The attempt is made again at once and is not counted against the receiver; the
	// next one in the same run is a connection_reset or unexpected_eof.
	ReasonConnectionReused Reason = "connection_reused"

	// ReasonProxyRefused: the operator's egress proxy refuses the host. Deliveries are held for it, and
	// only what has waited for a day counts against the receiver.
	ReasonProxyRefused Reason = "proxy_refused"

	// ReasonProxyConnectFailed: the egress proxy could not connect to the receiver.
	ReasonProxyConnectFailed Reason = "proxy_connect_failed"

	// ReasonTokenRefused and ReasonTokenUnavailable are for endpoints with OAuth 2 client
	// credentials: there was no token, so no request was sent to the endpoint.
	ReasonTokenRefused     Reason = "token_refused"
	ReasonTokenUnavailable Reason = "token_unavailable" //nolint:gosec // a name
)

// Reasons of the end of a delivery. If the last attempt was permanent, the reason is that
// attempt's.
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
	ReasonPayloadRemoved       Reason = "payload_removed"
)

// Reasons lists the fixed reasons: those of attempts, then those of deliveries. It does not
// include http_<code>.
func Reasons() []Reason {
	return []Reason{
		ReasonDelivered, ReasonDNSNotFound, ReasonDNSTemporary, ReasonConnectRefused, ReasonConnectionReset,
		ReasonUnexpectedEOF, ReasonProtocolError, ReasonTLSInvalid, ReasonTimeoutDial, ReasonTimeoutTLS,
		ReasonTimeoutHeaders, ReasonHeadersIncomplete, ReasonTimeoutBody, ReasonTimeoutTotal, ReasonDeniedAddress, ReasonPayloadCorrupt,
		ReasonConnectionReused, ReasonProxyRefused, ReasonProxyConnectFailed, ReasonTokenRefused, ReasonTokenUnavailable, ReasonUnknown,
		ReasonMaxAttempts, ReasonGiveUpTime, ReasonRetryAfterPastGiveUp, ReasonAmbiguousLimit, ReasonHeldExpired,
		ReasonDeferredExpired, ReasonInternal, ReasonEndpointDeleted, ReasonTerminated, ReasonRetention, ReasonPayloadRemoved,
	}
}

// NormalStatus returns the status as it is stored and shown: a code from 100 to 999
// unchanged, anything else as 0. RFC 9110 section 15 calls codes from 600 on invalid, but the
// original code helps to find the cause.
func NormalStatus(status int) int {
	if status < 100 || status > 999 {
		return 0
	}

	return status
}

// HTTPReason returns http_<code> for the normalised status with three digits: http_503, and
// http_000 for what is not a status code.
func HTTPReason(status int) Reason {
	return Reason(fmt.Sprintf("http_%03d", NormalStatus(status)))
}

// Status returns the code of an http_<code> reason, 0 for http_000; false for any
// other reason.
func (r Reason) Status() (int, bool) {
	status, err := strconv.Atoi(strings.TrimPrefix(string(r), "http_"))
	if err != nil || HTTPReason(status) != r { // such as "http_50"
		return 0, false
	}

	return status, true
}
