// Package retry decides when a delivery is tried again and when it is given up.
//
// The package is pure: the clock and the random number are arguments, and it does no I/O.
// Its two main functions are Classify, which turns the result of a request (Answer) into an
// Outcome, and Policy.Next, which turns an Outcome into a Verdict.
package retry

import "time"

// Answer is the result of one request, reduced to what Classify needs. Status is 0 if no
// status line was read. A status takes precedence over Failure.
type Answer struct {
	Failure    Failure
	Status     int       // as received, not normalised; may be outside 100 to 999
	RetryAfter string    // the raw Retry-After field; "" if absent
	Date       string    // the raw Date field; "" if absent
	ReceivedAt time.Time // local time when the response or the failure arrived

	// Raw rate-limit fields; "" if absent.
	RateLimitRemaining string // X-RateLimit-Remaining, or the IETF drafts' RateLimit-Remaining
	RateLimitReset     string // X-RateLimit-Reset, or RateLimit-Reset
	RateLimit          string // the IETF drafts' RateLimit; several lines are joined by commas
}
