package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// ConditionCode is how an endpoint is, beside the state that a person has set.
type ConditionCode string

// The conditions, from the best to the worst.
const (
	ConditionHealthy  ConditionCode = "healthy"      // or nothing is sent to it
	ConditionSlow     ConditionCode = "slow"         // answers take more than a second
	ConditionAtLimit  ConditionCode = "at_limit"     // of its own, of its host, or of its receiver
	ConditionFailing  ConditionCode = "failing"      // see webhook.Observation.Failing; or what counts as delivered may be lost: Strayed
	ConditionOpen     ConditionCode = "circuit_open" // or half open
	ConditionPaused   ConditionCode = "paused"
	ConditionDisabled ConditionCode = "disabled"
)

// ConditionCodes returns all conditions, from the best to the worst.
func ConditionCodes() []ConditionCode {
	return []ConditionCode{
		ConditionHealthy, ConditionSlow, ConditionAtLimit, ConditionFailing, ConditionOpen, ConditionPaused, ConditionDisabled,
	}
}

// ShortCondition is the condition of an endpoint for a list.
type ShortCondition struct {
	Code  ConditionCode
	Cause string    // in a few words, such as "TLS failed: the certificate expired on 21 Nov 00:00 UTC"; "" if nothing is wrong
	Since time.Time // zero if it is not known
}

// ConditionOf is Endpoint for a list: the deepest cause in a few words.
func ConditionOf(h *webhook.Health, now time.Time) ShortCondition {
	s := health{Health: h, now: now}
	o := &h.Observed
	switch s.condition().Code { //nolint:exhaustive // the others are not of endpoints, or of one that is healthy
	case EndpointOff:
		return ShortCondition{ConditionDisabled, stoppedBriefly(h.Endpoint.StateReason), h.Endpoint.StateSince}
	case EndpointPause:
		return ShortCondition{ConditionPaused, foreign(h.Endpoint.StateReason), h.Endpoint.StateSince}
	case EndpointOpen, EndpointProbe:
		return ShortCondition{ConditionOpen, s.shortFailure(), o.Since}
	case EndpointFails:
		return ShortCondition{ConditionFailing, s.shortFailure(), o.FailingSince}
	case EndpointStray:
		return ShortCondition{ConditionFailing, strayedTo(&o.Strayed), o.Strayed.At}
	case EndpointRests:
		return ShortCondition{ConditionAtLimit, pauseBriefly(o, now), time.Time{}}
	case EndpointRate:
		return ShortCondition{ConditionAtLimit, "its rate limit is reached: " + PerSecond(h.Endpoint.RateLimit), time.Time{}}
	case EndpointBusy:
		if o.DeferReason == webhook.ReasonHost {
			return ShortCondition{ConditionAtLimit, "its host gets no more requests at a time", time.Time{}}
		}
		return ShortCondition{ConditionAtLimit, fmt.Sprintf("its limit is reached: %s at a time", count(h.Endpoint.MaxInFlight, "request")), time.Time{}}
	case EndpointSlow:
		return ShortCondition{ConditionSlow, "answers take " + latency(o.Latency), time.Time{}}
	case EndpointRises: // nothing is wrong any more; the sentence says that the rate rises
		return ShortCondition{ConditionHealthy, "", o.Since}
	}
	return ShortCondition{Code: ConditionHealthy}
}

// shortFailure is the last failure in a few words.
func (h health) shortFailure() string {
	last := h.failure()
	if last.Reason == "" { // only why the circuit has opened is known
		_, last.Reason, _ = strings.Cut(h.Observed.Why, " with ")
	}
	return briefly(last.Reason, last.Error, h.now)
}

// pauseBriefly is pauseRequested in a few words.
func pauseBriefly(s *webhook.Observation, now time.Time) string {
	words := "it asked for a pause"
	switch s.BlockReason {
	case webhook.ReasonRetryAfter:
		words = statusWords(tooManyRequests) + ": " + words
	case webhook.ReasonRateLimitHint:
		words = "rate limit used up: " + words
	}
	return words + ", next request in " + timeUntil(s.BlockedUntil.Sub(now))
}

// tooManyRequests is the status whose Retry-After holds for a whole endpoint.
const tooManyRequests = 429
