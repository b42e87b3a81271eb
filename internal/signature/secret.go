// Package signature signs webhooks according to the Standard Webhooks specification: v1
// (HMAC-SHA256) and v1a (ed25519). It also supports the hex HMAC of the body alone, which older
// receivers expect.
//
// The package is pure: time and randomness are arguments. A Secret never appears in a log, an
// error or a serialised value; only Reveal returns its text.
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

// Prefixes of keys in text form (Standard Webhooks specification).
const (
	hmacPrefix    = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
)

// Sizes of an HMAC key in bytes. The bounds are those of the specification. A generated key has the
// length of the hash; a longer one would not be stronger (RFC 2104 section 3).
const (
	shortestHMACKey  = 24
	longestHMACKey   = 64
	generatedHMACKey = 32
)

var (
	// ErrMalformedKey means that a text is not a key. Errors that wrap it describe what is wrong
	// without repeating the text.
	ErrMalformedKey = errors.New("malformed key")

	// ErrNotSerialisable is returned by every attempt to marshal a Secret.
	ErrNotSerialisable = errors.New("a secret is not serialisable: use Reveal")
)

// Kind is the kind of a secret.
type Kind uint8

// The kinds of secrets. The zero value is the kind of the zero Secret.
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

// Secret is a signing key. The zero Secret signs nothing and matches nothing. A Secret is
// immutable and may be copied and shared.
type Secret struct {
	kind Kind
	// The HMAC key, or the ed25519 private key (seed and public half). It is behind two
	// pointers, because fmt calls no method of a Secret in an unexported field of another
	// value, nor for %p. It would follow one pointer, but for a pointer to a pointer it
	// prints only the address.
	held **[]byte
}

func newSecret(kind Kind, key []byte) Secret {
	held := &key

	return Secret{kind: kind, held: &held}
}

// key returns the key bytes, nil for the zero Secret.
func (s Secret) key() []byte {
	if s.held == nil {
		return nil
	}

	return **s.held
}

// ParseSecret parses whsec_ followed by the base64 of 24 to 64 bytes, or whsk_ followed by the
// base64 of the 64 bytes of an ed25519 private key. Base64 is standard, padded and canonical (RFC
// 4648 section 4), so Reveal returns the parsed text. The error wraps ErrMalformedKey.
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
	// Signatures of one message under different public halves reveal the private key, so
	// the public half must match the seed.
	if subtle.ConstantTimeCompare(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) != 1 {
		return Secret{}, fmt.Errorf("parse whsk_ secret: %w: its public half does not belong to it", ErrMalformedKey)
	}

	return newSecret(Ed25519, key), nil
}

// GenerateHMAC generates a whsec_ secret of 32 bytes from random, which must be cryptographically
// secure. It returns only errors of random.
func GenerateHMAC(random io.Reader) (Secret, error) {
	key := make([]byte, generatedHMACKey)
	if _, err := io.ReadFull(random, key); err != nil {
		return Secret{}, fmt.Errorf("generate whsec_ secret: %w", err)
	}

	return newSecret(HMAC, key), nil
}

// GenerateEd25519 generates a whsk_ secret from 32 bytes of random, which must be
// cryptographically secure. It returns only errors of random.
func GenerateEd25519(random io.Reader) (Secret, error) {
	// ed25519.GenerateKey is not used, because some versions of it do not use the given reader.
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return Secret{}, fmt.Errorf("generate whsk_ secret: %w", err)
	}

	return newSecret(Ed25519, ed25519.NewKeyFromSeed(seed)), nil
}

// Kind returns the kind of the secret, 0 for the zero Secret.
func (s Secret) Kind() Kind {
	return s.kind
}

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool {
	return s.kind == 0
}

// Equal compares two secrets in constant time.
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

// Reveal returns the secret's text, which ParseSecret parses; "" for the zero Secret. Only the vault
// and the API responses that show a secret to its owner use it.
func (s Secret) Reveal() string {
	return s.prefix() + base64.StdEncoding.EncodeToString(s.key())
}

// String returns the prefix and "[redacted]".
func (s Secret) String() string {
	return s.prefix() + "[redacted]"
}

// Format writes String for every verb, %x and %#v included.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String()) // fmt ignores the error
}

// LogValue redacts the secret in structured logs.
func (s Secret) LogValue() slog.Value {
	return slog.StringValue(s.String())
}

// MarshalText always returns ErrNotSerialisable: a secret within a larger value must neither leak
// nor be stored in its redacted form.
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

// PublicKey verifies signatures of an Ed25519 secret. The zero PublicKey matches nothing.
type PublicKey struct {
	key ed25519.PublicKey
}

// ParsePublicKey parses whpk_ followed by the base64 of 32 bytes. The error wraps ErrMalformedKey.
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

// String returns the text that ParsePublicKey parses.
func (k PublicKey) String() string {
	return publicPrefix + base64.StdEncoding.EncodeToString(k.key)
}

// decodeKey refuses line breaks, which encoding/base64 ignores. It does not return the error of
// encoding/base64.
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
