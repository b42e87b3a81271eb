package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"net/url"
)

const (
	tokenLength = 26 // of rand.Text: 130 random bits
	csrfField   = "csrf"
)

// validToken reports whether a text can be the token of a session or a link, which are of rand.Text.
func validToken(token string) bool {
	_, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(token)
	return err == nil && len(token) == tokenLength
}

// csrfToken is what a form must send along: it follows from the cookie, which another site cannot read.
func csrfToken(cookie string) string {
	sum := sha256.Sum256([]byte("everpost console form\x00" + cookie))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// tokenFits compares the form's token with the cookie's.
func tokenFits(form url.Values, cookie string) bool {
	given := form.Get(csrfField)
	return cookie != "" && subtle.ConstantTimeCompare([]byte(given), []byte(csrfToken(cookie))) == 1
}
