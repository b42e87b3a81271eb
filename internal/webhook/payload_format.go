package webhook

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// PayloadFormat is the format of the request body for an endpoint.
type PayloadFormat uint8

// The formats.
const (
	PayloadRaw      PayloadFormat = iota // the payload, byte for byte
	PayloadEnvelope                      // an object with the type, the time and the payload
)

// PayloadFormats returns all formats.
func PayloadFormats() []PayloadFormat { return []PayloadFormat{PayloadRaw, PayloadEnvelope} }

// String is the format's name in the API.
func (f PayloadFormat) String() string {
	switch f {
	case PayloadRaw:
		return "raw"
	case PayloadEnvelope:
		return "envelope"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// ParsePayloadFormat parses a format's name.
func ParsePayloadFormat(name string) (PayloadFormat, bool) {
	at := slices.IndexFunc(PayloadFormats(), func(f PayloadFormat) bool { return f.String() == name })
	if at < 0 {
		return 0, false
	}
	return PayloadFormats()[at], true
}

// MarshalText implements encoding.TextMarshaler.
func (f PayloadFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Content is the stored content of an event, from which the request body is made.
type Content struct {
	Payload   []byte
	SHA256    [sha256.Size]byte // of the payload, computed on arrival
	CreatedAt time.Time         // of the event
	Headers   map[string]string // of the event's requests; nil for none
	Sequence  Sequence          // of the delivery; zero if it is not numbered
}

// Size is how much of memory the content takes that its sender has chosen, in bytes.
func (c *Content) Size() int { return len(c.Payload) + HeaderSize(c.Headers) + len(c.Sequence.Key) }

// HeaderSize is the length of the names and values of headers, in bytes.
func HeaderSize(headers map[string]string) (size int) {
	for name, value := range headers {
		size += len(name) + len(value)
	}
	return size
}

// Body returns the body of every request that sends an event in the format. It depends on
// stored values only, so every attempt has the same body.
//
// An envelope has the structure that the Standard Webhooks specification recommends
// ("Payload structure"), so that the signature covers the type and the time too. It contains
// the payload's bytes unchanged. An event type (ValidType) needs no escaping in JSON. A numbered delivery's place is in "ordering".
func (f PayloadFormat) Body(eventType string, created time.Time, place Sequence, payload []byte) []byte {
	if f != PayloadEnvelope {
		return payload
	}
	const room = len(`{"type":"","timestamp":"","data":}`) + len(microseconds)
	size := room + len(eventType) + len(payload)
	if !place.IsZero() {
		size += maxPlace
	}
	body := make([]byte, 0, size)
	body = append(body, `{"type":"`...)
	body = append(body, eventType...)
	body = append(body, `","timestamp":"`...)
	body = created.UTC().AppendFormat(body, microseconds)
	body = append(body, '"')
	if !place.IsZero() {
		body = append(body, `,"ordering":`...)
		body = place.appendJSON(body)
	}
	body = append(body, `,"data":`...)
	body = append(body, payload...)
	return append(body, '}')
}
