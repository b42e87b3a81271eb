package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Label is a reason in a word or two, for a mark or a column: of an attempt, of the end of a delivery, or of a wait. "401 Unauthorized", "connection refused".
func Label(reason string) string {
	label, _ := labelled(reason)
	return label
}

// Brief is Label with what it means, for a list: "401 Unauthorized: it refuses the credentials".
func Brief(reason string) string {
	label, meaning := labelled(reason)
	if meaning == "" {
		return label
	}
	return label + ": " + meaning
}

// labelled are the label of a reason, and what it means where the label does not say it.
func labelled(reason string) (label, meaning string) {
	if status, ok := retry.Reason(reason).Status(); ok {
		return statusWords(status), statusMeaning(status)
	}
	if label, meaning = labelOfAttempt(reason); label != "" {
		return label, meaning
	}
	if label, meaning = labelOfEnd(reason); label != "" {
		return label, meaning
	}
	if reason == "" {
		return "no answer", ""
	}
	return foreign(strings.ReplaceAll(Wait(reason), "_", " ")), "" // a person's text, or the code of another release
}

// briefly is Brief of an attempt with its error, which may name the certificate, or where a redirect leads.
func briefly(reason, text string, now time.Time) string {
	label, meaning := labelled(reason)
	if target, found := strings.CutPrefix(text, webhook.RedirectError); found {
		return label + " to " + foreign(target) + ": " + meaning
	}
	_, tls := tlsCauseOf(text)
	if tls || reason == string(retry.ReasonTLSInvalid) || reason == string(retry.ReasonUnknown) {
		if detail := strings.TrimPrefix(errorDetail(text, now), "the error was: "); detail != "" {
			return label + ": " + detail
		}
	}
	return Brief(reason)
}

// stoppedBriefly is why an endpoint is paused or disabled: what the receiver did, where that is known.
func stoppedBriefly(reason string) string {
	if reason == DisabledGone {
		return Brief("http_410")
	}
	for _, before := range []string{lastFailedWith, lastWith} {
		if _, last, found := strings.Cut(reason, before); found {
			return foreign(last)
		}
	}
	return foreign(reason)
}

// stoppedWords is the state of an endpoint that is not active, with why.
func stoppedWords(e *webhook.Endpoint) string {
	state, why := e.State.String(), stoppedBriefly(e.StateReason)
	switch {
	case why == "":
		return state
	case strings.HasPrefix(why, state):
		return why
	}
	return state + ", " + why
}

// briefOf is why a delivery has not arrived, in a few words; "" if nothing is wrong with it.
func briefOf(s *Situation, code Code) string {
	switch code { //nolint:exhaustive // the others wait or have ended for the reason that is stored
	case Delivered, Cancelled, Discarded, Cancelling, Scheduled, Starting, Releasing:
		return ""
	case EngineAway:
		return "Temporal is away"
	case InProgress:
		return "no answer yet"
	case InternalFault:
		return Brief(string(retry.ReasonInternal))
	case Refused, Exhausted:
		if last := s.Delivery.LastOutcome; last != nil {
			return briefly(last.Reason, s.Error, s.Now)
		}
	}
	return waitsBriefly(s, code)
}

// waitsBriefly is briefOf a delivery that waits or has ended for a reason that is not its last attempt.
func waitsBriefly(s *Situation, code Code) string {
	d, o := &s.Delivery, s.Observed
	switch {
	case d.State.Open() && s.stopped():
		return "endpoint " + stoppedWords(s.Endpoint)
	case (code == WaitsCircuit || code == WaitsFailing) && o != nil && o.LastFailure != "":
		return briefly(o.LastFailure, o.LastError, s.Now)
	case d.State == webhook.StateRetrying && !d.Deferred() && d.LastOutcome != nil:
		return briefly(d.LastOutcome.Reason, s.Error, s.Now)
	}
	over := o != nil && (code == WaitsCircuit && o.Circuit == webhook.CircuitClosed || code == WaitsReceiver && !o.BlockedUntil.After(s.Now)) ||
		s.Endpoint != nil && (d.Reason == webhook.ReasonPaused || d.Reason == webhook.ReasonDisabled) // it is active again: see above
	switch {
	case d.Reason == "":
		return ""
	case over:
		return Waited(d.Reason)
	}
	return Brief(d.Reason)
}

// labelOfAttempt are the words for the reason of an attempt without a status.
func labelOfAttempt(reason string) (label, meaning string) {
	switch reason {
	case string(retry.ReasonDelivered):
		return "delivered", ""
	case string(retry.ReasonConnectRefused):
		return "connection refused", "nothing listens there, or a firewall refuses"
	case string(retry.ReasonConnectionReset):
		return "connection reset without an answer", ""
	case string(retry.ReasonUnexpectedEOF):
		return "connection closed without an answer", ""
	case string(retry.ReasonConnectionReused):
		return "idle connection closed", ""
	case string(retry.ReasonProtocolError), string(retry.ReasonHeadersIncomplete):
		return "invalid answer", "no complete, valid HTTP"
	case string(retry.ReasonTLSInvalid):
		return "TLS failed", ""
	case string(retry.ReasonDNSNotFound):
		return "unknown host name", ""
	case string(retry.ReasonDNSTemporary):
		return "no answer from DNS", ""
	case string(retry.ReasonProxyRefused):
		return "egress proxy refuses it", ""
	case string(retry.ReasonProxyConnectFailed):
		return "egress proxy cannot connect", ""
	case string(retry.ReasonTokenRefused):
		return "no token", "the token server refuses the credentials"
	case string(retry.ReasonTokenUnavailable):
		return "no token", "the token server fails"
	case string(retry.ReasonDeniedAddress):
		return "address not allowed", ""
	case string(retry.ReasonPayloadCorrupt):
		return "payload damaged", "the stored bytes have changed"
	case string(retry.ReasonUnknown):
		return "unknown failure", ""
	}
	return labelOfTimeout(reason)
}

// labelOfTimeout are the words for a request that was not over in time: by how far it had come.
func labelOfTimeout(reason string) (label, meaning string) {
	switch reason {
	case string(retry.ReasonTimeoutDial):
		return "no connection in time", ""
	case string(retry.ReasonTimeoutTLS):
		return "no TLS handshake in time", ""
	case string(retry.ReasonTimeoutHeaders):
		return "no answer in time", "connected, and none began"
	case string(retry.ReasonTimeoutBody):
		return "answer not ended in time", ""
	case string(retry.ReasonTimeoutTotal):
		return "not over in time", ""
	}
	return "", ""
}

// labelOfEnd are the words for the reason of the end of a delivery.
func labelOfEnd(reason string) (label, meaning string) {
	switch reason {
	case string(retry.ReasonMaxAttempts):
		return "all attempts used up", ""
	case string(retry.ReasonGiveUpTime):
		return "time for retries over", ""
	case string(retry.ReasonRetryAfterPastGiveUp):
		return "asked for too long a pause", ""
	case string(retry.ReasonAmbiguousLimit):
		return "retries used up", ""
	case string(retry.ReasonHeldExpired):
		return "waited until given up", "the endpoint was paused, disabled or too busy"
	case string(retry.ReasonDeferredExpired):
		return "waited until given up", "the endpoint took too few requests"
	case string(retry.ReasonInternal):
		return "fault of Everpost", "not of the receiver"
	case string(retry.ReasonEndpointDeleted):
		return "endpoint deleted", ""
	case string(retry.ReasonTerminated):
		return "workflow terminated", ""
	case string(retry.ReasonRetention):
		return "retention over", ""
	case string(retry.ReasonPayloadRemoved):
		return "payload removed", ""
	case webhook.ReasonPayloadErased:
		return "payload erased", ""
	case webhook.ReasonUnknown:
		return "unknown delivery", ""
	case webhook.ReasonCancelled:
		return "cancelled", ""
	case webhook.ReasonDiscarded:
		return "discarded", ""
	}
	return "", ""
}

// statusWords is a status with its name: "503 Service Unavailable".
func statusWords(status int) string {
	name := statusName(status)
	if name == "" {
		return fmt.Sprintf("%03d", status)
	}
	return fmt.Sprintf("%03d %s", status, name)
}

// statusName is the name of a status in RFC 9110 and its neighbours, and Redirect for those that name another address; "" for one without a name.
func statusName(status int) string {
	names := map[int]string{
		300: "Multiple Choices", 304: "Not Modified",
		400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
		406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required",
		412: "Precondition Failed", 413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 417: "Expectation Failed",
		421: "Misdirected Request", 422: "Unprocessable Content", 423: "Locked", 424: "Failed Dependency", 425: "Too Early", 426: "Upgrade Required",
		428: "Precondition Required", 429: "Too Many Requests", 431: "Header Fields Too Large", 451: "Unavailable For Legal Reasons",
		500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
		505: "HTTP Version Not Supported", 507: "Insufficient Storage", 508: "Loop Detected", 511: "Network Authentication Required",
	}
	if name, known := names[status]; known {
		return name
	}
	if status >= 300 && status < 400 {
		return "Redirect"
	}
	return ""
}

// statusMeaning is what a status says of the receiver; "" where its name says as much.
func statusMeaning(status int) string {
	switch status {
	case 401:
		return "it refuses the credentials"
	case 404:
		return "no such path"
	case 405:
		return "the URL takes no POST"
	case 410:
		return "it accepts no more events"
	case 422:
		return "it rejects the payload"
	case 502:
		return "its proxy gets no valid answer"
	case 503:
		return "overloaded or in maintenance"
	case 504:
		return "its proxy gets no answer"
	}
	if statusName(status) == "Redirect" {
		return "never followed"
	}
	return ""
}
