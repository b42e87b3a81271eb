package webhook

import (
	"strings"
	"time"
)

// Signature schemes of an endpoint.
const (
	SignatureV1  = "v1"  // Standard Webhooks, HMAC-SHA256
	SignatureV1a = "v1a" // Standard Webhooks, ed25519: receivers verify with a public key
	SignatureHex = "hex" // the older habit: the hex HMAC of the body alone
)

// Of the rotation of a secret.
const (
	DefaultGrace = 24 * time.Hour
	MaxGrace     = 7 * 24 * time.Hour
	// MaxSecrets is how many of an endpoint may be in use at a time: the new one and
	// those whose grace has not passed. Each makes the header longer.
	MaxSecrets = 5
)

// NewSecret is a signing secret, and what of it anyone may know.
type NewSecret struct {
	Secret    string // whsec_… or whsk_…
	PublicKey string // whpk_… of a whsk_…; "" of a whsec_…
}

// SecretPrefix is how a secret for a signature scheme begins.
func SecretPrefix(scheme string) string {
	if scheme == SignatureV1a {
		return "whsk_"
	}
	return "whsec_"
}

// SecretFits reports whether a secret is of the kind that a scheme signs with.
func SecretFits(scheme, secret string) bool { return strings.HasPrefix(secret, SecretPrefix(scheme)) }

// UnfitSecret is the error for a secret of another kind.
func UnfitSecret(scheme string) *Error {
	return Invalid("secret", "must begin with "+SecretPrefix(scheme)+`, because the endpoint's signature is "`+scheme+`"`)
}

// Rotation is how an endpoint gets a new secret.
type Rotation struct {
	// Grace is how long the present secrets are still used beside it; 0 ends them now.
	Grace time.Duration
	// NewSecret is the secret that the caller brings along; empty for one that is made.
	NewSecret
}

// Rotated is what became of it.
type Rotated struct {
	NewSecret

	// OldUntil is when the last of the older secrets expires; zero when there is none.
	OldUntil time.Time
}
