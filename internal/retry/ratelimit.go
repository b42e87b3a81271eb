package retry

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// paceFor returns the time until the receiver's rate limit resets, if one of its fields says
// that the limit is exhausted; else 0. If several fields say so, the longest time applies.
func paceFor(answer Answer, reference time.Time) time.Duration {
	var pace time.Duration
	if answer.RateLimitRemaining != "" && exhausted(answer.RateLimitRemaining) {
		pace = resetIn(answer.RateLimitReset, reference)
	}

	return max(pace, rateLimitField(answer.RateLimit))
}

// exhausted parses a remaining quota and reports whether it is zero or below.
func exhausted(text string) bool {
	remaining, err := strconv.ParseInt(trimBlanks(text), 10, 64)

	return err == nil && remaining <= 0
}

// resetIn parses X-RateLimit-Reset, which no standard defines. Common values are seconds from
// now, Unix seconds and Unix milliseconds, some with a fraction; the size tells them apart. It
// accepts an HTTP-date too.
func resetIn(text string, reference time.Time) time.Duration {
	text = trimBlanks(text)
	const unixSeconds, unixMilliseconds = 1e9, 1e11

	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return retryAfter(text, reference)
	case math.IsNaN(value) || math.IsInf(value, 0) || value <= 0:
		return 0
	case value < unixSeconds:
		return time.Duration(math.Ceil(value * float64(time.Second)))
	case reference.IsZero():
		return 0
	case value < unixMilliseconds:
		return max(0, time.Unix(0, 0).Add(capSeconds(value)).Sub(reference))
	default:
		return max(0, time.Unix(0, 0).Add(capSeconds(value/1000)).Sub(reference))
	}
}

// capSeconds converts seconds to a Duration, saturating, with millisecond resolution, which is
// the precision of a float64 for Unix times.
func capSeconds(seconds float64) time.Duration {
	if seconds >= saturated.Seconds() {
		return saturated
	}

	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}

// rateLimitField parses the RateLimit field of the IETF drafts "RateLimit header fields for
// HTTP" (draft-ietf-httpapi-ratelimit-headers): the dictionary of the drafts up to 07
// (limit=10, remaining=0, reset=30) and the list of policies since then ("burst";r=0;t=30).
// Both count in seconds.
func rateLimitField(field string) time.Duration {
	const longest = 1024
	if field == "" || len(field) > longest {
		return 0
	}

	var pace time.Duration
	var whole quota
	for _, member := range splitOutsideQuotes(field, ',') {
		var item quota
		for _, part := range splitOutsideQuotes(member, ';') {
			name, value, _ := strings.Cut(part, "=")
			switch trimBlanks(name) {
			case "r":
				item.exhausted = exhausted(value)
			case "t":
				item.reset, _ = parseSeconds(trimBlanks(value))
			case "remaining":
				whole.exhausted = exhausted(value)
			case "reset":
				whole.reset, _ = parseSeconds(trimBlanks(value))
			}
		}
		pace = max(pace, item.pace())
	}

	return max(pace, whole.pace())
}

// quota is one limit of a RateLimit field.
type quota struct {
	exhausted bool
	reset     time.Duration
}

func (q quota) pace() time.Duration {
	if !q.exhausted {
		return 0
	}

	return q.reset
}

// splitOutsideQuotes splits at every separator outside double quotes: the names of policies
// are quoted strings (RFC 9651) and may contain separators.
func splitOutsideQuotes(text string, separator byte) []string {
	var parts []string
	quoted := false
	begin := 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted && text[i] == separator:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}

	return append(parts, text[begin:])
}
