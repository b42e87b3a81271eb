package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// An API key is "evk_", the 26 characters of its id, 52 characters for 32 random bytes and 7 for a
// CRC-32 (IEEE) of everything before it, all in the alphabet of ids. Its 89 characters have no
// punctuation, so a double click selects it. A leak scanner finds it with
// ^evk_[0-9a-hjkmnp-tv-z]{85}$ and recognises a real key by the checksum.
const (
	keyPrefix   = "evk_"
	keyIDPrefix = "key_"
	keyIDLength = 26
	keySecret   = 32 // bytes
	keyChecksum = 7  // characters
	keyLength   = len(keyPrefix) + keyIDLength + 52 + keyChecksum
)

func keyEncoding() *base32.Encoding {
	return base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
}

// NewKey returns the text of a new key with the id, and the hash to store.
func NewKey(id webhook.KeyID) (text string, sum [sha256.Size]byte) {
	return newCredential(keyPrefix, strings.TrimPrefix(id.String(), keyIDPrefix))
}

// newCredential returns a new text with a prefix of four characters and the 26 characters of an id, and its hash.
func newCredential(prefix, id string) (text string, sum [sha256.Size]byte) {
	var secret [keySecret]byte
	_, _ = rand.Read(secret[:]) // crypto/rand never returns an error
	body := prefix + id + keyEncoding().EncodeToString(secret[:])
	text = body + checksum(body)
	return text, sha256.Sum256([]byte(text))
}

// parseCredential returns the characters of the id in a text of newCredential, and whether the text is whole. The id is not checked.
func parseCredential(prefix, text string) (id string, whole bool) {
	if len(text) != keyLength || !strings.HasPrefix(text, prefix) {
		return "", false
	}
	body, sum := text[:keyLength-keyChecksum], text[keyLength-keyChecksum:]
	return body[len(prefix) : len(prefix)+keyIDLength], sum == checksum(body)
}

// ParseKey parses a key and returns its id and hash. It refuses text that NewKey cannot have made.
// The error is a phrase for people that does not repeat the text.
func ParseKey(text string) (webhook.KeyID, [sha256.Size]byte, error) {
	var none [sha256.Size]byte
	if len(text) != keyLength || !strings.HasPrefix(text, keyPrefix) {
		return webhook.KeyID{}, none, errors.New(`is not an API key: one is evk_ and 85 characters, as "everpost keys create" prints it`)
	}
	idText, whole := parseCredential(keyPrefix, text)
	id, err := webhook.ParseKeyID(keyIDPrefix + idText)
	if err != nil || !whole {
		return webhook.KeyID{}, none, errors.New(`is not an API key: its checksum is wrong; it is truncated, mistyped or not from "everpost keys create"`)
	}
	return id, sha256.Sum256([]byte(text)), nil
}

func checksum(body string) string {
	return keyEncoding().EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body))))
}
