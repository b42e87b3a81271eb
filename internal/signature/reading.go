package signature

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Encoding is how the text of a caller's secret holds the bytes of the key.
type Encoding string

// The encodings. Without one, a secret is read as EncodingBase64 and needs its prefix.
const (
	EncodingBase64 Encoding = "base64" // standard or URL-safe alphabet, padded or not; the prefix may be left out
	EncodingHex    Encoding = "hex"    // the prefix may be left out
	EncodingText   Encoding = "text"   // the bytes of the text itself, a prefix included
)

// Valid reports whether e is one of the encodings.
func (e Encoding) Valid() bool { return e == EncodingBase64 || e == EncodingHex || e == EncodingText }

// Reading is a caller's secret, and how its text was read.
type Reading struct {
	Secret  Secret
	How     string // "base64, 24 bytes"
	Warning string // that the text looks like another encoding; "" if it does not
}

// ReadSecret reads a secret as callers have it: with an encoding, or, for "", whsec_ or whsk_ and base64. The error is a phrase that names
// the form that is expected, and does not repeat the text.
func ReadSecret(text string, encoding Encoding) (Reading, error) {
	if strings.HasPrefix(text, privatePrefix) && encoding != EncodingText {
		return readPrivate(text, encoding)
	}
	encoded, prefixed := strings.CutPrefix(text, hmacPrefix)
	if encoding == "" && !prefixed {
		return Reading{}, errors.New(`must begin with whsec_ or whsk_; for a secret in another form give secret_encoding: "base64", "hex" or "text"`)
	}
	var (
		key []byte
		err error
	)
	switch encoding {
	case EncodingHex:
		if key, err = hex.DecodeString(encoded); err != nil {
			return Reading{}, errors.New("must be pairs of hexadecimal digits, because secret_encoding is hex")
		}
	case EncodingText:
		key = []byte(text)
	case EncodingBase64, "":
		if key, err = decodeAny(encoded); err != nil {
			return Reading{}, err
		}
	}
	if len(key) < shortestHMACKey || len(key) > longestHMACKey {
		return Reading{}, fmt.Errorf("was read as %s and must hold %d to %d bytes then", how(key, encoding), shortestHMACKey, longestHMACKey)
	}
	r := Reading{Secret: newSecret(HMAC, key), How: how(key, encoding)}
	if encoding == "" {
		r.Warning = doubt(encoded)
	}
	return r, nil
}

func readPrivate(text string, encoding Encoding) (Reading, error) {
	if encoding == EncodingHex {
		return Reading{}, errors.New("must be whsk_ followed by base64; secret_encoding hex is for whsec_ secrets")
	}
	key, err := decodeAny(strings.TrimPrefix(text, privatePrefix))
	if err != nil {
		return Reading{}, err
	}
	secret, err := ParseSecret(privatePrefix + base64.StdEncoding.EncodeToString(key))
	if err != nil {
		return Reading{}, errors.New("must be whsk_ followed by the base64 of the 64 bytes of an ed25519 private key, whose halves belong to each other")
	}
	return Reading{Secret: secret, How: how(key, EncodingBase64)}, nil
}

func how(key []byte, encoding Encoding) string {
	if encoding == "" {
		encoding = EncodingBase64
	}
	unit := " bytes"
	if len(key) == 1 {
		unit = " byte"
	}
	return string(encoding) + ", " + strconv.Itoa(len(key)) + unit
}

// decodeAny decodes base64 in the standard or the URL-safe alphabet, padded or not.
func decodeAny(encoded string) ([]byte, error) {
	bare := strings.TrimRight(encoded, "=")
	padded, alphabet := len(bare) != len(encoded), base64.RawStdEncoding
	if strings.ContainsAny(bare, "-_") {
		alphabet = base64.RawURLEncoding
	}
	key, err := alphabet.Strict().DecodeString(bare)
	if err != nil || strings.ContainsAny(bare, "\r\n") || padded && len(encoded)%4 != 0 {
		return nil, errors.New(`must be base64 after its prefix, which it is not; for hexadecimal digits or plain text give secret_encoding: "hex" or "text"`)
	}
	return key, nil
}

// doubt is a warning about text that was read as base64 without being asked for, and may be meant otherwise.
func doubt(encoded string) string {
	switch {
	case strings.Trim(encoded, "0123456789abcdefABCDEF") == "":
		return `it consists of hexadecimal digits and was read as base64: if the receiver reads it as hex, give secret_encoding "hex"; if not, "base64"`
	case !strings.ContainsAny(encoded, "+/-_="):
		return `it consists of letters and digits and was read as base64: ` +
			`if the receiver uses the text itself as the key, give secret_encoding "text"; if not, "base64"`
	}
	return ""
}
