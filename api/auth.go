package api

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/webhook"
)

// authenticator knows who sends a request.
type authenticator struct {
	keys            KeyChecks
	operatorKey     string // configured; "" for none
	operatorKeyHash func() [sha256.Size]byte
	metrics         Metrics

	sessions SessionReader // of portal tokens; nil while the console is switched off
	lookUps  *SessionLookUps
}

func newAuthenticator(c *Config) *authenticator {
	a := &authenticator{
		keys: c.Keys, operatorKey: c.OperatorKey, operatorKeyHash: presetHash(c.OperatorKey), metrics: c.Metrics,
		lookUps: NewSessionLookUps(&webhook.Error{
			Code: webhook.CodeUnavailable, Message: "too many portal tokens are being looked up", RetryAfter: time.Second,
		}),
	}
	if c.ConsoleLinks != nil {
		a.sessions = c.ConsoleLinks
	}
	return a
}

// authenticate returns the caller with the valid key or portal token of the request (RFC 6750 §2.1). Text that cannot be one
// is refused before any lookup. Nothing else of a request is a credential, cookies neither.
func (a *authenticator) authenticate(c *call) (Caller, error) {
	given := c.Request().Header["Authorization"]
	if len(given) == 0 {
		a.metrics.AuthFailed(AuthMissing)
		return Caller{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: `an API key is missing: send it as "Authorization: Bearer evk_…"`}
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	if len(given) != 1 || !strings.EqualFold(scheme, "Bearer") || credential.Trim(text) == "" {
		a.metrics.AuthFailed(AuthMalformed)
		c.Response().Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
		return Caller{}, &webhook.Error{
			Code: webhook.CodeUnauthenticated, Message: `the header Authorization has no API key: send it once, as "Authorization: Bearer evk_…"`,
		}
	}
	var from Caller
	var err error
	if text = credential.Trim(text); a.isPortalToken(text) {
		from, err = a.authenticateToken(c.Request().Context(), c.proxies.SourceAddress(c.Request()), text)
	} else {
		from.Key, err = a.Authenticate(c.Request().Context(), text)
	}
	if err != nil && webhook.CodeOf(err) == webhook.CodeUnauthenticated {
		c.Response().Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
	}
	return from, err
}

// Authenticate returns the valid key with this text, as for a request with it: a refusal is counted. What is invisible around the text does
// not matter. CodeUnauthenticated: it is not valid; the error says why if no key can have that text.
func (a *authenticator) Authenticate(ctx context.Context, text string) (webhook.Key, error) {
	text = credential.Trim(text)
	if a.isPreset(text) {
		return presetKey(), nil
	}
	cause := AuthMalformed
	id, sum, err := ParseKey(text)
	if err == nil {
		var key webhook.Key
		if key, err = a.keys.Authenticate(ctx, id, sum); err == nil {
			return key, nil
		}
		if webhook.CodeOf(err) != webhook.CodeUnauthenticated {
			return webhook.Key{}, err
		}
		cause = refusalCause(err)
	}
	a.metrics.AuthFailed(cause)
	if cause == AuthMalformed {
		if _, fault := credential.Clean(text, !strings.HasPrefix(text, keyPrefix)); fault != nil {
			err = fault
		}
		return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the given key " + err.Error()}
	}
	return webhook.Key{}, errInvalidKey()
}

// Confirm returns the key with this id and hash if it is still valid, as Authenticate does for its text.
// Revocation and expiry are seen within 2 s. Unless used is set, it does not count as a use of the key.
func (a *authenticator) Confirm(ctx context.Context, id webhook.KeyID, sum [sha256.Size]byte, used bool) (webhook.Key, error) {
	if id == presetKeyID() {
		preset := a.operatorKeyHash()
		if a.operatorKey == "" || subtle.ConstantTimeCompare(preset[:], sum[:]) != 1 {
			return webhook.Key{}, errInvalidKey()
		}
		return presetKey(), nil
	}
	if !used {
		return a.keys.Check(ctx, id, sum)
	}
	return a.keys.Authenticate(ctx, id, sum)
}

// KeyHash is the hash by which Confirm knows an authenticated key again.
func (a *authenticator) KeyHash(key webhook.Key) [sha256.Size]byte {
	if key.ID == presetKeyID() {
		return a.operatorKeyHash()
	}
	return key.SHA256
}

// refusalCause is why a key was refused, for the metric.
func refusalCause(err error) string {
	if refusal, ok := errors.AsType[webhook.KeyError](err); ok {
		return string(refusal)
	}
	return string(webhook.ErrKeyUnknown)
}

func errInvalidKey() error {
	return &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the API key is not valid, has expired or was revoked"}
}

// isPreset compares with the configured operator key in constant time. That key is not stored:
// it is valid as long as it is configured.
func (a *authenticator) isPreset(text string) bool {
	if a.operatorKey == "" {
		return false
	}
	given, preset := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(a.operatorKey))
	return subtle.ConstantTimeCompare(given[:], preset[:]) == 1
}

// presetKey is the configured operator key, without its hash.
func presetKey() webhook.Key {
	return webhook.Key{ID: presetKeyID(), Scope: webhook.ScopeOperator, Name: "EVERPOST_OPERATOR_KEY"}
}

// presetKeyID identifies the configured operator key in the audit log. It is not derived from
// the key, because a weak key could be guessed from a hash.
func presetKeyID() webhook.KeyID { return webhook.KeyID([]byte("preset operator ")) }

// presetRounds makes a guess at a preset key cost about 0.2 s (OWASP's figure for PBKDF2 with SHA-256):
// people choose that key, and its hash is stored with the sessions and links that it opens.
const presetRounds = 600_000

// presetHash returns a function that hashes the configured operator key at its first call.
func presetHash(key string) func() [sha256.Size]byte {
	return sync.OnceValue(func() (sum [sha256.Size]byte) {
		derived, err := pbkdf2.Key(sha256.New, key, []byte("everpost console"), presetRounds, len(sum))
		if err == nil { // an error: FIPS mode refuses the parameters; then no session of this key is confirmed
			copy(sum[:], derived)
		}
		return sum
	})
}
