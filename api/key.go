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

// An API key is "evk_", the 26 characters of its id, 52 characters of 32 random
// bytes and 7 of a CRC-32 (IEEE) over all that stands before it, all in the
// alphabet of our ids: 89 characters without punctuation, so that a double click
// selects it and a leak scanner finds it by ^evk_[0-9a-hjkmnp-tv-z]{85}$ and can
// tell a real one from a similar text without asking anybody.
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

// NewKey makes the text of a key with the id, and the hash that is stored of it.
func NewKey(id webhook.KeyID) (text string, sum [sha256.Size]byte) {
	var secret [keySecret]byte
	_, _ = rand.Read(secret[:]) // never fails: it ends the process instead
	body := keyPrefix + strings.TrimPrefix(id.String(), keyIDPrefix) + keyEncoding().EncodeToString(secret[:])
	text = body + checksum(body)
	return text, sha256.Sum256([]byte(text))
}

// ParseKey reads the text of a key and returns its id and hash. It refuses, with a
// phrase for people that does not repeat the text, whatever NewKey cannot have
// made; so a preset operator key has to be one that "everpost keys create" printed.
func ParseKey(text string) (webhook.KeyID, [sha256.Size]byte, error) {
	var none [sha256.Size]byte
	if len(text) != keyLength || !strings.HasPrefix(text, keyPrefix) {
		return webhook.KeyID{}, none, errors.New(`is not an API key: one is evk_ and 85 characters, as "everpost keys create" makes them`)
	}
	body, sum := text[:keyLength-keyChecksum], text[keyLength-keyChecksum:]
	id, err := webhook.ParseKeyID(keyIDPrefix + body[len(keyPrefix):len(keyPrefix)+keyIDLength])
	if err != nil || sum != checksum(body) {
		return webhook.KeyID{}, none, errors.New(`is not an API key: its checksum is wrong, it was cut off, mistyped or not made by "everpost keys create"`)
	}
	return id, sha256.Sum256([]byte(text)), nil
}

func checksum(body string) string {
	return keyEncoding().EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body))))
}
