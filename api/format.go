package api

import (
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/everpost/everpost/client"
)

// Limits of texts, in characters.
const (
	maxName        = 255
	maxDescription = 1024
	maxReason      = 255
	maxMetaKey     = 64
	maxMetaValue   = 512
)

// timestamp is a time in the API's format; null if zero.
func timestamp(t time.Time) client.Time { return client.Time{Time: t} }

// shortDuration formats a duration of up to some minutes in seconds: "15s", "1.5s".
// time.ParseDuration parses it.
func shortDuration(d time.Duration) string {
	return formatFloat(d.Seconds()) + "s"
}

// nullable returns nil, which is encoded as null, for the zero value.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// nullableText returns nil, which is encoded as null, for the zero value, and the text of another.
func nullableText[T interface {
	comparable
	fmt.Stringer
}](v T) *string {
	var zero T
	if v == zero {
		return nil
	}
	return new(v.String())
}

// milliseconds returns a duration in whole milliseconds, or nil for zero. It rounds up, so that a
// positive duration is never 0.
func milliseconds(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	ms := max(d.Milliseconds(), 1)
	return &ms
}

// printable reports whether s has 1 to limit characters that are letters, marks, numbers,
// punctuation, symbols or the ordinary space.
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

// readPrintable reads a string that printable accepts. If there is none, it notes the error and
// returns "".
func readPrintable(d *jsonDecoder, limit int) string { //nolint:unparam // each field has a limit of its own
	s, ok := d.str()
	if ok && !printable(s, limit) {
		d.note(notPrintable(limit))
		return ""
	}
	return s
}

// readReason reads the reason of a command.
func readReason(d *jsonDecoder) string { return readPrintable(d, maxReason) }

// readLabel is readPrintable, but accepts the empty text.
func readLabel(d *jsonDecoder, limit int) string {
	s, ok := d.str()
	if ok && s != "" && !printable(s, limit) {
		d.note("must be at most " + strconv.Itoa(limit) + " printable characters")
		return ""
	}
	return s
}
