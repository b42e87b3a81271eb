package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultTolerance is how far a timestamp may be from the verifier's clock, in either
// direction: what the libraries of Standard Webhooks use.
const DefaultTolerance = 5 * time.Minute

// mostSignatures bounds how many signatures of a header are looked at.
const mostSignatures = 16

// Why a message is refused.
var (
	ErrMissingHeader = errors.New("a webhook header is missing")
	ErrBadTimestamp  = errors.New("the timestamp is not a number of seconds")
	ErrTooOld        = errors.New("the timestamp is too old")
	ErrTooNew        = errors.New("the timestamp is in the future")
	ErrNoMatch       = errors.New("no signature matches")
)

// Message is a received webhook: the values of its three headers, and its body.
type Message struct {
	ID        string // webhook-id
	Timestamp string // webhook-timestamp
	Signature string // webhook-signature
	Body      []byte
}

// Key is what a signature can be verified with: a Secret or a PublicKey.
type Key interface {
	// matches says whether one signature (without its version) of this version is
	// that of the parts of a message.
	matches(version string, signature, head, body []byte) bool
}

// Verify returns nil if one of the message's signatures was made with one of the keys
// and its timestamp is within tolerance of now. A tolerance of 0 stands for
// DefaultTolerance; a negative one accepts any time. Otherwise the error wraps
// ErrMissingHeader, ErrBadTimestamp, ErrTooOld, ErrTooNew or ErrNoMatch.
//
// Signatures of unknown versions and malformed ones are skipped, as the specification
// asks; beyond 16 none is looked at.
func Verify(message Message, now time.Time, tolerance time.Duration, keys ...Key) error {
	if message.ID == "" || message.Timestamp == "" || message.Signature == "" {
		return fmt.Errorf("verify webhook: %w", ErrMissingHeader)
	}
	unix, err := strconv.ParseInt(message.Timestamp, 10, 64)
	// What was signed is the text; a second spelling of the number is refused.
	if err != nil || strconv.FormatInt(unix, 10) != message.Timestamp {
		return fmt.Errorf("verify webhook: %w", ErrBadTimestamp)
	}
	if err := checkAge(unix, now, tolerance); err != nil {
		return fmt.Errorf("verify webhook: %w", err)
	}

	head := signedHead(nil, message.ID, unix)
	rest := message.Signature
	for range mostSignatures {
		var one string
		one, rest, _ = strings.Cut(rest, " ")
		version, encoded, _ := strings.Cut(one, ",")
		signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || strings.ContainsAny(encoded, "\r\n") { // which the decoder would step over
			continue
		}
		for _, key := range keys {
			if key.matches(version+",", signature, head, message.Body) {
				return nil
			}
		}
	}

	return fmt.Errorf("verify webhook: %w", ErrNoMatch)
}

// checkAge compares whole seconds, so that no sum can overflow: tolerance is far
// smaller than what separates now from the ends of int64.
func checkAge(unix int64, now time.Time, tolerance time.Duration) error {
	if tolerance < 0 {
		return nil
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	seconds := int64(tolerance / time.Second)
	switch {
	case unix < now.Unix()-seconds:
		return ErrTooOld
	case unix > now.Unix()+seconds:
		return ErrTooNew
	default:
		return nil
	}
}

// VerifyHex returns nil if header is what SignHex makes of the body and the secret;
// else ErrMissingHeader, ErrNoHMACSecret or ErrNoMatch, wrapped. The scheme has no
// timestamp, so it does not protect from replays.
func VerifyHex(header string, body []byte, secret Secret) error {
	if header == "" {
		return fmt.Errorf("verify hex webhook: %w", ErrMissingHeader)
	}
	if secret.kind != HMAC {
		return fmt.Errorf("verify hex webhook: %w", ErrNoHMACSecret)
	}
	encoded, found := strings.CutPrefix(header, hexMark)
	got, err := hex.DecodeString(encoded)
	if !found || err != nil || !hmac.Equal(got, sum(secret.key(), body)) {
		return fmt.Errorf("verify hex webhook: %w", ErrNoMatch)
	}

	return nil
}

func (s Secret) matches(version string, signature, head, body []byte) bool {
	switch s.kind {
	case HMAC:
		return version == versionHMAC && hmac.Equal(signature, sum(s.key(), head, body))
	case Ed25519:
		public, _ := s.Public()
		return public.matches(version, signature, head, body)
	default:
		return false
	}
}

func (k PublicKey) matches(version string, signature, head, body []byte) bool {
	return version == versionEd25519 && len(k.key) == ed25519.PublicKeySize &&
		ed25519.Verify(k.key, join(head, body), signature)
}
