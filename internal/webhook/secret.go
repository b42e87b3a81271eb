package webhook

import (
	"strings"
	"time"
)

// Signature schemes of an endpoint.
const (
	SignatureV1  = "v1"  // Standard Webhooks, HMAC-SHA256
	SignatureV1a = "v1a" // Standard Webhooks, ed25519: receivers verify with a public key
	SignatureHex = "hex" // the hex HMAC of the body alone, as older receivers expect it
)

// Limits of a secret rotation.
const (
	DefaultGrace = 24 * time.Hour
	MaxGrace     = 7 * 24 * time.Hour
	// MaxSecrets is the number of an endpoint's secrets that are in use at a time: the new
	// one and those within their grace period. Each makes the header longer.
	MaxSecrets = 5
)

// NewSecret is a signing secret with its public part.
type NewSecret struct {
	Secret    string // whsec_… or whsk_…
	PublicKey string // whpk_… of a whsk_… secret; "" of a whsec_… secret
}

// SecretPrefix returns the prefix of secrets for a signature scheme.
func SecretPrefix(scheme string) string {
	if scheme == SignatureV1a {
		return "whsk_"
	}
	return "whsec_"
}

// SecretFits reports whether a signature scheme can sign with a secret.
func SecretFits(scheme, secret string) bool { return strings.HasPrefix(secret, SecretPrefix(scheme)) }

// UnfitSecret returns the error for a secret that does not fit the scheme.
func UnfitSecret(scheme string) *Error {
	return Invalid("secret", "must begin with "+SecretPrefix(scheme)+`, because the endpoint's signature is "`+scheme+`"`)
}

// Rotation is a request for a new secret of an endpoint.
type Rotation struct {
	// Grace is how long the current secrets stay valid; 0 ends them now.
	Grace time.Duration
	// NewSecret is the caller's own secret; zero to generate one.
	NewSecret
}

// Rotated is the result of a rotation.
type Rotated struct {
	NewSecret

	// OldUntil is when the last of the older secrets expires; zero if there is none.
	OldUntil time.Time
}
