package retry

// Fault is why a request has no complete response. The egress client translates
// network errors into faults; no other code inspects network errors.
type Fault uint8

// The faults, from the first step of a request to the last.
const (
	FaultNone             Fault = iota // a complete response arrived
	FaultDNSNotFound                   // the name does not exist (NXDOMAIN)
	FaultDNSTemporary                  // the resolver failed or timed out
	FaultDenied                        // the egress guard refused the address, or the URL is invalid
	FaultConnectRefused                // connection refused, or the network is unreachable
	FaultConnectionReset               // connection reset or broken pipe
	FaultUnexpectedEOF                 // closed before the response was complete
	FaultProtocol                      // the response is not HTTP
	FaultTLS                           // certificate invalid, expired or for another host; handshake failed
	FaultTimeoutDial                   // no TCP connection in time
	FaultTimeoutTLS                    // no TLS session in time
	FaultTimeoutHeaders                // no response headers in time
	FaultTimeoutBody                   // headers arrived, the body did not end in time
	FaultTimeoutTotal                  // the total deadline passed in none of the phases above
	FaultTokenRefused                  // the endpoint's token server refused its credentials
	FaultTokenUnavailable              // the endpoint's token server is unreachable or failed
	FaultUnknown                       // anything else
)

// String returns the fault as it appears in logs. Except for FaultNone and FaultDenied, it is
// also the reason of the attempt.
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
