package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// maxErrBytes bounds Response.Err.
const maxErrBytes = 300

// phase is the step of a request in which an error occurred.
type phase uint8

const (
	phaseStart   phase = iota // nothing was attempted yet
	phaseDial                 // name resolution and connecting
	phaseTLS                  // handshake
	phaseHeaders              // request written, or being written; no status yet
	phaseFields               // status read; the header fields are not complete
	phaseBody                 // head read
)

// knownError is an error that is classified where it occurs: of the token server, the proxy or the
// client certificate.
type knownError struct {
	class retry.Failure
	cause string
	own   bool // not the receiver or its token server failed, but this side, to which the proxy belongs

	retryAfter, date string // as a token server sent them
}

func (e *knownError) Error() string { return e.cause }

// isOwn reports whether this side has failed.
func isOwn(err error) bool {
	known, ok := errors.AsType[*knownError](err)
	return ok && known.own
}

// isProxyRefusal reports whether the egress proxy refuses the host, or everything.
func isProxyRefusal(err error) bool {
	known, ok := errors.AsType[*knownError](err)
	return ok && known.class == retry.FailureProxyRefused
}

// failed is the response when none came from the receiver.
func failed(ctx context.Context, at phase, err error) Response {
	return withFailure(ctx, Response{}, at, err)
}

// withFailure adds to a response why it is not complete.
func withFailure(ctx context.Context, r Response, at phase, err error) Response {
	failure, cause := classify(at, err)
	if at == phaseFields {
		failure = retry.FailureHeadersIncomplete
	}
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	if cancelled {
		failure, cause = retry.FailureUnknown, "cancelled by the sender"
	}
	r.InternalFault = r.Answer.Status == 0 && (cancelled || exhausted(err) || isOwn(err))
	r.Answer.Failure = failure
	r.Err = printable(string(failure) + ": " + cause)
	return r
}

// classify translates an error into a failure and a cause. Nothing else in Everpost inspects
// network errors.
func classify(at phase, err error) (retry.Failure, string) {
	if refusal, ok := errors.AsType[*DeniedError](err); ok {
		return retry.FailureDenied, refusal.Error()
	}
	if known, ok := errors.AsType[*knownError](err); ok {
		return known.class, known.cause
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok { // its text may contain the resolver's address
		switch {
		case dns.IsNotFound:
			return retry.FailureDNSNotFound, "no such host"
		case dns.IsTimeout:
			return retry.FailureDNSTemporary, "the resolver did not answer in time"
		default:
			return retry.FailureDNSTemporary, "the resolver failed"
		}
	}
	silent := silentTLS(err)
	if isTimeout(err) {
		if silent != "" {
			return timeoutFailure(at), "the receiver sent nothing in the TLS handshake"
		}
		return timeoutFailure(at), "the deadline passed"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errnoFailure(errno, err), errno.Error() + silent
	}
	if failure, cause, ok := tlsFailure(err); ok {
		return failure, cause
	}
	switch {
	case silent != "" && errors.Is(err, io.EOF):
		return retry.FailureUnexpectedEOF, "the connection was closed" + silent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return retry.FailureUnexpectedEOF, "the connection was closed before the answer was complete"
	case at == phaseTLS:
		return retry.FailureTLS, innermost(err)
	case errors.Is(err, errTooLarge) && at == phaseBody:
		return retry.FailureProtocol, "the body's encoding is too large"
	case at == phaseHeaders, at == phaseFields, at == phaseBody:
		return retry.FailureProtocol, innermost(err)
	default:
		return retry.FailureUnknown, innermost(err)
	}
}

// silentTLS adds to an error what it means that the receiver has sent nothing in the TLS handshake; "" if it has sent something.
func silentTLS(err error) string {
	if failure, ok := errors.AsType[*sessionError](err); ok && failure.silent {
		return " during the TLS handshake, before the receiver sent anything; it " + webhook.TLSTooOld +
			", or a device on the way may not let the handshake through"
	}
	return ""
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

func timeoutFailure(at phase) retry.Failure {
	switch at {
	case phaseDial:
		return retry.FailureTimeoutDial
	case phaseTLS:
		return retry.FailureTimeoutTLS
	case phaseHeaders, phaseFields:
		return retry.FailureTimeoutHeaders
	case phaseBody:
		return retry.FailureTimeoutBody
	case phaseStart:
		return retry.FailureTimeoutTotal
	default:
		return retry.FailureTimeoutTotal
	}
}

//nolint:exhaustive // errno has a few hundred values; those that are not named are unknown
func errnoFailure(errno syscall.Errno, err error) retry.Failure {
	switch errno {
	case syscall.EADDRNOTAVAIL:
		if towardsIPv6(err) {
			return retry.FailureConnectRefused
		}
		return retry.FailureUnknown
	case syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EAFNOSUPPORT:
		return retry.FailureConnectRefused
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return retry.FailureConnectionReset
	default:
		return retry.FailureUnknown
	}
}

// exhausted reports whether this machine has run out of a resource.
func exhausted(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, syscall.EADDRNOTAVAIL) && !towardsIPv6(err)
}

// towardsIPv6 reports whether an IPv6 address was dialled. EADDRNOTAVAIL means for IPv4
// that no port is free. For IPv6, on a machine without it, it means that the machine has no
// source address. That is permanent, and any tenant can use such an address, so it must not
// count as an internal fault, which is retried without a limit.
func towardsIPv6(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return false
	}
	addr, ok := op.Addr.(*net.TCPAddr)
	return ok && addr.IP.To4() == nil && addr.IP != nil
}

// innermost is the text of the innermost error. In place of what it quotes stands an ellipsis: libraries quote what
// the receiver sent, which may be anything, including the payload.
func innermost(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	text, kept := err.Error(), ""
	for {
		before, _, found := strings.Cut(text, `"`)
		if kept += before; !found {
			return kept
		}
		kept, text = kept+"…", text[len(before):]
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil { // who knows where it ends
			return kept
		}
		text = text[len(quoted):]
	}
}

// printable returns at most maxErrBytes of the text, without control characters. A longer one ends after a word, and with an
// ellipsis.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= maxErrBytes {
		return text
	}
	end := maxErrBytes - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	if space := strings.LastIndexByte(text[:end], ' '); space > maxErrBytes/2 {
		end = space
	}
	return strings.TrimRight(text[:end], " ,;:(") + "…"
}
