package retry

// String returns the fault as it appears in logs and, but for FaultNone and
// FaultDenied, as the reason of the attempt.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultDNSNotFound:
		return "dns_not_found"
	case FaultDNSTemporary:
		return "dns_temporary"
	case FaultDenied:
		return "denied"
	case FaultConnectRefused:
		return "connect_refused"
	case FaultConnectionReset:
		return "connection_reset"
	case FaultUnexpectedEOF:
		return "unexpected_eof"
	case FaultProtocol:
		return "protocol_error"
	case FaultTLS:
		return "tls_invalid"
	case FaultTimeoutDial:
		return "timeout_dial"
	case FaultTimeoutTLS:
		return "timeout_tls"
	case FaultTimeoutHeaders:
		return "timeout_headers"
	case FaultTimeoutBody:
		return "timeout_body"
	case FaultTimeoutTotal:
		return "timeout_total"
	case FaultTokenRefused:
		return "token_refused"
	case FaultTokenUnavailable:
		return "token_unavailable"
	case FaultUnknown:
		return "unknown"
	default:
		return "unknown"
	}
}
