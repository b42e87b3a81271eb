package vault

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxKEKFileBytes bounds what is read of a key file; a key takes 45.
const maxKEKFileBytes = 1 << 10

// StaticKEK is a key-encryption key that this process holds.
type StaticKEK struct {
	id   string
	aead cipher.AEAD
}

// ParseKEK reads a key from base64 (standard alphabet, padded) of 32 bytes, with
// white space around it tolerated. A key whose bytes are all the same is refused:
// it was typed, not made. Errors do not repeat the text.
func ParseKEK(text string) (*StaticKEK, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("parse key-encryption key: not base64")
	}
	defer clear(key)
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("parse key-encryption key: %d bytes instead of %d", len(key), KeyBytes)
	}
	if bytes.Count(key, key[:1]) == KeyBytes {
		return nil, errors.New("parse key-encryption key: not random")
	}
	return newStaticKEK(key)
}

func newStaticKEK(key []byte) (*StaticKEK, error) {
	aead, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	// Derived from the key, so that nobody has to name keys and a name cannot be
	// given to two; one-way, so that it may be stored beside the rows.
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("everpost key-encryption key id"))
	return &StaticKEK{id: "kek_" + hex.EncodeToString(mac.Sum(nil)[:8]), aead: aead}, nil
}

// LoadKEKFile reads a key, in the form ParseKEK takes, from a file.
func LoadKEKFile(path string) (*StaticKEK, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("load key-encryption key: %w", err)
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := io.ReadAll(io.LimitReader(file, maxKEKFileBytes))
	if err != nil {
		return nil, fmt.Errorf("load key-encryption key: %w", err)
	}
	defer clear(text)
	kek, err := ParseKEK(string(text))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return kek, nil
}

// GenerateKEKFile makes a key and writes it to a new file that only its owner may
// read. The file appears complete or not at all; if there is one already, nothing
// is changed and the error is os.ErrExist.
func GenerateKEKFile(path string) (_ *StaticKEK, err error) {
	key := make([]byte, KeyBytes)
	defer clear(key)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a key-encryption key: %w", err)
	}
	kek, err := newStaticKEK(key)
	if err != nil {
		return nil, err
	}

	draft, err := os.CreateTemp(filepath.Dir(path), ".kek-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	// A link, unlike a rename, never replaces a key that others may be using.
	if err := os.Link(draft.Name(), path); err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	return kek, nil
}

// syncDir makes a new name in the directory survive a crash: a lost key is the
// loss of all secrets.
func syncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// ID is the same for the same key, and tells nothing about it.
func (k *StaticKEK) ID() string { return k.id }

// Wrap encrypts a data key: a random nonce, then AES-256-GCM with the ID as
// additional data. 2^32 keys may be wrapped this way (NIST SP 800-38D, section 8.3).
func (k *StaticKEK) Wrap(_ context.Context, dataKey []byte) (id string, wrapped []byte, err error) {
	nonce := make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(dataKey)+k.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return "", nil, fmt.Errorf("make a nonce: %w", err)
	}
	return k.id, k.aead.Seal(nonce, nonce, dataKey, []byte(k.id)), nil
}

// Unwrap decrypts what Wrap returned, or returns ErrTampered.
func (k *StaticKEK) Unwrap(_ context.Context, wrapped []byte) ([]byte, error) {
	size := k.aead.NonceSize()
	if len(wrapped) < size {
		return nil, ErrTampered
	}
	dataKey, err := k.aead.Open(nil, wrapped[:size], wrapped[size:], []byte(k.id))
	if err != nil {
		return nil, ErrTampered
	}
	return dataKey, nil
}
