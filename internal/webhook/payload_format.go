package webhook

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// PayloadFormat says what the body of a request to an endpoint is made of.
type PayloadFormat uint8

// The formats.
const (
	PayloadRaw      PayloadFormat = iota // the payload, byte for byte as it was posted
	PayloadEnvelope                      // an object of the type, the time and the payload
)

// PayloadFormats are all formats.
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

// ParsePayloadFormat reads a format's name.
func ParsePayloadFormat(name string) (PayloadFormat, bool) {
	at := slices.IndexFunc(PayloadFormats(), func(f PayloadFormat) bool { return f.String() == name })
	if at < 0 {
		return 0, false
	}
	return PayloadFormats()[at], true
}

// MarshalText implements encoding.TextMarshaler.
func (f PayloadFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Content is what a request tells of an event, as it was stored.
type Content struct {
	Payload   []byte
	SHA256    [sha256.Size]byte // of the payload, taken when it arrived
	CreatedAt time.Time         // of the event
}

// Body is the body of every request that sends an event in the format. All that it is made
// of stays as it is, so that it is the same with every attempt.
//
// An envelope is what the Standard Webhooks specification recommends ("Payload structure"):
// the signature covers the type and the time too. The bytes of the payload, a JSON value,
// stand in it as they are, and no character of an event type (ValidType) needs an escape.
func (f PayloadFormat) Body(eventType string, created time.Time, payload []byte) []byte {
	if f != PayloadEnvelope {
		return payload
	}
	const room = len(`{"type":"","timestamp":"","data":}`) + len(microseconds)
	body := make([]byte, 0, room+len(eventType)+len(payload))
	body = append(body, `{"type":"`...)
	body = append(body, eventType...)
	body = append(body, `","timestamp":"`...)
	body = created.UTC().AppendFormat(body, microseconds)
	body = append(body, `","data":`...)
	body = append(body, payload...)
	return append(body, '}')
}
