package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/retry"
)

// maxErrBytes bounds Response.Err.
const maxErrBytes = 200

// phase is the step of a request in which an error occurred.
type phase uint8

const (
	phaseStart   phase = iota // nothing was attempted yet
	phaseDial                 // name resolution and connecting
	phaseTLS                  // handshake
	phaseHeaders              // request written, or being written; no complete response head yet
	phaseBody                 // head read
)

// faultError is a failure whose fault is known where it occurs: of the token server, the proxy
// or the client certificate. FaultUnknown means that neither of them nor the receiver is at
// fault, but this side, which includes the proxy and its configuration.
type faultError struct {
	fault retry.Fault
	cause string

	retryAfter, date string // as a token server sent them
}

func (e *faultError) Error() string { return e.cause }

// failedHere reports whether this side is at fault.
func failedHere(err error) bool {
	known, ok := errors.AsType[*faultError](err)
	return ok && known.fault == retry.FaultUnknown
}

// failure is the response when none came from the receiver.
func failure(ctx context.Context, at phase, err error) Response {
	return withFault(ctx, Response{}, at, err)
}

// withFault adds to a response why it is not complete.
func withFault(ctx context.Context, r Response, at phase, err error) Response {
	fault, cause := classify(at, err)
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	if cancelled {
		fault, cause = retry.FaultUnknown, "cancelled by the sender"
	}
	r.InternalFault = r.Answer.Status == 0 && (cancelled || exhausted(err) || failedHere(err))
	r.Answer.Fault = fault
	r.Err = printable(string(fault) + ": " + cause)
	return r
}

// classify translates an error into a fault and a cause. Nothing else in Everpost inspects
// network errors.
func classify(at phase, err error) (retry.Fault, string) {
	if refusal, ok := errors.AsType[*DeniedError](err); ok {
		return retry.FaultDenied, refusal.Error()
	}
	if known, ok := errors.AsType[*faultError](err); ok {
		return known.fault, known.cause
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok { // its text may contain the resolver's address
		switch {
		case dns.IsNotFound:
			return retry.FaultDNSNotFound, "no such host"
		case dns.IsTimeout:
			return retry.FaultDNSTemporary, "the resolver did not answer in time"
		default:
			return retry.FaultDNSTemporary, "the resolver failed"
		}
	}
	if isTimeout(err) {
		return timeoutFault(at), "the deadline passed"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if errno == syscall.EADDRNOTAVAIL && towardsIPv6(err) {
			return retry.FaultConnectRefused, errno.Error()
		}
		return errnoFault(errno), errno.Error()
	}
	if fault, cause, ok := tlsFault(err); ok {
		return fault, cause
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return retry.FaultUnexpectedEOF, "the connection was closed before the answer was complete"
	case at == phaseTLS:
		return retry.FaultTLS, innermost(err)
	case errors.Is(err, errHeadersTooLarge) && at == phaseBody:
		return retry.FaultProtocol, "the body's encoding is too large"
	case at == phaseHeaders, at == phaseBody:
		return retry.FaultProtocol, innermost(err)
	default:
		return retry.FaultUnknown, innermost(err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

func timeoutFault(at phase) retry.Fault {
	switch at {
	case phaseDial:
		return retry.FaultTimeoutDial
	case phaseTLS:
		return retry.FaultTimeoutTLS
	case phaseHeaders:
		return retry.FaultTimeoutHeaders
	case phaseBody:
		return retry.FaultTimeoutBody
	case phaseStart:
		return retry.FaultTimeoutTotal
	default:
		return retry.FaultTimeoutTotal
	}
}

//nolint:exhaustive // errno has a few hundred values; those that are not named are unknown
func errnoFault(errno syscall.Errno) retry.Fault {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EAFNOSUPPORT:
		return retry.FaultConnectRefused
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return retry.FaultConnectionReset
	default:
		return retry.FaultUnknown
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

// tlsFault recognises TLS errors in any phase: with TLS 1.3 a receiver that requires a
// client certificate reports it only after the handshake.
func tlsFault(err error) (retry.Fault, string, bool) {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return retry.FaultTLS, "the certificate is for another host", true
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return retry.FaultTLS, innermost(certificate.Err), true
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return retry.FaultTLS, record.Msg, true
	}
	op, ok := errors.AsType[*net.OpError](err)
	if ok && (op.Op == "remote error" || op.Op == "local error") { // how crypto/tls marks alerts
		return retry.FaultTLS, op.Op + ": " + op.Err.Error(), true
	}
	return retry.FaultNone, "", false
}

// innermost is the text of the innermost error, up to the first quotation mark: net/http
// quotes what the receiver sent, which may be anything, including the payload.
func innermost(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimRight(text, " :(")
}

// printable returns at most maxErrBytes of the text, without control characters.
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
	end := maxErrBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
