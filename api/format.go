package api

import (
	"bytes"
	"encoding/json"
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

// orEmpty returns an empty map for nil, so that it is encoded as {}.
func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// encodeJSON encodes v with a line break at its end. It does not escape <, > and &: nosniff and the media type keep
// browsers from interpreting an answer as HTML.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func megabytes(n int) string { return strconv.Itoa(n>>20) + " MiB" }
