// Package vault encrypts secrets at rest: each with a data key of its own, which is
// wrapped by a key-encryption key that the database never sees.
package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// KeyBytes is the length of every key: AES-256.
const KeyBytes = 32

// Errors that Open and Rewrap return, wrapped.
var (
	// ErrUnknownKEK: the key-encryption key is not among those the vault was given.
	ErrUnknownKEK = errors.New("unknown key-encryption key")
	// ErrTampered: the row was altered, belongs elsewhere, or the key is another one.
	ErrTampered = errors.New("not authentic")
)

// KEK is a key-encryption key: 32 bytes in this process (StaticKEK), or a key in a
// key management service. Implementations are safe for concurrent use.
type KEK interface {
	// ID names the key in the database, so that an older one can be told apart.
	ID() string
	// Wrap encrypts a data key of KeyBytes.
	Wrap(dataKey []byte) ([]byte, error)
	// Unwrap is the inverse of Wrap; what was altered is ErrTampered.
	Unwrap(wrapped []byte) ([]byte, error)
}

// Sealed is an encrypted secret as it lies in a row.
type Sealed struct {
	KEKID      string // the key that wrapped WrappedKey
	WrappedKey []byte // the data key, encrypted
	Nonce      []byte // 12 bytes
	Ciphertext []byte // as long as the plaintext, and a tag of 16 bytes
}

// Vault seals and opens secrets. It is safe for concurrent use.
type Vault struct {
	current KEK
	byID    map[string]KEK
}

// New returns a vault that seals with the first key and opens with any. Two keys
// with the same ID are the same key.
func New(current KEK, older ...KEK) *Vault {
	v := &Vault{current: current, byID: make(map[string]KEK, 1+len(older))}
	for _, kek := range older {
		v.byID[kek.ID()] = kek
	}
	v.byID[current.ID()] = current
	return v
}

// Seal encrypts the plaintext. additional says where the row belongs, as
// "tenant|endpoint|version": a sealed row opens only with the same words, so rows
// cannot be swapped. It is not stored.
func (v *Vault) Seal(plaintext, additional string) (Sealed, error) {
	dataKey := make([]byte, KeyBytes)
	defer clear(dataKey)
	if _, err := rand.Read(dataKey); err != nil {
		return Sealed{}, fmt.Errorf("make a data key: %w", err)
	}
	wrapped, err := v.current.Wrap(dataKey)
	if err != nil {
		return Sealed{}, fmt.Errorf("wrap a data key with %s: %w", v.current.ID(), err)
	}
	aead, err := newGCM(dataKey)
	if err != nil {
		return Sealed{}, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return Sealed{}, fmt.Errorf("make a nonce: %w", err)
	}
	return Sealed{
		KEKID:      v.current.ID(),
		WrappedKey: wrapped,
		Nonce:      nonce,
		Ciphertext: aead.Seal(nil, nonce, []byte(plaintext), []byte(additional)),
	}, nil
}

// Open decrypts what Seal returned for the same additional words. It returns
// ErrUnknownKEK or ErrTampered, or the error of the key itself.
func (v *Vault) Open(sealed Sealed, additional string) (string, error) {
	dataKey, err := v.unwrap(sealed)
	if err != nil {
		return "", err
	}
	defer clear(dataKey)
	aead, err := newGCM(dataKey)
	if err != nil {
		return "", err
	}
	if len(sealed.Nonce) != aead.NonceSize() { // GCM panics on another length
		return "", fmt.Errorf("open a secret: nonce of %d bytes: %w", len(sealed.Nonce), ErrTampered)
	}
	plaintext, err := aead.Open(nil, sealed.Nonce, sealed.Ciphertext, []byte(additional))
	if err != nil {
		return "", fmt.Errorf("open a secret: %w", ErrTampered)
	}
	return string(plaintext), nil
}

// Rewrap returns the secret with its data key wrapped by the current key. The
// secret itself is not decrypted. One that has the current key already is returned
// as it is.
func (v *Vault) Rewrap(sealed Sealed) (Sealed, error) {
	if sealed.KEKID == v.current.ID() {
		return sealed, nil
	}
	dataKey, err := v.unwrap(sealed)
	if err != nil {
		return Sealed{}, err
	}
	defer clear(dataKey)
	wrapped, err := v.current.Wrap(dataKey)
	if err != nil {
		return Sealed{}, fmt.Errorf("wrap a data key with %s: %w", v.current.ID(), err)
	}
	sealed.KEKID, sealed.WrappedKey = v.current.ID(), wrapped
	return sealed, nil
}

func (v *Vault) unwrap(sealed Sealed) ([]byte, error) {
	kek, ok := v.byID[sealed.KEKID]
	if !ok {
		return nil, fmt.Errorf("unwrap a data key with %q: %w", sealed.KEKID, ErrUnknownKEK)
	}
	dataKey, err := kek.Unwrap(sealed.WrappedKey)
	if err != nil {
		return nil, fmt.Errorf("unwrap a data key with %s: %w", sealed.KEKID, err)
	}
	return dataKey, nil
}

func newGCM(key []byte) (cipher.AEAD, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("key of %d bytes instead of %d", len(key), KeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return aead, nil
}
