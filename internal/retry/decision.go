package retry

import (
	"fmt"
	"strings"
)

// Decision is the classification of an attempt. The zero value means that there is none: no
// attempt was made, or it failed for an internal reason.
type Decision uint8

// The decisions about an attempt.
const (
	Delivered Decision = iota + 1 // the receiver has accepted the event
	Retry                         // try again, as the policy determines
	Permanent                     // another attempt can not help: dead-letter
)

// String returns "delivered", "retry" or "permanent", and "" for the zero value.
func (d Decision) String() string {
	switch d {
	case Delivered:
		return "delivered"
	case Retry:
		return "retry"
	case Permanent:
		return "permanent"
	default:
		return ""
	}
}

// MarshalText returns String as bytes. The zero value is empty text, so that a result
// without a decision can be encoded as JSON.
func (d Decision) MarshalText() ([]byte, error) {
	return []byte(d.String()), nil
}

// UnmarshalText is the inverse of MarshalText and returns an error for any other text.
func (d *Decision) UnmarshalText(text []byte) error {
	return parseEnum(d, text, "decision", 0, Delivered, Retry, Permanent)
}

// parseEnum sets *into to the value whose String is text.
func parseEnum[T fmt.Stringer](into *T, text []byte, kind string, values ...T) error {
	for _, value := range values {
		if value.String() == string(text) {
			*into = value
			return nil
		}
	}

	return fmt.Errorf("parse %s %q: must be %s", kind, clip(string(text)), enumNames(values))
}

// enumNames lists the values in an error message: "none, full or equal".
func enumNames[T fmt.Stringer](values []T) string {
	names := make([]string, 0, len(values))
	for _, value := range values {
		if name := value.String(); name != "" {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}

	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// clip limits how much of a caller's text an error message repeats.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}

	return strings.ToValidUTF8(text[:most], "") + "…"
}
