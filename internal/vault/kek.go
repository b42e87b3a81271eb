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

// ErrWeakKEK says that a key was typed, not made: whoever has the database guesses it.
var ErrWeakKEK = errors.New("it is not random")

// ParseKEK reads a key from base64 (standard alphabet, padded) of 32 bytes, with
// white space around it tolerated. A key that can be guessed is ErrWeakKEK. Errors do
// not repeat the text.
func ParseKEK(text string) (*StaticKEK, error) {
	return parseKEK(text, weakness)
}

// ParseOldKEK is ParseKEK for a key that is only read with: it may be a weak one, which
// is to be replaced.
func ParseOldKEK(text string) (*StaticKEK, error) {
	return parseKEK(text, func(string, []byte) string { return "" })
}

func parseKEK(text string, weakness func(text string, key []byte) string) (*StaticKEK, error) {
	text = strings.TrimSpace(text)
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("parse key-encryption key: not base64")
	}
	defer clear(key)
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("parse key-encryption key: %d bytes instead of %d", len(key), KeyBytes)
	}
	if why := weakness(text, key); why != "" {
		return nil, fmt.Errorf("parse key-encryption key: %w: %s", ErrWeakKEK, why)
	}
	return newStaticKEK(key)
}

// Each of these rules refuses a key that was made by chance less often than once in 10^9: of 32 random
// bytes hardly ever fewer than 19 are different, and of their 43 characters in base64 hardly ever
// fewer than 18.
const (
	minDifferentBytes   = 19
	minDifferentLetters = 18
	maxRepeatedBytes    = 5
	maxRepeatedLetters  = 8
)

// weakness says why a key, or the base64 that it is written as, was not made by chance; "" when it may
// have been.
func weakness(text string, key []byte) string {
	letters := []byte(strings.TrimRight(text, "="))
	switch {
	case different(key) < minDifferentBytes || different(letters) < minDifferentLetters:
		return "few of its bytes are different"
	case repeats(key, maxRepeatedBytes) || repeats(letters, maxRepeatedLetters):
		return "it repeats itself"
	case isSeries(key):
		return "its bytes are a series"
	case !bytes.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }):
		return "it is 32 bytes of text"
	case bytes.Equal(letters, bytes.ToLower(letters)) || bytes.Equal(letters, bytes.ToUpper(letters)):
		return "it is written in words"
	}
	return ""
}

func different(text []byte) int {
	var seen [256]bool
	n := 0
	for _, b := range text {
		if !seen[b] {
			seen[b] = true
			n++
		}
	}
	return n
}

// repeats reports whether more than most bytes at the end are those from further before.
func repeats(text []byte, most int) bool {
	for period := 1; period < len(text)-most; period++ {
		if bytes.Equal(text[period:], text[:len(text)-period]) {
			return true
		}
	}
	return false
}

// isSeries reports whether the bytes go up or down in equal steps.
func isSeries(key []byte) bool {
	for i := 2; i < len(key); i++ {
		if key[i]-key[i-1] != key[1]-key[0] {
			return false
		}
	}
	return true
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
func LoadKEKFile(path string) (*StaticKEK, error) { return loadKEKFile(path, ParseKEK) }

// LoadOldKEKFile is LoadKEKFile for a key that is only read with: see ParseOldKEK.
func LoadOldKEKFile(path string) (*StaticKEK, error) { return loadKEKFile(path, ParseOldKEK) }

func loadKEKFile(path string, parse func(string) (*StaticKEK, error)) (*StaticKEK, error) {
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
	kek, err := parse(string(text))
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
