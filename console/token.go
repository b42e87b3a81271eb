package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"net/url"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
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

// unknownTokens are tokens that have no session, and will have none: a session's token is new, and one that has
// ended does not come back.
type unknownTokens struct {
	mu  sync.Mutex
	all *cache.Map[[sha256.Size]byte, struct{}]
}

const maxUnknownTokens = 10_000

func newUnknownTokens() *unknownTokens {
	return &unknownTokens{all: cache.NewMap[[sha256.Size]byte, struct{}](maxUnknownTokens)}
}

func (u *unknownTokens) has(sum [sha256.Size]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, unknown := u.all.Peek(sum)
	return unknown
}

func (u *unknownTokens) add(sum [sha256.Size]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all.Put(sum, struct{}{}, time.Now())
}
