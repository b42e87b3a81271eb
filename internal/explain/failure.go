package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// failure says what a failed attempt means. {receiver} stands for "the receiver at shop.example", and
// {host} for its host name.
type failure struct {
	code   Code   // while the delivery is retried
	what   string // after "attempt 3 at 12:03:44 UTC", in the past tense
	cause  string
	remedy string
}

const (
	checkReceiver  = "Check {receiver}"
	checkNames     = "Check the name servers of the host name {host}, and the resolver that Everpost uses."
	checkAddresses = "Check that each address of {host} takes connections: that no dead one is left in DNS, and that the firewall lets them through."
	checkProxy     = "Check EVERPOST_EGRESS_PROXY and the rules and the log of that proxy; EVERPOST_NO_PROXY lists hosts that need none."
	checkHangUp    = "Read the log of {receiver}, and those of its load balancer and firewall: one of them took the connection and hung up."
	checkHandshake = "Check that the TLS of {receiver}, or of the load balancer before it, is not overloaded, " +
		"and that no firewall on the way blocks the handshake."
)

// failureOf explains the reason of an attempt with its error, which may be empty.
func failureOf(reason, text string) failure {
	f := failureOfReason(reason)
	if cause, ok := tlsCauseOf(text); ok {
		f.remedy = cause.remedy
	}
	return f
}

func failureOfReason(reason string) failure {
	if status, ok := retry.Reason(reason).Status(); ok {
		return statusFailure(status)
	}
	timeout := func(what string) failure {
		return failure{RetryTimeout, "timed out: " + what, "the connection was made, and no complete answer came within the endpoint's timeout",
			"Have the receiver answer at once and work afterwards, or raise the endpoint's timeout."}
	}
	connection := func(what string) failure {
		return failure{RetryConnection, "failed: " + what, what,
			"Check that {receiver} runs, and that its load balancer and firewall let requests through."}
	}
	switch reason {
	case string(retry.ReasonDNSNotFound):
		return failure{RetryDNS, "failed: the host name {host} does not exist", "DNS has no address for the host name {host}.",
			"Check the endpoint's URL, and the DNS record of the host name {host}."}
	case string(retry.ReasonDNSTemporary):
		return failure{RetryDNS, "failed: the host name {host} could not be resolved", "The DNS resolver gave no answer for the host name {host}.",
			"If it lasts, check the name servers of the host name {host}, and the resolver that Everpost uses."}
	case string(retry.ReasonTLSInvalid):
		return failure{RetryTLS, "failed: no secure connection to {receiver} could be made", "The TLS handshake failed.",
			"Check that {receiver} takes TLS at this port, and its certificate: dates, names and chain."}
	case string(retry.ReasonConnectRefused):
		return connection("{receiver} refused the connection")
	case string(retry.ReasonConnectionReset):
		return failure{RetryConnection, "failed: {receiver} reset the connection", "{receiver} reset the connection before it had answered", checkHangUp}
	case string(retry.ReasonUnexpectedEOF):
		return failure{RetryConnection, "failed: {receiver} closed the connection before it had answered",
			"{receiver} closed the connection before it had answered", checkHangUp}
	case string(retry.ReasonConnectionReused):
		return failure{RetryConnection, "met a connection that {receiver} was closing",
			"{receiver} closed an idle connection while the request was sent. It is sent again at once, and does not count.", ""}
	case string(retry.ReasonProtocolError), string(retry.ReasonHeadersIncomplete):
		return connection("{receiver} did not answer in valid HTTP")
	case string(retry.ReasonTimeoutDial):
		return failure{RetryTimeout, "timed out: no connection to {receiver} could be made in time",
			"no address of {host} took a connection within the endpoint's timeout", checkAddresses}
	case string(retry.ReasonTimeoutTLS):
		return failure{RetryTimeout, "timed out: {receiver} did not finish the TLS handshake in time",
			"the TLS handshake was not over within the endpoint's timeout", checkHandshake}
	case string(retry.ReasonTimeoutHeaders):
		return timeout("connected to {receiver}, and no answer began in time")
	case string(retry.ReasonTimeoutBody):
		return timeout("{receiver} began to answer and did not end in time")
	case string(retry.ReasonTimeoutTotal):
		return timeout("the request to {receiver} was not over in time")
	case string(retry.ReasonProxyRefused):
		return failure{RetryConnection, "was not sent: the egress proxy refuses {receiver}",
			"The rules of the egress proxy do not let requests to {receiver} through.",
			"Check that the URL of the endpoint is right."}
	case string(retry.ReasonProxyConnectFailed):
		return connection("the egress proxy could not connect to {receiver}")
	case string(retry.ReasonTokenRefused):
		return failure{RetryToken, "was not sent: the token server refused the credentials",
			"The OAuth 2 token server refused the endpoint's client credentials.", "Check client id, client secret and scope in the endpoint's auth."}
	case string(retry.ReasonTokenUnavailable):
		return failure{RetryToken, "was not sent: the token server gave no token", "The OAuth 2 token server could not be reached, or failed.",
			"Check the token URL in the endpoint's auth, and that server."}
	case string(retry.ReasonDeniedAddress):
		return failure{RetryUnknown, "was not sent: the address of {receiver} is not allowed",
			"Everpost sends nothing to private, local or reserved addresses, so that no endpoint can reach into the network that Everpost runs in.",
			"Give the endpoint a public URL."}
	}
	return failure{RetryUnknown, "failed for an unknown reason", "The request failed in a way that Everpost does not know.",
		"See the error of the attempt."}
}

// statusFailure explains a status code.
func statusFailure(status int) failure {
	name, remedy := "", checkReceiver+": its log says why it did not accept the request."
	f := failure{code: RetryResponse}
	switch {
	case status == 300, status == 304: // no redirects
		name, remedy = "an answer that a POST does not get where events are accepted", "Check the path in the endpoint's URL."
	case status >= 300 && status < 400:
		name, remedy = "a redirect, which is never followed", "Set the endpoint's URL to the address that the redirect names, or, "+
			"if {receiver} answers so after it has accepted the event, add the status to the endpoint's success_statuses."
	case status == 400:
		name, remedy = "Bad Request", "The receiver did not understand the request: compare the payload with what it expects."
	case status == 401:
		name, remedy = "Unauthorized", "Check the endpoint's auth and headers, and the secret with which the receiver verifies the signature."
	case status == 403:
		name, remedy = "Forbidden", "Check the endpoint's credentials, and whether a firewall in front of {receiver} blocks Everpost's addresses."
	case status == 404:
		f.code, name, remedy = RetryNotFound, "Not Found", "Check the path in the endpoint's URL."
	case status == 405:
		name, remedy = "Method Not Allowed", "The URL does not take POST: check the path in the endpoint's URL."
	case status == 408:
		name = "Request Timeout"
	case status == 410:
		name, remedy = "Gone", "The receiver accepts no more events, and the endpoint is disabled: resume it if that was a mistake."
	case status == 413:
		name, remedy = "Content Too Large", "Raise the receiver's limit on the size of a request."
	case status == 422:
		name, remedy = "Unprocessable Content", "The receiver rejected the payload: compare it with what the receiver expects."
	case status == 429:
		name, remedy = "Too Many Requests", "If it lasts, lower the endpoint's rate_limit_per_second, or raise the receiver's limit."
	case status == 500:
		name = "Internal Server Error"
	case status == 502:
		name, remedy = "Bad Gateway", "A proxy in front of {receiver} gets no valid answer: check the server behind it."
	case status == 503:
		name, remedy = "Service Unavailable", checkReceiver+": it is overloaded or in maintenance."
	case status == 504:
		name, remedy = "Gateway Timeout", "A proxy in front of {receiver} waits too long: check the server behind it."
	}
	f.what, f.remedy = "got "+statusWords(status), remedy
	f.cause = fmt.Sprintf("{receiver} answered %03d", status)
	if name != "" {
		f.cause = fmt.Sprintf("{receiver} answered %03d (%s)", status, name)
	}
	return f
}

// at names the receiver. The cause becomes a sentence.
func (f failure) at(e *webhook.Endpoint) failure {
	host := hostOf(e)
	if host == "" {
		host = "of the endpoint"
	}
	names := strings.NewReplacer("{receiver}", receiverOf(e), "{host}", host)
	return failure{f.code, names.Replace(f.what), sentence(names.Replace(f.cause)), sentence(names.Replace(f.remedy))}
}

// spent says where most of the time went of an attempt that timed out, if it was not the wait for the receiver: the phase in
// which the time was over may have had little of it.
func (f failure) spent(t webhook.Times) failure {
	most := max(t.Names, t.Connecting, t.TLS)
	if f.code != RetryTimeout || most < t.Waiting || most == 0 {
		return f
	}
	of := latency(most) + " of " + latency(t.Sum()) + " went to "
	switch { //nolint:staticcheck // a switch on most would want all constants of time.Duration
	case most == t.Names:
		f.cause, f.remedy = of+"looking up the host name {host}", checkNames
	case most == t.Connecting:
		f.cause, f.remedy = of+"connecting: an address of {host} does not answer, or late", checkAddresses
	default:
		f.cause, f.remedy = of+"the TLS handshake with {receiver}", checkHandshake
	}
	f.what += "; " + f.cause
	return f
}

// lastFailure explains the last attempt of the delivery.
func (s *Situation) lastFailure() failure {
	reason := ""
	if s.Delivery.LastOutcome != nil {
		reason = s.Delivery.LastOutcome.Reason
	}
	f := failureOf(reason, s.Error).spent(s.Times).at(s.Endpoint)
	f.cause = joined(f.cause, sentence(errorDetail(s.Error, s.Now)))
	return f
}

// errorDetail is what an attempt's error ("class: cause") adds to its reason; "" if it adds nothing.
// An expired certificate is said in words.
func errorDetail(text string, now time.Time) string {
	if target, found := strings.CutPrefix(text, webhook.RedirectError); found {
		return "the redirect leads to " + foreign(target)
	}
	if text == webhook.CertificateUnasked {
		return "the TLS 1.3 handshake did not ask for the endpoint's client certificate"
	}
	class, cause, found := strings.Cut(text, ": ")
	if !found || strings.HasPrefix(class, "timeout_") || class == string(retry.ReasonDNSNotFound) ||
		class == string(retry.ReasonUnexpectedEOF) && !strings.Contains(cause, webhook.TLSTooOld) {
		return ""
	}
	if words := validity(cause, now); words != "" {
		return words
	}
	return "the error was: " + foreign(cause)
}

// Outcome is the reason of an attempt or of the end of a delivery as a part of a sentence: "503 Service Unavailable", "a refused connection".
// For a list see Brief.
func Outcome(reason string) string {
	if reason == "" {
		return "no answer"
	}
	if status, ok := retry.Reason(reason).Status(); ok {
		return statusWords(status)
	}
	switch reason {
	case string(retry.ReasonConnectRefused):
		return "a refused connection"
	case string(retry.ReasonConnectionReset):
		return "a reset connection"
	case string(retry.ReasonUnexpectedEOF):
		return "a connection that was closed without an answer"
	case string(retry.ReasonProtocolError), string(retry.ReasonHeadersIncomplete):
		return "an invalid answer"
	case string(retry.ReasonTLSInvalid):
		return "a TLS error"
	case string(retry.ReasonDNSNotFound):
		return "an unknown host name"
	case string(retry.ReasonDNSTemporary):
		return "no answer from DNS"
	case string(retry.ReasonTimeoutDial):
		return "no connection in time"
	case string(retry.ReasonTimeoutTLS):
		return "no TLS handshake in time"
	case string(retry.ReasonTimeoutHeaders):
		return "no answer in time"
	case string(retry.ReasonTimeoutBody):
		return "an answer that did not end in time"
	case string(retry.ReasonTimeoutTotal):
		return "a time-out"
	case string(retry.ReasonProxyRefused):
		return "a refusal of the egress proxy"
	case string(retry.ReasonProxyConnectFailed):
		return "an egress proxy that could not connect"
	case string(retry.ReasonTokenRefused):
		return "credentials that the token server refuses"
	case string(retry.ReasonTokenUnavailable):
		return "no token"
	case string(retry.ReasonDeniedAddress):
		return "an address that is not allowed"
	}
	return Label(reason)
}

// WhyOpen is why a circuit has opened, "14 of 20 requests failed, the last with http_503", without the code.
func WhyOpen(why string) string {
	head, reason, found := strings.Cut(why, " with ")
	if !found {
		return why
	}
	return head + " with " + Outcome(reason)
}

// Wait says in words why a delivery waits: the reason of a deferral or a hold.
func Wait(reason string) string {
	now, _ := waits(reason)
	return now
}

// Waited says in words why an attempt came later than its retry delay.
func Waited(reason string) string {
	_, then := waits(reason)
	return then
}

// waits is why a delivery waits, and why it waited, each as a clause.
func waits(reason string) (now, then string) {
	switch reason {
	case webhook.ReasonPaused:
		return "its endpoint is paused", "its endpoint was paused"
	case webhook.ReasonDisabled:
		return "its endpoint is disabled", "its endpoint was disabled"
	case webhook.ReasonBacklog:
		return "many deliveries wait before it", "many deliveries waited before it"
	case webhook.ReasonCircuitOpen:
		return "the circuit of its endpoint is open", "the circuit of its endpoint was open"
	case webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint:
		return "the receiver asked for a pause", "the receiver had asked for a pause"
	case webhook.ReasonRate:
		return "the endpoint's rate is reached", "the endpoint's rate was reached"
	case webhook.ReasonInFlight:
		return "the endpoint is busy", "the endpoint was busy"
	case webhook.ReasonHost:
		return "the endpoint's host is busy", "the endpoint's host was busy"
	case webhook.ReasonInternal:
		return "an internal fault keeps its endpoint from being sent to", "an internal fault kept it from being sent"
	case webhook.ReasonCapacity:
		return "too many requests to slow receivers or with large payloads are in flight",
			"too many requests to slow receivers or with large payloads were in flight"
	case webhook.ReasonNoOwner:
		return "the worker that enforces the endpoint's limits did not answer", "the worker that enforces the endpoint's limits did not answer"
	case "":
		return "its endpoint was not active", "its endpoint was not active"
	}
	return reason, "of " + reason
}
