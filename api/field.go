package api

import (
	"strconv"

	"github.com/everpost/everpost/internal/webhook"
)

func readObject(text []byte, field func(d *jsonDecoder, name string), required ...string) error {
	if text == nil {
		return webhook.Invalid("body", "is required")
	}
	d := newJSONDecoder(text)
	d.object(func(name []byte) { field(d, string(name)) }, required...)
	d.end()
	return d.problem()
}

// set reads a field's value with read, or sets its default for null.
func set[T any](d *jsonDecoder, field *T, initial T, read func(*jsonDecoder) T) {
	if d.null() {
		*field = initial
		return
	}
	*field = read(d)
}

func readBoolean(d *jsonDecoder) bool {
	b, _ := d.boolean()
	return b
}

// readPrintable reads a string that printable accepts. If there is none, it notes the error and
// returns "".
func readPrintable(d *jsonDecoder, limit int) string {
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

func readMetadata(d *jsonDecoder) map[string]string {
	return d.stringMap(webhook.MaxMetadata, func(name, value string) string {
		switch {
		case !printable(name, maxMetaKey):
			return "must have a name of 1 to " + strconv.Itoa(maxMetaKey) + " printable characters"
		case value != "" && !printable(value, maxMetaValue):
			return "must be at most " + strconv.Itoa(maxMetaValue) + " printable characters"
		}
		return ""
	})
}
