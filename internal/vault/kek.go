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
	"os"
	"path/filepath"
	"strings"

	"github.com/everpost/everpost/internal/credential"
)

// maxKEKFileBytes limits the size of a key file; a key takes 45 bytes.
const maxKEKFileBytes = 1 << 10

// StaticKEK is a key-encryption key that this process holds.
type StaticKEK struct {
	id   string
	aead cipher.AEAD
}

// ErrWeakKEK means that a key does not look random, and can be guessed.
var ErrWeakKEK = errors.New("it is not random")

// ParseKEK parses a key: base64 (standard alphabet, padded) of 32 bytes, with optional white space
// and other invisible characters around it. A key that can be guessed is ErrWeakKEK. Errors do not repeat the text.
func ParseKEK(text string) (*StaticKEK, error) {
	return parseKEK(text, weakness)
}

// ParseOldKEK is ParseKEK for a key that only decrypts. It accepts a weak key, so that it can be
// replaced.
func ParseOldKEK(text string) (*StaticKEK, error) {
	return parseKEK(text, func(string, []byte) string { return "" })
}

func parseKEK(text string, weakness func(text string, key []byte) string) (*StaticKEK, error) {
	text, err := credential.Clean(text, false)
	if err != nil {
		return nil, fmt.Errorf("parse key-encryption key: %w", err)
	}
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

// Each of these rules refuses a random key with a probability of less than 10⁻⁹: 32 random bytes almost
// always have at least 19 different values, and their 43 base64 characters at least 18.
const (
	minDifferentBytes   = 19
	minDifferentLetters = 18
	maxRepeatedBytes    = 5
	maxRepeatedLetters  = 8
)

// weakness returns why a key, or its base64 text, does not look random, or "".
func weakness(text string, key []byte) string {
	letters := []byte(strings.TrimRight(text, "="))
	switch {
	case different(key) < minDifferentBytes || different(letters) < minDifferentLetters:
		return "few of its bytes are distinct"
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

// repeats reports whether text is periodic, with more than most bytes that repeat earlier ones.
func repeats(text []byte, most int) bool {
	for period := 1; period < len(text)-most; period++ {
		if bytes.Equal(text[period:], text[:len(text)-period]) {
			return true
		}
	}
	return false
}

// isSeries reports whether all differences between adjacent bytes are equal.
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
	// The id is derived from the key, so that it is unique without configuration, and it is
	// one-way, so that the database may store it.
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("everpost key-encryption key id"))
	return &StaticKEK{id: "kek_" + hex.EncodeToString(mac.Sum(nil)[:8]), aead: aead}, nil
}

// LoadKEKFile reads a key from a file, with ParseKEK.
func LoadKEKFile(path string) (*StaticKEK, error) { return loadKEKFile(path, ParseKEK) }

// LoadOldKEKFile reads a key from a file, with ParseOldKEK.
func LoadOldKEKFile(path string) (*StaticKEK, error) { return loadKEKFile(path, ParseOldKEK) }

func loadKEKFile(path string, parse func(string) (*StaticKEK, error)) (*StaticKEK, error) {
	text, err := readFile(path, maxKEKFileBytes)
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

// GenerateKEKFile generates a key and writes it to a new file that only its owner can read. The file is
// created atomically. If it exists already, it is unchanged and the error is os.ErrExist.
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
	// Unlike a rename, a link never replaces an existing key.
	if err := os.Link(draft.Name(), path); err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("write key-encryption key: %w", err)
	}
	return kek, nil
}

// syncDir makes a new file name durable. The loss of the key is the loss of all secrets.
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

// ID returns a one-way function of the key.
func (k *StaticKEK) ID() string { return k.id }

// Wrap encrypts a data key with AES-256-GCM, with the ID as additional data. The result begins with the
// random nonce. At most 2^32 data keys may be wrapped this way (NIST SP 800-38D, section 8.3).
func (k *StaticKEK) Wrap(_ context.Context, dataKey []byte) (id string, wrapped []byte, err error) {
	nonce := make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(dataKey)+k.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return "", nil, fmt.Errorf("make a nonce: %w", err)
	}
	return k.id, k.aead.Seal(nonce, nonce, dataKey, []byte(k.id)), nil
}

// Unwrap decrypts the result of Wrap, or returns ErrTampered.
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
