package webhook

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

const (
	// RequestUnderWay is how long after its change a request may have no answer yet. Then it is taken for one whose process has ended.
	RequestUnderWay = 15 * time.Second

	// SecretAnswersKept is how long an answer that holds a secret is kept for repeated requests.
	SecretAnswersKept = 15 * time.Minute
)

// RequestKey is the Idempotency-Key of a request that changes something other than by posting events.
type RequestKey struct {
	ID       [sha256.Size]byte // of the key within its scope
	TenantID string            // "": the installation
	Body     [sha256.Size]byte // SHA-256 of the body
	Attempt  [16]byte          // of this request: a repetition has another one
}

// NewRequestKey returns the key of a request by a caller: an API key, or a link to the console. Two requests have the same ID if tenant,
// caller, method, path and key are the same.
func NewRequestKey(tenantID string, caller [16]byte, method, path, key string, body []byte) *RequestKey {
	k := &RequestKey{TenantID: tenantID, Body: sha256.Sum256(body)}
	scope := sha256.New()
	for _, part := range []string{tenantID, string(caller[:]), method, path, key} {
		_, _ = scope.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))) //nolint:gosec // bounded by the size of a request's head
		_, _ = scope.Write([]byte(part))
	}
	scope.Sum(k.ID[:0])
	_, _ = rand.Read(k.Attempt[:]) // crypto/rand never returns an error
	return k
}

// KeptRequest is an earlier request with a RequestKey.
type KeptRequest struct {
	Body    [sha256.Size]byte
	Subject string        // the id of what it has changed; "" if it has changed nothing
	Age     time.Duration // since its change
	Answer  KeptAnswer    // zero: not stored yet, or no more
}

// KeptAnswer is the answer to a request.
type KeptAnswer struct {
	Status int
	Text   []byte
	Secret bool // the text holds a secret
}
