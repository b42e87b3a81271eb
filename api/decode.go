package api

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// null reads a null, and reports whether there was one.
func (d *jsonDecoder) null() bool {
	if d.broken || d.next() != 'n' {
		return false
	}
	d.literal("null")
	return true
}

// unknown notes that the current field is unknown and skips its value.
func (d *jsonDecoder) unknown() {
	d.note("is not a known field")
	d.skip()
}

// str reads a string. ok is false if there is none; the error is noted.
func (d *jsonDecoder) str() (s string, ok bool) {
	if d.next() != '"' {
		d.mismatch("must be a string")
		return "", false
	}
	raw, escaped := d.quoted()
	if d.broken {
		return "", false
	}
	if !escaped {
		return string(raw), true
	}
	text, whole := unescape(raw)
	if !whole {
		d.note("contains half of a surrogate pair")
		return "", false
	}
	return string(text), true
}

// strMax reads a string of at most limit characters. It is "" if there is none.
func (d *jsonDecoder) strMax(limit int) string {
	s, _ := d.str()
	if utf8.RuneCountInString(s) > limit {
		d.note("is longer than " + strconv.Itoa(limit) + " characters")
		return ""
	}
	return s
}

// boolean reads true or false.
func (d *jsonDecoder) boolean() (b, ok bool) {
	switch d.next() {
	case 't':
		d.literal("true")
		return true, !d.broken
	case 'f':
		d.literal("false")
		return false, !d.broken
	}
	d.mismatch("must be true or false")
	return false, false
}

// integer reads an integer within bounds, written without fraction and exponent.
func (d *jsonDecoder) integer(low, high int) int {
	if c := d.next(); c != '-' && !isDigit(c) {
		d.mismatch("must be a whole number")
		return 0
	}
	text := d.number()
	if d.broken {
		return 0
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < low || n > high {
		d.note("must be a whole number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high))
		return 0
	}
	return n
}

// float reads a number within bounds.
func (d *jsonDecoder) float(low, high float64) float64 {
	if c := d.next(); c != '-' && !isDigit(c) {
		d.mismatch("must be a number")
		return 0
	}
	text := d.number()
	if d.broken {
		return 0
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(f) || f < low || f > high {
		d.note("must be a number from " + formatFloat(low) + " to " + formatFloat(high))
		return 0
	}
	return f
}

// duration reads a Go duration string within bounds, such as "15s".
func (d *jsonDecoder) duration(low, high time.Duration) time.Duration {
	if d.next() != '"' {
		d.mismatch(`must be a duration in quotes, such as "15s"`)
		return 0
	}
	s, ok := d.str()
	if !ok {
		return 0
	}
	v, ok := within(s, low, high)
	if !ok {
		d.note("must be " + aDuration(low, high))
	}
	return v
}

// within parses a duration. ok is false, and v is 0, if it is invalid or out of bounds.
func within(s string, low, high time.Duration) (v time.Duration, ok bool) {
	v, err := time.ParseDuration(s)
	if err != nil || v < low || v > high {
		return 0, false
	}
	return v, true
}

// aDuration describes the durations that within accepts.
func aDuration(low, high time.Duration) string {
	return `a duration from "` + shortDuration(low) + `" to "` + shortDuration(high) + `"`
}

// instant reads an RFC 3339 time.
func (d *jsonDecoder) instant() (t time.Time, ok bool) {
	s, ok := d.str()
	if !ok {
		return time.Time{}, false
	}
	if t, ok = parseTime(s); !ok {
		d.note(notATime)
	}
	return t, ok
}

const (
	notATime      = `must be an RFC 3339 time, such as "2026-01-31T09:30:00Z"`
	notATimeOrAge = notATime + `, or how long ago it is, such as "90m" or "7d"`
)

// parseTime parses an RFC 3339 time and truncates it to microseconds, the resolution of
// PostgreSQL. time.Parse accepts one-digit hours and a decimal comma (golang/go #54580), which
// RFC 3339 does not permit.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ",") {
		return time.Time{}, false
	}
	return t.UTC().Truncate(time.Microsecond), true
}

// stringMap reads an object of strings. check, unless nil, returns what is wrong with an entry,
// or "".
func (d *jsonDecoder) stringMap(most int, check func(name, value string) string) map[string]string {
	m := make(map[string]string)
	d.object(func(raw []byte) {
		value, ok := d.str()
		if !ok {
			return
		}
		name := string(raw)
		if !utf8.ValidString(name) {
			d.note("has half of a surrogate pair in its name")
		}
		if message := check(name, value); message != "" {
			d.note(message)
		}
		if m[name] = value; len(m) == most+1 {
			d.noteParent("has more than " + strconv.Itoa(most) + " entries")
		}
	})
	return m
}
