// Package vault encrypts secrets at rest. Each secret has its own data key, which is wrapped by a
// key-encryption key that is never in the database.
package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// KeyBytes is the length of every key (AES-256).
const KeyBytes = 32

// Errors that Open and Rewrap return, wrapped.
var (
	// ErrUnknownKEK: the vault does not have the key-encryption key.
	ErrUnknownKEK = errors.New("unknown key-encryption key")
	// ErrTampered: the row was altered or moved, or the key is a different one.
	ErrTampered = errors.New("not authentic")
	// ErrUnavailable: the key management service is unreachable, sealed or slow, or its response
	// is invalid. A later request may succeed.
	ErrUnavailable = errors.New("the key management service is not available")
	// ErrRefused: the key management service does not permit the use of the key.
	ErrRefused = errors.New("the key management service refuses")
)

// KEK is a key-encryption key: 32 bytes in this process (StaticKEK), or a key in a key management
// service (Transit). Implementations are safe for concurrent use.
type KEK interface {
	// ID identifies the key in the database. It contains no versionMark.
	ID() string
	// Wrap encrypts a data key of KeyBytes. id is ID; for a key with several versions it is
	// followed by versionMark and the version used.
	Wrap(ctx context.Context, dataKey []byte) (id string, wrapped []byte, err error)
	// Unwrap is the inverse of Wrap. It returns ErrTampered for altered data.
	Unwrap(ctx context.Context, wrapped []byte) ([]byte, error)
}

// versionMark separates a key's ID from its version.
const versionMark = "#"

// Sealed is an encrypted secret as it is stored in a row.
type Sealed struct {
	KEKID      string // the key that wrapped WrappedKey, with its version if it has several
	WrappedKey []byte // the data key, encrypted
	Nonce      []byte // 12 bytes
	Ciphertext []byte // the encrypted secret and a tag of 16 bytes
}

// Vault seals and opens secrets. It is safe for concurrent use.
type Vault struct {
	current KEK
	byID    map[string]KEK
}

// New returns a vault that encrypts with the first key and decrypts with any. Keys with the same ID are
// the same key.
func New(current KEK, older ...KEK) *Vault {
	v := &Vault{current: current, byID: make(map[string]KEK, 1+len(older))}
	for _, kek := range older {
		v.byID[kek.ID()] = kek
	}
	v.byID[current.ID()] = current
	return v
}

// Seal encrypts the plaintext. additional identifies the row, as "tenant|endpoint|version": Open
// succeeds only with the same text, so rows cannot be swapped. It is not stored. Seal returns only
// errors of the key.
func (v *Vault) Seal(ctx context.Context, plaintext, additional string) (Sealed, error) {
	dataKey := make([]byte, KeyBytes)
	defer clear(dataKey)
	if _, err := rand.Read(dataKey); err != nil {
		return Sealed{}, fmt.Errorf("make a data key: %w", err)
	}
	sealed, err := v.wrap(ctx, dataKey)
	if err != nil {
		return Sealed{}, err
	}
	aead, err := newGCM(dataKey)
	if err != nil {
		return Sealed{}, err
	}
	sealed.Nonce = make([]byte, aead.NonceSize())
	if _, err := rand.Read(sealed.Nonce); err != nil {
		return Sealed{}, fmt.Errorf("make a nonce: %w", err)
	}
	sealed.Ciphertext = aead.Seal(nil, sealed.Nonce, []byte(plaintext), []byte(additional))
	return sealed, nil
}

// Open decrypts the result of Seal with the same additional text. It returns ErrUnknownKEK, ErrTampered
// or an error of the key.
func (v *Vault) Open(ctx context.Context, sealed Sealed, additional string) (string, error) {
	dataKey, err := v.unwrap(ctx, sealed)
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

// Current returns the KEKID that Seal would use now. It calls the key.
func (v *Vault) Current(ctx context.Context) (string, error) {
	throwaway := make([]byte, KeyBytes)
	if _, err := rand.Read(throwaway); err != nil {
		return "", fmt.Errorf("make a data key: %w", err)
	}
	sealed, err := v.wrap(ctx, throwaway)
	return sealed.KEKID, err
}

// Knows reports whether the vault has the key with a stored id.
func (v *Vault) Knows(kekID string) bool {
	_, ok := v.kekOf(kekID)
	return ok
}

// Rewrap returns the secret with its data key wrapped by the newest version of the current key. It does
// not decrypt the secret. It returns the errors of Open and Seal, except ErrTampered of the secret
// itself.
func (v *Vault) Rewrap(ctx context.Context, sealed Sealed) (Sealed, error) {
	dataKey, err := v.unwrap(ctx, sealed)
	if err != nil {
		return Sealed{}, err
	}
	defer clear(dataKey)
	rewrapped, err := v.wrap(ctx, dataKey)
	if err != nil {
		return Sealed{}, err
	}
	rewrapped.Nonce, rewrapped.Ciphertext = sealed.Nonce, sealed.Ciphertext
	return rewrapped, nil
}

// Close closes the keys' connections to a key management service.
func (v *Vault) Close() {
	for _, kek := range v.byID {
		if closer, ok := kek.(interface{ Close() }); ok {
			closer.Close()
		}
	}
}

// wrap returns a Sealed with a wrapped data key and without a secret.
func (v *Vault) wrap(ctx context.Context, dataKey []byte) (Sealed, error) {
	id, wrapped, err := v.current.Wrap(ctx, dataKey)
	if err != nil {
		return Sealed{}, fmt.Errorf("wrap a data key with %s: %w", v.current.ID(), err)
	}
	return Sealed{KEKID: id, WrappedKey: wrapped}, nil
}

func (v *Vault) unwrap(ctx context.Context, sealed Sealed) ([]byte, error) {
	kek, ok := v.kekOf(sealed.KEKID)
	if !ok {
		return nil, fmt.Errorf("unwrap a data key with %q: %w", sealed.KEKID, ErrUnknownKEK)
	}
	dataKey, err := kek.Unwrap(ctx, sealed.WrappedKey)
	if err != nil {
		return nil, fmt.Errorf("unwrap a data key with %s: %w", sealed.KEKID, err)
	}
	return dataKey, nil
}

func (v *Vault) kekOf(kekID string) (KEK, bool) {
	id, _, _ := strings.Cut(kekID, versionMark)
	kek, ok := v.byID[id]
	return kek, ok
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
