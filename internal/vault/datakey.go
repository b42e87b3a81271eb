package vault

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
)

// DataKey encrypts many values. Its wrapped form is stored with each, so that any vault with the key-encryption key can
// open them. It is safe for concurrent use.
type DataKey struct {
	KEKID   string // the key that wrapped Wrapped, with its version if it has several
	Wrapped []byte

	aead cipher.AEAD
}

// NewDataKey makes a key and wraps it with the current key-encryption key. At most 2^32 values may be sealed with it,
// because nonces are random (NIST SP 800-38D, section 8.3).
func (v *Vault) NewDataKey(ctx context.Context) (*DataKey, error) {
	plain := make([]byte, KeyBytes)
	defer clear(plain)
	if _, err := rand.Read(plain); err != nil {
		return nil, fmt.Errorf("make a data key: %w", err)
	}
	sealed, err := v.wrap(ctx, plain)
	if err != nil {
		return nil, err
	}
	return dataKey(sealed, plain)
}

// OpenDataKey unwraps a key by its id and wrapped form. It returns the errors of Open.
func (v *Vault) OpenDataKey(ctx context.Context, kekID string, wrapped []byte) (*DataKey, error) {
	sealed := Sealed{KEKID: kekID, WrappedKey: wrapped}
	plain, err := v.unwrap(ctx, sealed)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	return dataKey(sealed, plain)
}

func dataKey(sealed Sealed, plain []byte) (*DataKey, error) {
	aead, err := newGCM(plain)
	if err != nil {
		return nil, err
	}
	return &DataKey{KEKID: sealed.KEKID, Wrapped: sealed.WrappedKey, aead: aead}, nil
}

// Seal encrypts a value. The result begins with the nonce. Open needs the same additional text.
func (k *DataKey) Seal(plaintext []byte, additional string) ([]byte, error) {
	size := k.aead.NonceSize()
	nonce := make([]byte, size, size+len(plaintext)+k.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return k.aead.Seal(nonce, nonce, plaintext, []byte(additional)), nil
}

// Open decrypts the result of Seal, or returns ErrTampered.
func (k *DataKey) Open(sealed []byte, additional string) ([]byte, error) {
	size := k.aead.NonceSize()
	if len(sealed) < size {
		return nil, ErrTampered
	}
	plaintext, err := k.aead.Open(nil, sealed[:size], sealed[size:], []byte(additional))
	if err != nil {
		return nil, ErrTampered
	}
	return plaintext, nil
}
