package webhook

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// wellRatio is the share of delivered attempts from which an endpoint is reported as "well".
const wellRatio = 0.95

// Summary describes the endpoint's condition, and how many deliveries wait and why, in text
// for people: "circuit open since 12:03 UTC after 14 of 20 requests failed, the last with
// 503; next probe in 21 s; 212 waiting for their turn". Times are UTC.
func (h *Health) Summary(now time.Time) string {
	parts := []string{h.condition(now)}
	if h.Observed.InFlight > 0 {
		parts = append(parts, strconv.Itoa(h.Observed.InFlight)+" in flight")
	}
	return strings.Join(append(parts, h.backlog(now)...), "; ")
}

// condition is the most important fact about the endpoint.
func (h *Health) condition(now time.Time) string {
	s := &h.Observed
	switch {
	case h.Endpoint.State != EndpointActive:
		return h.stopped()
	case s.Circuit == CircuitOpen:
		return "circuit open" + s.since(now) + s.cause() + "; " + s.probe(now)
	case s.Circuit == CircuitHalfOpen:
		return "circuit half open" + s.since(now) + s.cause() + "; a probe is under way"
	case s.BlockedUntil.After(now):
		return s.pauseRequested(now)
	case s.Recovering:
		words := "recovering: " + perSecond(s.Rate) + " and rising"
		if !s.Since.IsZero() {
			words = "circuit closed again" + s.since(now) + ", " + words
		}
		return words
	case s.DeferReason == ReasonInFlight || s.DeferReason == ReasonHost || s.Latency > SlowLatency:
		return h.busy()
	case s.DeferReason == ReasonRate:
		return "active, at its rate of " + perSecond(h.Endpoint.RateLimit)
	case s.FailureStreak == 1:
		return "active, but the last attempt failed"
	case s.FailureStreak > 1:
		return fmt.Sprintf("active, but the last %d attempts failed", s.FailureStreak)
	}
	ratio, known := s.SuccessRate()
	if !known {
		return "active; no trouble is known"
	}
	words := "active"
	if ratio >= wellRatio {
		words += " and well"
	}
	words += ": " + percent(ratio) + " of the attempts of the last 15 min delivered"
	if s.Latency > 0 {
		words += ", answers take " + latency(s.Latency)
	}
	return words
}

// stopped describes an endpoint that is not active.
func (h *Health) stopped() string {
	state, reason := h.Endpoint.State.String(), h.Endpoint.StateReason
	switch {
	case strings.HasPrefix(reason, state):
		return reason + ": nothing is sent"
	case reason != "":
		return state + " (" + reason + "): nothing is sent"
	}
	return state + ": nothing is sent"
}

// busy describes an endpoint that is slow or at its limit of requests in flight.
func (h *Health) busy() string {
	s := &h.Observed
	words := "active"
	if s.Latency > SlowLatency {
		words += " but slow, answers take " + latency(s.Latency)
	}
	switch s.DeferReason {
	case ReasonHost:
		words += ", waiting for its host, whose cap all endpoints there share: " + perSecond(s.Rate)
	case ReasonInFlight:
		words += fmt.Sprintf(", at its cap of %s at a time: %s", count(h.Endpoint.MaxInFlight, "request"), perSecond(s.Rate))
	}
	return words
}

func (s *Observation) since(now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	return " since " + clock(s.Since, now)
}

func (s *Observation) cause() string {
	if s.Why == "" {
		return ""
	}
	return " after " + strings.Replace(s.Why, " with http_", " with ", 1)
}

func (s *Observation) probe(now time.Time) string {
	if !s.NextProbe.After(now) {
		return "the next delivery is the probe"
	}
	return "next probe in " + timeUntil(s.NextProbe.Sub(now))
}

func (s *Observation) pauseRequested(now time.Time) string {
	words := "the receiver asked for a pause"
	switch s.BlockReason {
	case ReasonRetryAfter:
		words += " (429 with Retry-After)"
	case ReasonRateLimitHint:
		words = "the receiver says that its rate limit is used up"
	}
	return words + "; next request in " + timeUntil(s.BlockedUntil.Sub(now))
}

// backlog describes the waiting deliveries, and since when the oldest waits.
func (h *Health) backlog(now time.Time) []string {
	b := &h.Backlog
	var parts []string
	if n := b.Waiting(); n > 0 || b.MoreWaiting {
		parts = append(parts, atLeast(n, b.MoreWaiting)+" waiting"+h.waitReason(now))
	}
	if b.Scheduled > 0 {
		parts = append(parts, atLeast(b.Scheduled, b.MoreWaiting)+" scheduled")
	}
	if b.Held > 0 {
		words := atLeast(b.Held, b.MoreHeld) + " held"
		if h.Endpoint.State == EndpointActive {
			words += ", being released oldest first"
		} else {
			words += " until it is resumed"
		}
		parts = append(parts, words)
	}
	switch {
	case len(parts) == 0:
		return []string{"nothing waits"}
	case !b.Oldest.IsZero():
		parts = append(parts, "the oldest since "+clock(b.Oldest, now))
	}
	return parts
}

// waitReason describes what the waiting deliveries wait for.
func (h *Health) waitReason(now time.Time) string {
	b := &h.Backlog
	switch {
	case h.Endpoint.State != EndpointActive:
		return ", held when due"
	case b.MoreWaiting:
		return ""
	case b.Deferred == 0:
		next := ""
		if b.NextAt.After(now) && b.Retrying == 1 {
			next = " in " + timeUntil(b.NextAt.Sub(now))
		} else if b.NextAt.After(now) && b.Scheduled == 0 {
			next = ", the next in " + timeUntil(b.NextAt.Sub(now))
		}
		return " for a retry" + next
	case b.Retrying > 0:
		return fmt.Sprintf(" (%d for their turn, %d for a retry)", b.Deferred, b.Retrying)
	case b.Deferred == 1:
		return " for its turn"
	}
	return " for their turn"
}

// atLeast formats a count that may be incomplete.
func atLeast(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// clock formats a past time: the hour, and the day if that is not today.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	layout := "15:04 UTC"
	switch {
	case t.Year() != now.Year():
		layout = "2 Jan 2006, " + layout
	case t.YearDay() != now.YearDay():
		layout = "2 Jan, " + layout
	}
	return t.Format(layout)
}

// timeUntil formats a duration until something, rounded up: 21 s, 4 min, 3 h, 2 days.
func timeUntil(d time.Duration) string {
	const day = 24 * time.Hour
	up := func(unit time.Duration) int64 { return int64((d + unit - 1) / unit) }
	switch {
	case up(time.Second) < 100:
		return fmt.Sprintf("%d s", up(time.Second))
	case up(time.Minute) < 100:
		return fmt.Sprintf("%d min", up(time.Minute))
	case up(time.Hour) < 48:
		return fmt.Sprintf("%d h", up(time.Hour))
	}
	return fmt.Sprintf("%d days", up(day))
}

func latency(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return short(d.Seconds()) + " s"
}

// perSecond formats a rate, per minute if it is below 0.1 per second.
func perSecond(rate float64) string {
	unit := "second"
	if rate < 0.1 {
		rate, unit = rate*60, "minute"
	}
	number := short(rate)
	if number == "1" {
		return "1 request per " + unit
	}
	return number + " requests per " + unit
}

// short formats a number, with one decimal below ten unless that is zero.
func short(f float64) string {
	if f >= 10 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// percent formats a ratio to a tenth of a percent; only 0 and 1 give "0 %" and "100 %".
func percent(ratio float64) string {
	tenths := math.Round(ratio * 1000)
	if ratio > 0 && ratio < 1 {
		tenths = min(max(tenths, 1), 999)
	}
	return strings.TrimSuffix(strconv.FormatFloat(tenths/10, 'f', 1, 64), ".0") + " %"
}
