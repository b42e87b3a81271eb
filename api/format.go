package api

import (
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of texts that people write, in characters.
const (
	maxName        = 255
	maxDescription = 1024
	maxReason      = 255
	maxMetaKey     = 64
	maxMetaValue   = 512
)

// timestamp is a time as the API shows it: RFC 3339, UTC, microseconds; null when zero.
type timestamp time.Time

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(t).UTC().AppendFormat(make([]byte, 0, 32), `"2006-01-02T15:04:05.000000Z"`), nil
}

// shortDuration writes a duration of at most some minutes in seconds: "15s",
// "1.5s". time.ParseDuration reads it back.
func shortDuration(d time.Duration) string {
	return formatFloat(d.Seconds()) + "s"
}

// nullable is nil, so null, for the zero value.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// milliseconds is a duration in whole milliseconds, null when it is zero. What was
// asked for is never shown as nothing: a part of a millisecond counts as one.
func milliseconds(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ms := max(d.Milliseconds(), 1)
	return &ms
}

// printable reports whether s is 1 to limit characters that show: letters, marks,
// numbers, punctuation, symbols and the ordinary space.
func printable(s string, limit int) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func notPrintable(limit int) string {
	return "must be 1 to " + strconv.Itoa(limit) + " printable characters"
}

// readPrintable reads a string that printable accepts; "" with the reason noted
// when there is none.
func readPrintable(d *door, limit int) string {
	s, ok := d.str()
	if ok && !printable(s, limit) {
		d.note(notPrintable(limit))
		return ""
	}
	return s
}

// readReason reads why something is asked, or why something was given up.
func readReason(d *door) string { return readPrintable(d, maxReason) }

// readLabel is readPrintable that lets the empty text pass.
func readLabel(d *door, limit int) string {
	s, ok := d.str()
	if ok && s != "" && !printable(s, limit) {
		d.note("must be at most " + strconv.Itoa(limit) + " printable characters")
		return ""
	}
	return s
}
