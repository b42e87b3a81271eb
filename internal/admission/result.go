package admission

import (
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Result is the result of a request.
type Result struct {
	Latency        time.Duration
	Number         int          // of the attempt; from 2 on it is a retry
	Reason         retry.Reason // of the attempt
	Error          string       // of the attempt: webhook.Attempt.Error; "" for none
	Times          webhook.Times
	Delivered      bool
	Answered       bool // a status was read
	BreakerFailure bool // the circuit breaker counts it as a failure
	TimedOut       bool // there was a connection, and no complete answer in time

	// DeferFor is for how long the receiver has asked for no requests (Retry-After with 429); 0: it
	// has not asked. PaceFor is the time until its exhausted rate limit is reset. Of both, an hour
	// counts at most.
	DeferFor, PaceFor time.Duration
}

// ResultOf returns the result that an attempt's outcome stands for.
//
// Retry-After defers the endpoint only with a 429: with another status it applies to this delivery
// alone.
func ResultOf(outcome retry.Outcome, number int, latency time.Duration) Result {
	r := Result{
		Latency: latency, Number: number, Reason: outcome.Reason,
		Delivered:      outcome.Decision == retry.Delivered,
		Answered:       outcome.Status != 0,
		BreakerFailure: outcome.BreakerFailure,
		TimedOut:       timedOut(outcome.Reason),
		PaceFor:        outcome.PaceFor,
	}
	if outcome.Status == http.StatusTooManyRequests {
		r.DeferFor = outcome.RetryAfter
	}
	return r
}

// timedOut reports whether a receiver that accepted the connection did not answer in time. One
// that does not accept it is unreachable, not slow: a longer timeout would not help.
func timedOut(reason retry.Reason) bool {
	return reason == retry.ReasonTimeoutTLS || reason == retry.ReasonTimeoutHeaders || reason == retry.ReasonTimeoutBody
}

// signal is what a result means for the circuit breaker.
type signal uint8

const (
	signalNone signal = iota // nothing: a resolver that fails or a token server that refuses is not the receiver
	signalSuccess
	signalFailure
)

func (r *Result) signal() signal {
	switch {
	case r.BreakerFailure:
		return signalFailure
	case r.Answered || r.Delivered:
		return signalSuccess
	}
	return signalNone
}
