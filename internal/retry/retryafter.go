package retry

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// saturated stands for every time span that a Duration cannot hold (292 years).
const saturated = time.Duration(math.MaxInt64)

// reference returns the time relative to which the answer's dates are interpreted: its own
// Date if there is one, so that a wrong clock of the receiver does not matter, else the
// local arrival time. It is zero if neither is known.
func (a Answer) reference() time.Time {
	if date, ok := parseHTTPDate(a.Date, a.ReceivedAt); ok {
		return date
	}

	return a.ReceivedAt
}

// retryAfter parses a Retry-After field (RFC 9110 section 10.2.3): whole seconds or an
// HTTP-date, with optional white space around it. It returns 0 for an absent or invalid field,
// zero, and a date that is not after reference.
func retryAfter(field string, reference time.Time) time.Duration {
	field = trimBlanks(field)
	if seconds, ok := parseSeconds(field); ok {
		return seconds
	}
	date, ok := parseHTTPDate(field, reference)
	if !ok || reference.IsZero() {
		return 0
	}

	return max(0, date.Sub(reference))
}

// parseSeconds parses decimal digits as seconds, saturating. It refuses signs, fractions and
// empty text.
func parseSeconds(text string) (time.Duration, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds > int64(saturated/time.Second) { // the only possible error is the range
		return saturated, true
	}

	return time.Duration(seconds) * time.Second, true
}

// parseHTTPDate parses the three forms of an HTTP-date (RFC 9110 section 5.6.7): IMF-fixdate,
// RFC 850 and asctime, all of them in UTC. near determines the century of RFC 850's two-digit
// year: not more than 50 years after near.
func parseHTTPDate(field string, near time.Time) (time.Time, bool) {
	field = trimBlanks(field)
	// The longest form, RFC 850 with a Wednesday, has 33 bytes.
	if len(field) < len(time.ANSIC) || len(field) > 40 {
		return time.Time{}, false
	}
	if date, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", field); err == nil {
		return date, true
	}
	if date, err := time.Parse("Monday, 02-Jan-06 15:04:05 GMT", field); err == nil {
		return settleCentury(date, near), true
	}
	if date, err := time.Parse(time.ANSIC, field); err == nil {
		return date, true
	}

	return time.Time{}, false
}

// settleCentury moves a date with a two-digit year to the century that RFC 9110 requires: the
// latest one that is not more than 50 years after near.
func settleCentury(date, near time.Time) time.Time {
	if near.IsZero() {
		return date
	}
	limit := near.AddDate(50, 0, 0)
	for date.AddDate(100, 0, 0).Before(limit) {
		date = date.AddDate(100, 0, 0)
	}
	for date.After(limit) && date.Year() >= 100 {
		date = date.AddDate(-100, 0, 0)
	}

	return date
}

// trimBlanks removes what RFC 9110 calls OWS, and line ends that a lenient HTTP parser may
// have left.
func trimBlanks(field string) string {
	return strings.Trim(field, " \t\r\n")
}
