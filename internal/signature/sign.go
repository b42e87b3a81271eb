package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// Header names of the Standard Webhooks specification.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Header names of the hex scheme.
const (
	HeaderHexSignature   = "X-Webhook-Signature"
	HeaderHexIdempotency = "X-Idempotency-Key"
)

// Versions of a signature, and the prefix of the hex scheme.
const (
	versionHMAC    = "v1,"
	versionEd25519 = "v1a,"
	hexMark        = "sha256="
)

// ErrNoHMACSecret means that the hex scheme was used with a secret that is not an HMAC key.
var ErrNoHMACSecret = errors.New("the hex scheme needs a whsec_ secret")

// Sign returns the webhook-signature header: one signature of id, ts (in whole seconds) and body for
// each secret, in the given order, separated by spaces. During a rotation the new secret comes first.
// Zero secrets are skipped; without any other secret the result is "".
//
// The signed text is id.timestamp.body. An id must not contain a dot, because the text would then be
// ambiguous; the ids of events contain none.
func Sign(id string, ts time.Time, body []byte, secrets ...Secret) string {
	var headRoom [128]byte
	head := signedHead(headRoom[:0], id, ts.Unix())

	var message []byte // created at most once, for ed25519, which needs the message in one piece
	out := make([]byte, 0, len(secrets)*(len(versionEd25519)+base64.StdEncoding.EncodedLen(ed25519.SignatureSize)+1))
	for _, secret := range secrets {
		if secret.kind == Ed25519 && message == nil {
			message = join(head, body)
		}
		out = appendSignature(out, secret, head, body, message)
	}

	return string(out)
}

// appendSignature appends one signature to the header.
func appendSignature(out []byte, secret Secret, head, body, message []byte) []byte {
	if secret.IsZero() {
		return out
	}
	if len(out) > 0 {
		out = append(out, ' ')
	}
	if secret.kind == Ed25519 {
		out = append(out, versionEd25519...)
		return base64.StdEncoding.AppendEncode(out, ed25519.Sign(secret.key(), message))
	}
	out = append(out, versionHMAC...)

	return base64.StdEncoding.AppendEncode(out, sum(secret.key(), head, body))
}

// SignHex returns the X-Webhook-Signature header of the hex scheme: sha256= and the hex HMAC-SHA256
// of the body alone. The key is the decoded base64 of the secret. The header has one signature only;
// during a rotation it is made with the new secret. The error is ErrNoHMACSecret.
func SignHex(body []byte, secret Secret) (string, error) {
	if secret.kind != HMAC {
		return "", ErrNoHMACSecret
	}

	return hexMark + hex.EncodeToString(sum(secret.key(), body)), nil
}

// signedHead appends the signed text before the body: the id, a dot, the time and a dot.
func signedHead(head []byte, id string, unix int64) []byte {
	head = append(head, id...)
	head = append(head, '.')
	head = strconv.AppendInt(head, unix, 10)

	return append(head, '.')
}

func join(head, body []byte) []byte {
	message := make([]byte, 0, len(head)+len(body))

	return append(append(message, head...), body...)
}

// sum returns the HMAC-SHA256 (RFC 2104) of the concatenated parts.
func sum(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part) // never returns an error
	}

	return mac.Sum(nil)
}
