package retry

// Fault is why a request has no complete response. The egress client translates network errors
// into faults; no other code inspects network errors. Its text is the reason of the attempt.
type Fault string

// The faults, from the first step of a request to the last.
const (
	FaultNone             Fault = ""                            // a complete response arrived
	FaultDNSNotFound            = Fault(ReasonDNSNotFound)      // the name does not exist (NXDOMAIN)
	FaultDNSTemporary           = Fault(ReasonDNSTemporary)     // the resolver failed or timed out
	FaultDenied                 = Fault(ReasonDeniedAddress)    // the egress guard refused the address, or the URL is invalid
	FaultConnectRefused         = Fault(ReasonConnectRefused)   // connection refused, or the network is unreachable
	FaultConnectionReset        = Fault(ReasonConnectionReset)  // connection reset or broken pipe
	FaultUnexpectedEOF          = Fault(ReasonUnexpectedEOF)    // closed before the response was complete
	FaultProtocol               = Fault(ReasonProtocolError)    // the response is not HTTP
	FaultTLS                    = Fault(ReasonTLSInvalid)       // certificate invalid, expired or for another host; handshake failed
	FaultTimeoutDial            = Fault(ReasonTimeoutDial)      // no TCP connection in time
	FaultTimeoutTLS             = Fault(ReasonTimeoutTLS)       // no TLS session in time
	FaultTimeoutHeaders         = Fault(ReasonTimeoutHeaders)   // no response headers in time
	FaultTimeoutBody            = Fault(ReasonTimeoutBody)      // headers arrived, the body did not end in time
	FaultTimeoutTotal           = Fault(ReasonTimeoutTotal)     // the total deadline passed in none of the phases above
	FaultTokenRefused           = Fault(ReasonTokenRefused)     // the endpoint's token server refused its credentials
	FaultTokenUnavailable       = Fault(ReasonTokenUnavailable) // the endpoint's token server is unreachable or failed
	FaultUnknown                = Fault(ReasonUnknown)          // anything else
)

// Faults lists all faults but FaultNone.
func Faults() []Fault {
	return []Fault{
		FaultDNSNotFound, FaultDNSTemporary, FaultDenied, FaultConnectRefused, FaultConnectionReset, FaultUnexpectedEOF, FaultProtocol, FaultTLS,
		FaultTimeoutDial, FaultTimeoutTLS, FaultTimeoutHeaders, FaultTimeoutBody, FaultTimeoutTotal, FaultTokenRefused, FaultTokenUnavailable,
		FaultUnknown,
	}
}
