// Package signature signs webhooks as the Standard Webhooks specification says: v1
// (HMAC-SHA256) and v1a (ed25519). It also knows an older habit, the hex HMAC of the
// body alone.
//
// It is pure: time and randomness are arguments. A Secret never shows itself in a
// log, an error or a serialised value; only Reveal gives its text.
package signature

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Prefixes of keys in text form, from the Standard Webhooks specification.
const (
	hmacPrefix    = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
)

// Sizes of an HMAC key in bytes. The bounds are those of the specification; what is
// generated has the length of the hash, beyond which nothing is gained (RFC 2104
// section 3).
const (
	shortestHMACKey  = 24
	longestHMACKey   = 64
	generatedHMACKey = 32
)

var (
	// ErrMalformedKey is the error for text that is no key. What wraps it says what is
	// wrong, but never repeats the text.
	ErrMalformedKey = errors.New("malformed key")

	// ErrNotSerialisable is the error of every attempt to marshal a Secret.
	ErrNotSerialisable = errors.New("a secret is not serialisable: use Reveal")
)

// Kind tells the two kinds of secrets apart.
type Kind uint8

// The kinds of secrets. The zero value is that of the zero Secret.
const (
	HMAC    Kind = iota + 1 // whsec_, makes v1 signatures
	Ed25519                 // whsk_, makes v1a signatures
)

// String returns "hmac" or "ed25519", and "none" for the zero value.
func (k Kind) String() string {
	switch k {
	case HMAC:
		return "hmac"
	case Ed25519:
		return "ed25519"
	default:
		return "none"
	}
}

// Secret is a key to sign with. The zero Secret signs nothing and matches nothing.
// A Secret is immutable and may be copied and shared.
type Secret struct {
	kind Kind
	// The HMAC key, or the ed25519 private key (seed and public half). Behind two
	// pointers, because fmt calls no method of a Secret in an unexported field of another
	// value, nor for %p. It does follow one pointer, but prints only the address of a
	// pointer to a pointer.
	held **[]byte
}

func newSecret(kind Kind, key []byte) Secret {
	held := &key

	return Secret{kind: kind, held: &held}
}

// key returns the bytes to sign with, nil for the zero Secret.
func (s Secret) key() []byte {
	if s.held == nil {
		return nil
	}

	return **s.held
}

// ParseSecret reads whsec_ followed by the base64 of 24 to 64 bytes, or whsk_ followed
// by the base64 of the 64 bytes of an ed25519 private key. Base64 is standard, padded
// and canonical (RFC 4648 section 4), so Reveal returns what was parsed. The error
// wraps ErrMalformedKey.
func ParseSecret(text string) (Secret, error) {
	if encoded, found := strings.CutPrefix(text, hmacPrefix); found {
		key, err := decodeKey(encoded)
		if err != nil {
			return Secret{}, fmt.Errorf("parse whsec_ secret: %w", err)
		}
		if len(key) < shortestHMACKey || len(key) > longestHMACKey {
			return Secret{}, fmt.Errorf("parse whsec_ secret: %w: must hold 24 to 64 bytes", ErrMalformedKey)
		}

		return newSecret(HMAC, key), nil
	}

	encoded, found := strings.CutPrefix(text, privatePrefix)
	if !found {
		return Secret{}, fmt.Errorf("parse secret: %w: must begin with whsec_ or whsk_", ErrMalformedKey)
	}
	key, err := decodeKey(encoded)
	if err != nil {
		return Secret{}, fmt.Errorf("parse whsk_ secret: %w", err)
	}
	if len(key) != ed25519.PrivateKeySize {
		return Secret{}, fmt.Errorf("parse whsk_ secret: %w: must hold 64 bytes", ErrMalformedKey)
	}
	// Two signatures of one message under different public halves give the private key
	// away, so a half that does not belong is not accepted.
	if subtle.ConstantTimeCompare(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) != 1 {
		return Secret{}, fmt.Errorf("parse whsk_ secret: %w: its public half does not belong to it", ErrMalformedKey)
	}

	return newSecret(Ed25519, key), nil
}

// GenerateHMAC makes a whsec_ secret of 32 bytes from random, which must be
// cryptographically secure. The error is that of random.
func GenerateHMAC(random io.Reader) (Secret, error) {
	key := make([]byte, generatedHMACKey)
	if _, err := io.ReadFull(random, key); err != nil {
		return Secret{}, fmt.Errorf("generate whsec_ secret: %w", err)
	}

	return newSecret(HMAC, key), nil
}

// GenerateEd25519 makes a whsk_ secret from 32 bytes of random, which must be
// cryptographically secure. The error is that of random.
func GenerateEd25519(random io.Reader) (Secret, error) {
	// Not ed25519.GenerateKey: some versions of it read from elsewhere than they are told.
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return Secret{}, fmt.Errorf("generate whsk_ secret: %w", err)
	}

	return newSecret(Ed25519, ed25519.NewKeyFromSeed(seed)), nil
}

// Kind returns which kind of secret it is, 0 for the zero Secret.
func (s Secret) Kind() Kind {
	return s.kind
}

// IsZero says whether s is the zero Secret.
func (s Secret) IsZero() bool {
	return s.kind == 0
}

// Equal says in constant time whether both are the same secret.
func (s Secret) Equal(other Secret) bool {
	return s.kind == other.kind && subtle.ConstantTimeCompare(s.key(), other.key()) == 1
}

// Public returns the public key of an Ed25519 secret; false for other kinds.
func (s Secret) Public() (PublicKey, bool) {
	if s.kind != Ed25519 {
		return PublicKey{}, false
	}

	return PublicKey{key: ed25519.PublicKey(s.key()[ed25519.SeedSize:])}, true
}

// Reveal returns the secret's text, which ParseSecret reads; empty for the zero
// Secret. It is for the vault and for the one answer that shows it to its owner.
func (s Secret) Reveal() string {
	return s.prefix() + base64.StdEncoding.EncodeToString(s.key())
}

// String returns the prefix and "[redacted]".
func (s Secret) String() string {
	return s.prefix() + "[redacted]"
}

// Format writes String for every verb, %x and %#v included.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String()) // fmt has no way to hand the error on
}

// LogValue keeps the secret out of structured logs.
func (s Secret) LogValue() slog.Value {
	return slog.StringValue(s.String())
}

// MarshalText always returns ErrNotSerialisable: a secret that is part of a larger
// value must neither leak with it nor be stored in its redacted form.
func (s Secret) MarshalText() ([]byte, error) {
	return nil, ErrNotSerialisable
}

func (s Secret) prefix() string {
	switch s.kind {
	case HMAC:
		return hmacPrefix
	case Ed25519:
		return privatePrefix
	default:
		return ""
	}
}

// PublicKey verifies what an Ed25519 secret signed. The zero PublicKey matches nothing.
type PublicKey struct {
	key ed25519.PublicKey
}

// ParsePublicKey reads whpk_ followed by the base64 of 32 bytes. The error wraps
// ErrMalformedKey.
func ParsePublicKey(text string) (PublicKey, error) {
	encoded, found := strings.CutPrefix(text, publicPrefix)
	if !found {
		return PublicKey{}, fmt.Errorf("parse public key: %w: must begin with whpk_", ErrMalformedKey)
	}
	key, err := decodeKey(encoded)
	if err != nil {
		return PublicKey{}, fmt.Errorf("parse whpk_ key: %w", err)
	}
	if len(key) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("parse whpk_ key: %w: must hold 32 bytes", ErrMalformedKey)
	}

	return PublicKey{key: key}, nil
}

// String returns the text that ParsePublicKey reads.
func (k PublicKey) String() string {
	return publicPrefix + base64.StdEncoding.EncodeToString(k.key)
}

// decodeKey is strict where encoding/base64 is not: no line breaks. Its own error
// holds an offset only, and is dropped all the same.
func decodeKey(encoded string) ([]byte, error) {
	if strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: has a line break", ErrMalformedKey)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: is not padded standard base64", ErrMalformedKey)
	}

	return key, nil
}
