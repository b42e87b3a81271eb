package retry

// Failure is why a request has no complete response. The egress client translates network errors
// into failures; no other code inspects network errors. Its text is the reason of the attempt.
type Failure string

// The failures, from the first step of a request to the last.
const (
	FailureNone               Failure = ""                                // a complete response arrived
	FailureDNSNotFound                = Failure(ReasonDNSNotFound)        // the name does not exist (NXDOMAIN)
	FailureDNSTemporary               = Failure(ReasonDNSTemporary)       // the resolver failed or timed out
	FailureDenied                     = Failure(ReasonDeniedAddress)      // the egress guard refused the address, or the URL is invalid
	FailureConnectRefused             = Failure(ReasonConnectRefused)     // connection refused, or the network is unreachable
	FailureConnectionReset            = Failure(ReasonConnectionReset)    // connection reset or broken pipe
	FailureUnexpectedEOF              = Failure(ReasonUnexpectedEOF)      // closed before the response was complete
	FailureProtocol                   = Failure(ReasonProtocolError)      // the response is not HTTP
	FailureTLS                        = Failure(ReasonTLSInvalid)         // certificate invalid, expired or for another host; handshake failed
	FailureTimeoutDial                = Failure(ReasonTimeoutDial)        // no TCP connection in time
	FailureTimeoutTLS                 = Failure(ReasonTimeoutTLS)         // no TLS session in time
	FailureTimeoutHeaders             = Failure(ReasonTimeoutHeaders)     // no response headers in time
	FailureHeadersIncomplete          = Failure(ReasonHeadersIncomplete)  // a status arrived, and not all headers
	FailureTimeoutBody                = Failure(ReasonTimeoutBody)        // headers arrived, the body did not end in time
	FailureTimeoutTotal               = Failure(ReasonTimeoutTotal)       // the total deadline passed in none of the phases above
	FailureProxyRefused               = Failure(ReasonProxyRefused)       // the egress proxy refuses the host, or everything
	FailureProxyConnectFailed         = Failure(ReasonProxyConnectFailed) // the egress proxy could not connect to the receiver
	FailureTokenRefused               = Failure(ReasonTokenRefused)       // the endpoint's token server refused its credentials
	FailureTokenUnavailable           = Failure(ReasonTokenUnavailable)   // the endpoint's token server is unreachable or failed
	FailureUnknown                    = Failure(ReasonUnknown)            // anything else
)

// Failures lists all failures but FailureNone.
func Failures() []Failure {
	return []Failure{
		FailureDNSNotFound, FailureDNSTemporary, FailureDenied, FailureConnectRefused, FailureConnectionReset, FailureUnexpectedEOF,
		FailureProtocol, FailureTLS,
		FailureTimeoutDial, FailureTimeoutTLS, FailureTimeoutHeaders, FailureHeadersIncomplete, FailureTimeoutBody, FailureTimeoutTotal,
		FailureProxyRefused, FailureProxyConnectFailed, FailureTokenRefused, FailureTokenUnavailable,
		FailureUnknown,
	}
}
