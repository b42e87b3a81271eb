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

// DefaultTolerance is the maximum difference between a timestamp and the verifier's clock, in either
// direction. The Standard Webhooks libraries use the same value.
const DefaultTolerance = 5 * time.Minute

// mostSignatures limits how many signatures of a header are checked.
const mostSignatures = 16

// Reasons for which a message is refused.
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

// Key verifies signatures: a Secret or a PublicKey.
type Key interface {
	// matches reports whether a signature (without its version) of this version is the
	// signature of the message head+body.
	matches(version string, signature, head, body []byte) bool
}

// Verify returns nil if one of the message's signatures was made with one of the keys and its
// timestamp is within tolerance of now. A tolerance of 0 stands for DefaultTolerance; a negative one
// accepts any time. Otherwise the error wraps ErrMissingHeader, ErrBadTimestamp, ErrTooOld, ErrTooNew
// or ErrNoMatch.
//
// Malformed signatures and signatures of unknown versions are skipped, as the specification
// requires. At most 16 signatures are checked.
func Verify(message Message, now time.Time, tolerance time.Duration, keys ...Key) error {
	if message.ID == "" || message.Timestamp == "" || message.Signature == "" {
		return fmt.Errorf("verify webhook: %w", ErrMissingHeader)
	}
	unix, err := strconv.ParseInt(message.Timestamp, 10, 64)
	// The signature covers the text, so another spelling of the number is refused.
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
		if err != nil || strings.ContainsAny(encoded, "\r\n") { // base64 ignores line breaks
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

// checkAge compares whole seconds. The sums cannot overflow, because tolerance is much smaller than
// the distance of now from the bounds of int64.
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

// VerifyHex returns nil if header is the result of SignHex for the body and the secret, else
// ErrMissingHeader, ErrNoHMACSecret or ErrNoMatch, wrapped. The scheme has no timestamp, so it does
// not protect against replays.
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
