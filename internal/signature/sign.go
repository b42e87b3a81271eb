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

// Versions of a signature, and the mark of the hex scheme.
const (
	versionHMAC    = "v1,"
	versionEd25519 = "v1a,"
	hexMark        = "sha256="
)

// ErrNoHMACSecret is the error of the hex scheme for a secret that is no HMAC key.
var ErrNoHMACSecret = errors.New("the hex scheme needs a whsec_ secret")

// Sign returns the webhook-signature header: one signature of id, ts (in whole
// seconds) and body for each secret, in their order, separated by spaces. While a
// secret is being rotated the new one comes first. Zero secrets are left out; without
// any other the result is empty.
//
// Signed is id.timestamp.body. An id must hold no dot, or what is signed could be
// divided in two ways; the ids of events do not.
func Sign(id string, ts time.Time, body []byte, secrets ...Secret) string {
	var headRoom [128]byte
	head := signedHead(headRoom[:0], id, ts.Unix())

	var message []byte // made once, and only when ed25519 needs it in one piece
	out := make([]byte, 0, len(secrets)*(len(versionEd25519)+base64.StdEncoding.EncodedLen(ed25519.SignatureSize)+1))
	for _, secret := range secrets {
		if secret.kind == Ed25519 && message == nil {
			message = join(head, body)
		}
		out = appendSignature(out, secret, head, body, message)
	}

	return string(out)
}

// appendSignature appends one signature to a header that may have some already.
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

// SignHex returns the X-Webhook-Signature header of the hex scheme: sha256= and the
// hex HMAC-SHA256 of the body alone, keyed with the bytes that the secret's base64
// stands for. It holds one signature only, so during a rotation it is the new one's.
// The error is ErrNoHMACSecret.
func SignHex(body []byte, secret Secret) (string, error) {
	if secret.kind != HMAC {
		return "", ErrNoHMACSecret
	}

	return hexMark + hex.EncodeToString(sum(secret.key(), body)), nil
}

// signedHead appends what is signed before the body: the id, the time, two dots.
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

// sum returns the HMAC-SHA256 (RFC 2104) of the parts, one after the other.
func sum(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part) // a hash never returns an error
	}

	return mac.Sum(nil)
}
