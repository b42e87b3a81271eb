package webhook

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ID is a UUIDv7 (RFC 9562 §5.7) shown as a prefix and 26 characters of
// Crockford's base32, for example evt_06f4q2m0hhf5dd6cs7m9k2q8xw. Text and bytes
// sort alike, by time of creation.
//
// The kind is part of the type, so that an event's id cannot be passed where an
// endpoint's is wanted. The zero ID is "none"; it is never stored.
type ID[K kind] [16]byte

type kind interface{ prefix() string }

// The kinds of ids.
type (
	eventKind    struct{}
	endpointKind struct{}
	deliveryKind struct{}
	keyKind      struct{}
	replayKind   struct{}
	auditKind    struct{}
	linkKind     struct{}
	channelKind  struct{}

	EventID    = ID[eventKind]
	EndpointID = ID[endpointKind]
	DeliveryID = ID[deliveryKind]
	KeyID      = ID[keyKind]
	ReplayID   = ID[replayKind]
	AuditID    = ID[auditKind]
	LinkID     = ID[linkKind]
	ChannelID  = ID[channelKind]
)

func (eventKind) prefix() string    { return "evt" }
func (endpointKind) prefix() string { return "ep" }
func (deliveryKind) prefix() string { return "dlv" }
func (keyKind) prefix() string      { return "key" }
func (replayKind) prefix() string   { return "rpl" }
func (auditKind) prefix() string    { return "aud" }
func (linkKind) prefix() string     { return "lnk" }
func (channelKind) prefix() string  { return "nch" }

const (
	base32Alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	base32Length   = 26
)

func newID[K kind]() ID[K] { return ID[K](uuid.Must(uuid.NewV7())) }

// NewEventID makes an id that carries the present time.
func NewEventID() EventID { return newID[eventKind]() }

// NewEndpointID makes an id that carries the present time.
func NewEndpointID() EndpointID { return newID[endpointKind]() }

// NewKeyID makes an id that carries the present time.
func NewKeyID() KeyID { return newID[keyKind]() }

// NewReplayID makes an id that carries the present time.
func NewReplayID() ReplayID { return newID[replayKind]() }

// NewAuditID makes an id that carries the present time.
func NewAuditID() AuditID { return newID[auditKind]() }

// NewLinkID makes an id that carries the present time.
func NewLinkID() LinkID { return newID[linkKind]() }

// NewChannelID makes an id that carries the present time.
func NewChannelID() ChannelID { return newID[channelKind]() }

// DeliveryIDOf is the id of the delivery of an event to an endpoint: the event's
// time followed by a hash of both ids, as a UUIDv8 (RFC 9562 §5.8). The same pair
// always has the same id, and it sorts into the day of its event.
func DeliveryIDOf(event EventID, endpoint EndpointID) DeliveryID {
	var pair [32]byte
	copy(pair[:16], event[:])
	copy(pair[16:], endpoint[:])
	sum := sha256.Sum256(pair[:])

	var id DeliveryID
	copy(id[:6], event[:6])
	copy(id[6:], sum[:10])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// String is the id as the API shows it.
func (id ID[K]) String() string {
	var k K
	prefix := k.prefix()
	out := make([]byte, len(prefix)+1+base32Length)
	copy(out, prefix)
	out[len(prefix)] = '_'
	encode(out[len(prefix)+1:], id)
	return string(out)
}

// encode writes 16 bytes as 26 base32 digits, most significant first, the last
// one padded with zero bits.
func encode(dst []byte, src [16]byte) {
	hi, lo := binary.BigEndian.Uint64(src[:8]), binary.BigEndian.Uint64(src[8:])
	for i := range base32Length {
		shift := 123 - 5*i // position of the digit's lowest bit within the 128
		var digit uint64
		switch {
		case shift >= 64:
			digit = hi >> (shift - 64)
		case shift > 59:
			digit = hi<<(64-shift) | lo>>shift
		case shift >= 0:
			digit = lo >> shift
		default:
			digit = lo << -shift
		}
		dst[i] = base32Alphabet[digit&31]
	}
}

// ParseEventID reads an event's id; see parseID.
func ParseEventID(s string) (EventID, error) { return parseID[eventKind](s) }

// ParseEndpointID reads an endpoint's id; see parseID.
func ParseEndpointID(s string) (EndpointID, error) { return parseID[endpointKind](s) }

// ParseDeliveryID reads a delivery's id; see parseID.
func ParseDeliveryID(s string) (DeliveryID, error) { return parseID[deliveryKind](s) }

// ParseKeyID reads a key's id; see parseID.
func ParseKeyID(s string) (KeyID, error) { return parseID[keyKind](s) }

// ParseLinkID parses the id of a link.
func ParseLinkID(s string) (LinkID, error) { return parseID[linkKind](s) }

// ParseReplayID reads a replay's id; see parseID.
func ParseReplayID(s string) (ReplayID, error) { return parseID[replayKind](s) }

// ParseChannelID reads a notification channel's id; see parseID.
func ParseChannelID(s string) (ChannelID, error) { return parseID[channelKind](s) }

// parseID reads an id of one kind, in its one spelling. The error is a phrase for
// people, fit to follow a field's name, and does not repeat what was given.
func parseID[K kind](s string) (ID[K], error) {
	var (
		id ID[K]
		k  K
	)
	rest, ok := strings.CutPrefix(s, k.prefix()+"_")
	if !ok || len(rest) != base32Length {
		return ID[K]{}, fmt.Errorf("is not an id of the form %s_…", k.prefix())
	}
	if !decode((*[16]byte)(&id), rest) || id == (ID[K]{}) { // which means "none" everywhere
		return ID[K]{}, fmt.Errorf("is not an id of the form %s_…", k.prefix())
	}
	return id, nil
}

// decode reads what encode writes, and nothing else; not with encoding/base32, whose Encoding
// is as large as ten ids and copied for each.
func decode(dst *[16]byte, text string) bool {
	var hi, lo uint64
	for i := range base32Length - 1 {
		digit := strings.IndexByte(base32Alphabet, text[i])
		if digit < 0 {
			return false
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(digit)
	}
	last := strings.IndexByte(base32Alphabet, text[base32Length-1])
	if last < 0 || last&3 != 0 { // two of its bits are unused: one spelling only
		return false
	}
	hi, lo = hi<<3|lo>>61, lo<<3|uint64(last)>>2
	binary.BigEndian.PutUint64(dst[:8], hi)
	binary.BigEndian.PutUint64(dst[8:], lo)
	return true
}

// KindOf is what an id names: "event", "delivery", "endpoint", "replay", "key" or "audit entry"; "" without a prefix of
// these. The error is that of parseID: the kind is then only what the prefix says.
func KindOf(id string) (kind string, err error) {
	switch prefix, _, _ := strings.Cut(id, "_"); prefix {
	case "evt":
		kind, err = "event", parseError[eventKind](id)
	case "dlv":
		kind, err = "delivery", parseError[deliveryKind](id)
	case "ep":
		kind, err = "endpoint", parseError[endpointKind](id)
	case "rpl":
		kind, err = "replay", parseError[replayKind](id)
	case "key":
		kind, err = "key", parseError[keyKind](id)
	case "aud":
		kind, err = "audit entry", parseError[auditKind](id)
	default:
		err = errors.New("is not an id")
	}
	return kind, err
}

func parseError[K kind](id string) error {
	_, err := parseID[K](id)
	return err
}

// IsZero reports whether the id is "none".
func (id ID[K]) IsZero() bool { return id == ID[K]{} }

// Time is the millisecond that the id carries, in UTC.
func (id ID[K]) Time() time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC() //nolint:gosec // 48 bits always fit
}

// Later is the id as it would be, had it been made d later; the time of an id is whole
// milliseconds.
func (id ID[K]) Later(d time.Duration) ID[K] {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(id.Time().Add(d).UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

// MarshalText implements encoding.TextMarshaler; the zero id is the empty text.
func (id ID[K]) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with the rules of the Parse functions;
// the empty text is the zero id.
func (id *ID[K]) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID[K]{}
		return nil
	}
	parsed, err := parseID[K](string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
