// Package retry decides when a delivery is tried again and when it is given up.
//
// It is pure: the clock and the random number are arguments, nothing here does I/O.
// Two functions carry it: Classify turns what came back from a request into an
// Outcome, and Policy.Next turns an Outcome into a Verdict.
package retry

import "time"

// Fault says why a request brought no complete answer. The egress client
// translates errors into faults once; nothing else looks at network errors.
type Fault uint8

// The faults, from the first step of a request to the last.
const (
	FaultNone             Fault = iota // an answer came back
	FaultDNSNotFound                   // the name does not exist (NXDOMAIN)
	FaultDNSTemporary                  // the resolver failed or timed out
	FaultDenied                        // the egress guard refused the address, or the URL is unusable
	FaultConnectRefused                // nothing listens there, or the network is unreachable
	FaultConnectionReset               // reset or broken pipe
	FaultUnexpectedEOF                 // closed before the answer was complete
	FaultProtocol                      // the answer is not HTTP
	FaultTLS                           // certificate invalid, expired or for another host; handshake refused
	FaultTimeoutDial                   // no TCP connection in time
	FaultTimeoutTLS                    // no TLS session in time
	FaultTimeoutHeaders                // no response headers in time
	FaultTimeoutBody                   // headers came, the body did not end in time
	FaultTimeoutTotal                  // the deadline over everything passed in no nameable phase
	FaultTokenRefused                  // the endpoint's token server gives no token for its credentials
	FaultTokenUnavailable              // the endpoint's token server cannot be reached or is in trouble
	FaultUnknown                       // anything else
)

// Answer is what came back from one request, reduced to what a decision needs.
// Status is 0 when no status line was read. When a status was read it decides,
// whatever Fault says about the rest of the answer.
type Answer struct {
	Fault      Fault
	Status     int       // as received, not normalised: 0 to 999 and whatever else was sent
	RetryAfter string    // the raw Retry-After field, empty when absent
	Date       string    // the raw Date field, empty when absent
	ReceivedAt time.Time // our clock when the answer (or the fault) was there

	// Raw rate-limit hints, empty when absent.
	RateLimitRemaining string // X-RateLimit-Remaining, or the IETF drafts' RateLimit-Remaining
	RateLimitReset     string // X-RateLimit-Reset, or RateLimit-Reset
	RateLimit          string // the IETF drafts' RateLimit; several lines of it joined by commas
}
